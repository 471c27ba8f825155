#pragma once
// A sequence as the ops see it in one step. Only a part of kernels.h.
#include <cstdint>
#include <span>

namespace lockstep::kernels {

// Where a sequence's cached rows lie: token t is row page_table[t / page_size] * page_size + t % page_size of
// the cache.
struct PagedSequence {
  std::span<const int32_t> page_table;
  int32_t first_row = 0;  // of its new rows in the batch
  int32_t num_rows =
      0;  // new rows; row j has position context - num_rows + j and sees tokens 0 … its position
  int32_t context = 0;  // cached tokens, the new rows included
  int32_t slot = 0;     // its own place in what is kept once a sequence (a recurrent state)

  // With its first rows a sequence starts afresh: what its slot holds is another's and must not be read.
  bool starts() const { return num_rows == context; }
};

}  // namespace lockstep::kernels
