#include "lockstep/serving/chat_template/filters.h"

#include <algorithm>
#include <array>

namespace lockstep::serving::jinja {
namespace {

// Jinja has them, for web pages; a chat template that used one would not be deterministic or not be text.
constexpr std::array kUnsupported = {
    FilterEntry{"filesizeformat", nullptr}, FilterEntry{"pprint", nullptr}, FilterEntry{"random", nullptr},
    FilterEntry{"striptags", nullptr},      FilterEntry{"urlize", nullptr}, FilterEntry{"wordwrap", nullptr},
    FilterEntry{"xmlattr", nullptr},
};

}  // namespace

Value generate(Heap& heap, const std::function<void(Values&)>& fill) {
  Values items;
  try {
    fill(items);
  } catch (const Failure& failure) {
    if (failure.cause == Failure::Cause::kRaised) throw;
    return heap.iterator(std::move(items), failure.message);
  }
  return heap.iterator(std::move(items));
}

const FilterEntry* find_filter(std::string_view name) {
  const std::array<std::span<const FilterEntry>, 5> tables = {
      text_filters(), number_filters(), sequence_filters(), mapping_filters(), kUnsupported};
  for (const auto& table : tables)
    for (const FilterEntry& entry : table)
      if (entry.name == name) return &entry;
  return nullptr;
}

}  // namespace lockstep::serving::jinja
