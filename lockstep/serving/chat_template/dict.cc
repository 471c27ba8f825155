#include "lockstep/serving/chat_template/dict.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/operators.h"

namespace lockstep::serving::jinja {
namespace {

// Below this many entries a search from the front is faster than an index.
constexpr size_t kIndexedSize = 9;

// Kinds in the order in which keys are sorted; numbers are one kind.
int rank_of(const Value& key) {
  if (key.is_number()) return 0;
  return 1 + static_cast<int>(key.kind());
}

int sign(std::strong_ordering order) { return order < 0 ? -1 : order > 0 ? 1 : 0; }

int compare_numbers_as_keys(const Value& a, const Value& b) {
  if (const auto order = compare_numbers(a, b)) return *order;
  // Only NaN is unordered: behind all numbers, and one key.
  const bool a_is_nan = a.is(Kind::kFloat) && a.to_real() != a.to_real();
  const bool b_is_nan = b.is(Kind::kFloat) && b.to_real() != b.to_real();
  return static_cast<int>(a_is_nan) - static_cast<int>(b_is_nan);
}

int compare_tuples(Heap& heap, const Values& a, const Values& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (const int order = compare_keys(heap, a[i], b[i]); order != 0) return order;
  return a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
}

void require_hashable(Heap& heap, const Value& key) {
  if (is_hashable(heap, key)) return;
  const bool is_tuple = key.is(Kind::kTuple);
  heap.fail("unhashable type: {}'{}'", is_tuple ? "an item of a " : "", type_name(key));
}

int compare_views(std::string_view a, std::string_view b) {
  const int order = a.compare(b);
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

}  // namespace

int compare_keys(Heap& heap, const Value& a, const Value& b) {
  heap.step();
  if (const int order = rank_of(a) - rank_of(b); order != 0) return order;
  if (a.is_number()) return compare_numbers_as_keys(a, b);
  const void* a_place = a.identity();
  const void* b_place = b.identity();
  if (a_place == b_place && a_place != nullptr) return 0;
  switch (a.kind()) {
    case Kind::kText:
      heap.work(std::min(a.view().size(), b.view().size()));
      return compare_views(a.view(), b.view());
    case Kind::kTuple:
      return compare_tuples(heap, a.items(), b.items());
    case Kind::kUndefined:
    case Kind::kNone:
      return 0;
    case Kind::kFunction:
      return sign(std::compare_three_way{}(static_cast<const void*>(a.ref<const FunctionEntry*>()),
                                           static_cast<const void*>(b.ref<const FunctionEntry*>())));
    default:
      return sign(std::compare_three_way{}(a_place, b_place));
  }
}

bool is_hashable(Heap& heap, const Value& key) {
  heap.step();
  if (key.is(Kind::kList) || key.is(Kind::kDict)) return false;
  if (!key.is(Kind::kTuple)) return true;
  return std::all_of(key.items().begin(), key.items().end(),
                     [&](const Value& item) { return is_hashable(heap, item); });
}

Dict::Dict(Heap& heap, std::vector<Entry> entries) : entries_(std::move(entries)) {
  charge_ = heap.charge(entries_.size() * (sizeof(Entry) + sizeof(uint32_t)) + sizeof(Dict));
  for (const auto& [key, value] : entries_) {
    require_hashable(heap, key);
    height_ = std::max({height_, key.height() + 1, value.height() + 1});
  }
  sorted_.resize(entries_.size());
  std::iota(sorted_.begin(), sorted_.end(), 0U);
  std::stable_sort(sorted_.begin(), sorted_.end(), [&](uint32_t a, uint32_t b) {
    return compare_keys(heap, entries_[a].first, entries_[b].first) < 0;
  });
  drop_duplicates(heap);
  if (entries_.size() < kIndexedSize) sorted_.clear();
}

void Dict::drop_duplicates(Heap& heap) {
  std::vector<bool> is_dropped(entries_.size(), false);
  bool any = false;
  for (size_t i = 1, kept = 0; i < sorted_.size(); ++i) {
    Entry& first = entries_[sorted_[kept]];
    if (compare_keys(heap, first.first, entries_[sorted_[i]].first) != 0) {
      kept = i;
      continue;
    }
    first.second = entries_[sorted_[i]].second;
    is_dropped[sorted_[i]] = any = true;
  }
  if (!any) return;
  std::vector<uint32_t> new_place(entries_.size(), 0);
  std::vector<Entry> left;
  for (size_t i = 0; i < entries_.size(); ++i) {
    new_place[i] = static_cast<uint32_t>(left.size());
    if (!is_dropped[i]) left.push_back(std::move(entries_[i]));
  }
  std::erase_if(sorted_, [&](uint32_t i) { return is_dropped[i]; });
  for (uint32_t& i : sorted_) i = new_place[i];
  entries_ = std::move(left);
}

const Value* Dict::find(Heap& heap, const Value& key) const {
  require_hashable(heap, key);
  if (sorted_.empty()) {
    for (const auto& [name, value] : entries_)
      if (compare_keys(heap, name, key) == 0) return &value;
    return nullptr;
  }
  const auto found = std::lower_bound(
      sorted_.begin(), sorted_.end(), key,
      [&](uint32_t i, const Value& wanted) { return compare_keys(heap, entries_[i].first, wanted) < 0; });
  if (found == sorted_.end() || compare_keys(heap, entries_[*found].first, key) != 0) return nullptr;
  return &entries_[*found].second;
}

const Value* Dict::find(std::string_view key) const {
  if (sorted_.empty()) {
    for (const auto& [name, value] : entries_)
      if (name.is(Kind::kText) && name.view() == key) return &value;
    return nullptr;
  }
  const int text_rank = 1 + static_cast<int>(Kind::kText);
  const auto found =
      std::lower_bound(sorted_.begin(), sorted_.end(), key, [&](uint32_t i, std::string_view wanted) {
        const Value& name = entries_[i].first;
        return rank_of(name) != text_rank ? rank_of(name) < text_rank : name.view() < wanted;
      });
  if (found == sorted_.end()) return nullptr;
  const Value& name = entries_[*found].first;
  return name.is(Kind::kText) && name.view() == key ? &entries_[*found].second : nullptr;
}

}  // namespace lockstep::serving::jinja
