#pragma once
// Jinja's filters, with Hugging Face's tojson.
#include <span>
#include <string_view>

#include "lockstep/serving/chat_template/arguments.h"
#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

struct FilterEntry {
  std::string_view name;
  Value (*call)(Heap& heap, const Value& subject,
                const CallArguments& arguments);  // nullptr: not supported here
};

const FilterEntry* find_filter(std::string_view name);

// One table a file.
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> number_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry>
mapping_filters();  // those that apply a filter, a test or an attribute to each item

}  // namespace lockstep::serving::jinja
