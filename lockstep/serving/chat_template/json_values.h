#pragma once
// JSON documents as the interpreter's values.
#include "lockstep/base/json.h"
#include "lockstep/serving/chat_template/heap.h"

namespace lockstep::serving::jinja {

// Invalid UTF-8 in it is replaced.
Value from_json(Heap& heap, const Json& document);

}  // namespace lockstep::serving::jinja
