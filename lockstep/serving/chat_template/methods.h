#pragma once
// The methods of Python's str, list, tuple, dict and of loops that a template can reach.
#include <string_view>

#include "lockstep/serving/chat_template/arguments.h"
#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

struct MethodEntry {
  std::string_view name;
  Value (*call)(Heap& heap, const Value& self, const CallArguments& arguments);
};

// nullptr where the type has no such method, or none that the sandbox lets a template see.
const MethodEntry* find_method(const Value& self, std::string_view name);
// Whether the sandbox hides the attribute although the type has it: list.append and the like.
bool is_forbidden(const Value& self, std::string_view name);

const MethodEntry* find_text_method(std::string_view name);

}  // namespace lockstep::serving::jinja
