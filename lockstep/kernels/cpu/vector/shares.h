#pragma once
// How the vectorised implementation cuts its ops for threads. A cut never goes through a sum, so no bit
// depends on it.
#include <algorithm>
#include <vector>

#include "lockstep/base/split.h"
#include "lockstep/kernels/cpu/compute_threads.h"
#include "lockstep/kernels/cpu/scalar_ops.h"
#include "lockstep/kernels/cpu/vector/attention.h"

namespace lockstep::kernels::cpu {

// What one thread needs for itself.
struct ThreadScratch {
  AttentionScratch attention;
  RouteScratch route;
  std::vector<float> decoded;  // a block of a coded weight
};

// The threads of one rank with their scratch.
struct Crew {
  Crew(int num_threads, ComputeThreads::Wait wait)
      : threads(num_threads, wait), scratch(static_cast<size_t>(num_threads)) {}

  // body(item, ThreadScratch&), in some order.
  template <class Body>
  void for_each(int64_t num_items, Body&& body) {
    threads.for_each(num_items,
                     [&](int64_t item, int thread) { body(item, scratch[static_cast<size_t>(thread)]); });
  }

  ComputeThreads threads;
  std::vector<ThreadScratch> scratch;
};

// Rows in pieces of some `cost_of_row` numbers each that are worth a thread's attention: body(Range,
// ThreadScratch&).
template <class Body>
void over_rows(Crew& crew, int64_t num_rows, int64_t cost_of_row, Body&& body) {
  constexpr int64_t kPieceCost = 16384;
  const int64_t rows_each = std::max<int64_t>(1, kPieceCost / std::max<int64_t>(1, cost_of_row));
  const int64_t num_pieces = crew.threads.size() == 1 ? 1 : (num_rows + rows_each - 1) / rows_each;
  crew.for_each(num_pieces, [&](int64_t piece, ThreadScratch& scratch) {
    body(split_range(num_rows, num_pieces, piece), scratch);
  });
}

// A product [rows, inner] · [outs, inner]ᵀ in tiles of rows and outputs.
struct ProductCut {
  int64_t row_tiles = 1, out_tiles = 1, outs_each = 0;
  int64_t num_rows = 0, num_outs = 0;

  int64_t count() const { return row_tiles * out_tiles; }
  // Outputs go on fastest: rows stay in a thread's cache.
  Range rows(int64_t tile) const { return split_range(num_rows, row_tiles, tile / out_tiles); }
  Range outs(int64_t tile) const {
    const int64_t begin = tile % out_tiles * outs_each;
    return {begin, std::min(begin + outs_each, num_outs)};
  }
};
ProductCut cut_product(int64_t rows, int64_t outs, int64_t inner, int num_threads);

// One tile of a linear layer with its bias.
void run_linear(const LinearArgs& args, Range rows, Range outs, ThreadScratch& scratch);

// All experts at once: gate and up with the activation, then down. Private memory of grouped_ffn().
struct ExpertTile {
  int64_t expert = 0;
  Range slots, outs;
};
void grouped_ffn_on(Crew& crew, const GroupedFfnArgs& args, std::vector<ExpertTile>& tiles);

}  // namespace lockstep::kernels::cpu
