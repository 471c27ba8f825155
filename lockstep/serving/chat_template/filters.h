#pragma once
// Jinja's filters, with Hugging Face's tojson.
#include <functional>
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

// What Python's generators do: `fill` adds items, and an error of it waits behind them until somebody asks
// for more.
Value generate(Heap& heap, const std::function<void(Values& items)>& fill);

// One table a file.
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> number_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry>
mapping_filters();  // those that apply a filter, a test or an attribute to each item

}  // namespace lockstep::serving::jinja
