#include "lockstep/runtime/kv_cache/page_pool.h"

#include "lockstep/base/check.h"

namespace lockstep::runtime {

PagePool::PagePool(int32_t num_pages) {
  LOCKSTEP_CHECK_GE(num_pages, 0);
  owner_.assign(static_cast<size_t>(num_pages), 0);
  free_.reserve(owner_.size());
  for (int32_t page = num_pages - 1; page >= 0; --page) free_.push_back(page);
}

bool PagePool::grow(std::vector<int32_t>& table, int32_t num_pages, Owner owner) {
  LOCKSTEP_CHECK(owner != 0, "owner {} cannot hold {} pages", owner, num_pages);
  const int32_t missing = num_pages - static_cast<int32_t>(table.size());
  if (missing > num_free()) return false;
  for (int32_t i = 0; i < missing; ++i) {
    const int32_t page = free_.back();
    table.push_back(page);
    free_.pop_back();
    owner_[static_cast<size_t>(page)] = owner;
  }
  return true;
}

void PagePool::release(std::vector<int32_t>& table, Owner owner) {
  for (const int32_t page : table) LOCKSTEP_CHECK_EQ(owner_of(page), owner);
  for (; !table.empty(); table.pop_back()) {
    LOCKSTEP_CHECK_EQ(owner_of(table.back()), owner);  // a page that stands twice in the table
    owner_[static_cast<size_t>(table.back())] = 0;
    free_.push_back(table.back());
  }
}

void PagePool::hand_over(int32_t page, Owner from, Owner to) {
  LOCKSTEP_CHECK_EQ(owner_of(page), from);
  LOCKSTEP_CHECK(from != 0, "page {} is free and cannot be handed to {}", page, to);
  owner_[static_cast<size_t>(page)] = to;
  if (to == 0) free_.push_back(page);
}

PagePool::Owner PagePool::owner_of(int32_t page) const {
  LOCKSTEP_CHECK_GE(page, 0);
  LOCKSTEP_CHECK_LT(page, num_pages());
  return owner_[static_cast<size_t>(page)];
}

}  // namespace lockstep::runtime
