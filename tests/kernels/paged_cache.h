#pragma once
// A paged cache with one sequence or several whose pages lie in no order, for the cache and attention tests.
#include <algorithm>
#include <vector>

#include "lockstep/kernels/kernels.h"
#include "tests/kernels/matrices.h"

namespace lockstep::kernels {

class PagedCache {
 public:
  // Room for `num_sequences` of `max_tokens` tokens each. Page p of sequence s is a page that no other has.
  PagedCache(int num_sequences, int max_tokens, int page_size, int64_t width, DType dtype)
      : page_size_(page_size),
        pages_each_((max_tokens + page_size - 1) / page_size),
        cache_(Matrix(int64_t{num_sequences} * pages_each_ * page_size, width), dtype),
        tables_(static_cast<size_t>(num_sequences)) {
    const int num_pages = num_sequences * pages_each_;
    for (int p = 0; p < num_pages; ++p) {
      tables_[static_cast<size_t>(p % num_sequences)].push_back(num_pages - 1 - p);
    }
    for (auto& table : tables_)
      std::rotate(table.begin(), table.begin() + static_cast<int64_t>(table.size()) / 2, table.end());
  }

  int page_size() const { return page_size_; }
  TensorView view() { return cache_.view(); }
  double at(size_t sequence, int64_t token, int64_t c) const {
    return cache_.at(
        int64_t{tables_[sequence][static_cast<size_t>(token / page_size_)]} * page_size_ + token % page_size_,
        c);
  }
  PagedSequence sequence(size_t s, int32_t first_row, int32_t num_rows, int32_t context) const {
    return {.page_table = tables_[s], .first_row = first_row, .num_rows = num_rows, .context = context};
  }

 private:
  int page_size_, pages_each_;
  Weight cache_;
  std::vector<std::vector<int32_t>> tables_;
};

}  // namespace lockstep::kernels
