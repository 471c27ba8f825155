#pragma once
// Which page of one replica's cache is free, which belongs to a sequence, which to the tree of prefixes.
// Bookkeeping only: the bytes are the executor's, which gives a page the same meaning on every rank of the
// replica. One thread; every page has at most one owner. Part of ReplicaCache.
#include <cstdint>
#include <vector>

namespace lockstep::runtime {

class PagePool {
 public:
  using Owner = uint64_t;  // a RequestId; 0 owns nothing
  static constexpr Owner kTree = ~Owner{0};

  explicit PagePool(int32_t num_pages);

  int32_t num_pages() const { return static_cast<int32_t>(owner_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_used() const { return num_pages() - num_free(); }

  // Lengthens `table` to `num_pages` pages, or leaves everything as it was when so many are not free. A table
  // that is long enough stays.
  [[nodiscard]] bool grow(std::vector<int32_t>& table, int32_t num_pages, Owner owner);

  // Frees the pages of `table` and empties it. A page that `owner` does not hold is a bug.
  void release(std::vector<int32_t>& table, Owner owner);

  // The page changes hands; 0 frees it. One that `from` does not hold is a bug.
  void hand_over(int32_t page, Owner from, Owner to);
  Owner owner_of(int32_t page) const;

 private:
  std::vector<Owner> owner_;   // [pages]; 0 is free
  std::vector<int32_t> free_;  // the last is given out next
};

// Pages that hold `num_tokens` tokens.
constexpr int32_t num_pages_for(int64_t num_tokens, int32_t page_size) {
  return static_cast<int32_t>((num_tokens + page_size - 1) / page_size);
}

}  // namespace lockstep::runtime
