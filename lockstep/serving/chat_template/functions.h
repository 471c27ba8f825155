#pragma once
// The global functions of a template: range, dict, namespace, raise_exception, strftime_now.
#include <string_view>

#include "lockstep/serving/chat_template/arguments.h"
#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

struct FunctionEntry {
  std::string_view name;
  Value (*call)(Heap& heap, const CallArguments& arguments);  // nullptr: Jinja has it, chat templates do not
};

const FunctionEntry* find_function(std::string_view name);

}  // namespace lockstep::serving::jinja
