#pragma once
// The interpreter's dictionary: insertion order, any hashable key (1, 1.0 and True are one key), and lookups
// whose cost a hostile key set cannot raise (a sorted index, not hashing).
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

class Heap;

class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  // A key that comes twice keeps its first place and its last value. Fails through `heap` on an unhashable
  // key.
  Dict(Heap& heap, std::vector<Entry> entries);

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Value* find(Heap& heap, const Value& key) const;  // nullptr when absent; fails on an unhashable key
  const Value* find(std::string_view key) const;
  int height() const { return height_; }

 private:
  void drop_duplicates(Heap& heap);

  std::vector<Entry> entries_;
  std::vector<uint32_t> sorted_;  // positions by key; only where there are many
  int height_ = 1;
  Charge charge_;
};

// A total order in which exactly the keys that are equal in Python compare equal. <0, 0, >0.
int compare_keys(Heap& heap, const Value& a, const Value& b);
// Whether Python's hash() would take it.
bool is_hashable(Heap& heap, const Value& key);

}  // namespace lockstep::serving::jinja
