#pragma once
// Jinja's tests: what may stand behind `is`.
#include <string_view>

#include "lockstep/serving/chat_template/arguments.h"
#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

struct TestEntry {
  std::string_view name;
  size_t num_arguments;  // beside the subject
  bool (*holds)(Heap& heap, const Value& subject, const Values& arguments);
};

const TestEntry* find_test(std::string_view name);
bool run_test(Heap& heap, const TestEntry& test, const Value& subject, const CallArguments& arguments);

}  // namespace lockstep::serving::jinja
