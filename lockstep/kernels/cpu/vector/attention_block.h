#pragma once
// What the attention ops of the vectorised implementation share: some queries and one block of tokens.
// Private to them.
#include <algorithm>
#include <array>
#include <span>

#include "lockstep/kernels/cpu/elements.h"
#include "lockstep/kernels/cpu/scalar_ops.h"
#include "lockstep/kernels/cpu/vector/attention.h"
#include "lockstep/kernels/cpu/vector/cached_rows.h"

namespace lockstep::kernels::cpu {

inline float* head_of(const TensorView& cube, int64_t row, int64_t head) {
  return cube.as<float>() + row * cube.stride[0] + head * cube.stride[1];
}

// Where the tokens [begin, begin + count) of a sequence lie, of a block at most.
class TokenRows {
 public:
  TokenRows(const PagedSequence& sequence, int page_size, int64_t begin, int64_t count) : count_(count) {
    for (int64_t t = 0; t < count; ++t)
      row_[static_cast<size_t>(t)] = cache_row(sequence, page_size, begin + t);
  }
  std::span<const int64_t> all() const { return std::span(row_).first(static_cast<size_t>(count_)); }

 private:
  std::array<int64_t, kTokenBlock> row_;
  const int64_t count_;
};

// Queries that are weighed together although they see different numbers of tokens.
constexpr int64_t kUnevenQueries = 6;

// The matrix [rows, width] of one head, or [heads, width] of one row.
inline TensorView matrix(float* data, int64_t rows, int64_t width, int64_t stride) {
  TensorView view = view_of(data, {rows, width});
  view.stride[0] = stride;
  return view;
}

inline void fill_zero(const TensorView& cube, Range rows, Range heads) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t head = heads.begin; head < heads.end; ++head)
      std::fill_n(head_of(cube, row, head), cube.shape[2], 0.0f);
  }
}

// part[i] = Σ_t weight[i][t] · values[t] over the tokens in visible(i), which all begin at the same token and
// do not end earlier with greater i: all together over the tokens that all see, each alone over the rest. A
// token that a query does not see is not even multiplied by zero: it may hold NaN.
template <class Visible>
void weigh_values(const TensorView& weights, const TensorView& values, const TensorView& part,
                  Visible&& visible) {
  const Range all_see = visible(0);
  vector_matmul({.x = weights.col_range(all_see.begin, all_see.size()),
                 .w = values.row_range(all_see.begin, all_see.size()),
                 .out = part},
                ChainFrom::kZero);
  for (int64_t i = 0; i < weights.shape[0]; ++i) {
    const int64_t rest = visible(i).end - all_see.end;
    if (rest == 0) continue;
    vector_matmul({.x = weights.row_range(i, 1).col_range(all_see.end, rest),
                   .w = values.row_range(all_see.end, rest),
                   .out = part.row_range(i, 1)},
                  ChainFrom::kOut);
  }
}

// The products of queries [rows, width] with keys that lie one after the other in scratch.keys, for as many
// tokens as `count`: to scores [rows, kTokenBlock].
inline void score_rows(const TensorView& q, int64_t count, AttentionScratch& scratch) {
  vector_linear({.x = q,
                 .w = view_of(scratch.keys.data(), {count, q.shape[1]}),
                 .out = matrix(scratch.scores.data(), q.shape[0], count, kTokenBlock)});
}

// Adds tokens to what `rows` queries have accumulated in `out` [rows, value]. scratch.scores [rows,
// kTokenBlock] holds the queries' products with their keys, `values` [count, value] what they are to weigh;
// query i sees the tokens in visible(i), which is not empty and neither begins nor ends earlier with greater
// i.
template <class Visible>
void attend_block(const TensorView& values, const TensorView& out, float scale, Visible&& visible,
                  SoftmaxState* state, AttentionScratch& scratch) {
  const int64_t rows = out.shape[0];
  const int64_t width = values.shape[1];
  const TensorView scores = matrix(scratch.scores.data(), rows, values.shape[0], kTokenBlock);
  const TensorView part = view_of(scratch.part.data(), {rows, width});
  for (int64_t i = 0; i < rows; ++i) {
    const Range seen = visible(i);
    float* score = row_of<float>(scores, i) + seen.begin;
    scratch.factor[static_cast<size_t>(i)] = vector_softmax_block(score, seen.size(), scale, state[i]);
  }
  for (int64_t i = 0; i < rows;) {
    const Range seen = visible(i);
    int64_t end = i + 1;
    while (end < rows && visible(end).begin == seen.begin &&
           (visible(end).end == seen.end || end - i < kUnevenQueries)) {
      ++end;
    }
    weigh_values(scores.row_range(i, end - i), values, part.row_range(i, end - i),
                 [&](int64_t j) { return visible(i + j); });
    i = end;
  }
  for (int64_t i = 0; i < rows; ++i) {
    vector_scale_add(row_of<float>(out, i), scratch.factor[static_cast<size_t>(i)], row_of<float>(part, i),
                     width);
  }
}

inline void divide_by_sums(const TensorView& out, const SoftmaxState* state) {
  for (int64_t i = 0; i < out.shape[0]; ++i) vector_divide(row_of<float>(out, i), state[i].sum, out.shape[1]);
}

}  // namespace lockstep::kernels::cpu
