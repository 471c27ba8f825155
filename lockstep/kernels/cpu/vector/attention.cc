#include "lockstep/kernels/cpu/vector/attention.h"

#include <algorithm>

#include "lockstep/kernels/cpu/elements.h"
#include "lockstep/kernels/cpu/scalar_ops.h"

namespace lockstep::kernels::cpu {

void AttentionScratch::reserve(int64_t queries, int64_t key_width, int64_t value_width) {
  const auto grow = [](std::vector<float>& memory, int64_t count) {
    memory.resize(std::max(memory.size(), static_cast<size_t>(count)));
  };
  grow(keys, kTokenBlock * key_width);
  grow(scores, queries * kTokenBlock);
  grow(part, queries * value_width);
  grow(factor, queries);
}

namespace {

float* head_of(const TensorView& cube, int64_t row, int64_t head) {
  return cube.as<float>() + row * cube.stride[0] + head * cube.stride[1];
}

// Queries that are weighed together although they see different numbers of tokens.
constexpr int64_t kUnevenQueries = 6;

// The matrix [rows, width] of one head, or [heads, width] of one row.
TensorView matrix(float* data, int64_t rows, int64_t width, int64_t stride) {
  TensorView view = view_of(data, {rows, width});
  view.stride[0] = stride;
  return view;
}

void fill_zero(const TensorView& cube) {
  for (int64_t row = 0; row < cube.shape[0]; ++row) {
    for (int64_t head = 0; head < cube.shape[1]; ++head)
      std::fill_n(head_of(cube, row, head), cube.shape[2], 0.0f);
  }
}

// Tokens [begin, begin + count) of a sequence as floats, one after the other.
void gather_keys(const MlaAbsorbedArgs& args, const PagedSequence& sequence, int64_t begin, int64_t count,
                 float* keys) {
  const int64_t width = args.cache.shape[1];
  for (int64_t t = 0; t < count; ++t) {
    const int64_t row = cache_row(sequence, args.page_size, begin + t);
    if (args.cache.dtype == DType::kBF16) {
      vector_widen(row_of<BF16>(args.cache, row), keys + t * width, width);
    } else {
      std::copy_n(row_of<float>(args.cache, row), width, keys + t * width);
    }
  }
}

// part[i] = Σ_t weight[i][t] · values[t] over the visible(i) tokens of query i, which does not decrease with
// i: all together over the tokens that all see, each alone over the rest. A token that a query does not see
// is not even multiplied by zero: it may hold NaN.
template <class Visible>
void weigh_values(const TensorView& weights, const TensorView& values, const TensorView& part,
                  Visible&& visible) {
  const int64_t all_see = visible(0);
  vector_matmul({.x = weights.col_range(0, all_see), .w = values.row_range(0, all_see), .out = part},
                ChainFrom::kZero);
  for (int64_t i = 0; i < weights.shape[0]; ++i) {
    const int64_t rest = visible(i) - all_see;
    if (rest == 0) continue;
    vector_matmul({.x = weights.row_range(i, 1).col_range(all_see, rest),
                   .w = values.row_range(all_see, rest),
                   .out = part.row_range(i, 1)},
                  ChainFrom::kOut);
  }
}

// Adds `count` tokens to what `rows` queries have accumulated in `out` [rows, value]. The queries lie in `q`
// [rows, width], their keys in scratch.keys [count, width]; query i sees the first visible(i) of the tokens.
template <class Visible>
void attend_block(const TensorView& q, const TensorView& values, const TensorView& out, float scale,
                  Visible&& visible, SoftmaxState* state, AttentionScratch& scratch) {
  const int64_t rows = q.shape[0];
  const int64_t count = values.shape[0];
  const int64_t width = values.shape[1];
  const TensorView scores = matrix(scratch.scores.data(), rows, count, kTokenBlock);
  const TensorView part = view_of(scratch.part.data(), {rows, width});
  vector_linear({.x = q, .w = view_of(scratch.keys.data(), {count, q.shape[1]}), .out = scores});
  for (int64_t i = 0; i < rows; ++i) {
    float* score = row_of<float>(scores, i);
    scratch.factor[static_cast<size_t>(i)] = vector_softmax_block(score, visible(i), scale, state[i]);
  }
  for (int64_t i = 0; i < rows;) {
    int64_t end = i + 1;
    while (end < rows && (visible(end) == visible(i) || end - i < kUnevenQueries)) ++end;
    weigh_values(scores.row_range(i, end - i), values, part.row_range(i, end - i),
                 [&](int64_t j) { return visible(i + j); });
    i = end;
  }
  for (int64_t i = 0; i < rows; ++i) {
    vector_scale_add(row_of<float>(out, i), scratch.factor[static_cast<size_t>(i)], row_of<float>(part, i),
                     width);
  }
}

void divide_by_sums(const TensorView& out, const SoftmaxState* state) {
  for (int64_t i = 0; i < out.shape[0]; ++i) vector_divide(row_of<float>(out, i), state[i].sum, out.shape[1]);
}

void attend_sequence(const MlaAbsorbedArgs& args, const PagedSequence& sequence, AttentionScratch& scratch) {
  const int64_t heads = args.q.shape[1];
  const int64_t width = args.q.shape[2];
  const int64_t first_position = int64_t{sequence.context} - sequence.num_rows;
  scratch.state.assign(static_cast<size_t>(sequence.num_rows * heads), {});
  const auto q_of = [&](int64_t row) {
    return matrix(head_of(args.q, row, 0), heads, width, args.q.stride[1]);
  };
  const auto out_of = [&](int64_t row) {
    return matrix(head_of(args.out, row, 0), heads, args.latent, args.out.stride[1]);
  };
  for (int64_t begin = 0; begin < sequence.context; begin += kTokenBlock) {
    const int64_t count = std::min(kTokenBlock, sequence.context - begin);
    gather_keys(args, sequence, begin, count, scratch.keys.data());
    for (int64_t j = std::max<int64_t>(0, begin - first_position); j < sequence.num_rows; ++j) {
      const int64_t visible = std::min(count, first_position + j + 1 - begin);
      const TensorView values = matrix(scratch.keys.data(), visible, args.latent, width);
      attend_block(
          q_of(sequence.first_row + j), values, out_of(sequence.first_row + j), args.scale,
          [&](int64_t) { return visible; }, scratch.state.data() + j * heads, scratch);
    }
  }
  for (int64_t j = 0; j < sequence.num_rows; ++j) {
    divide_by_sums(out_of(sequence.first_row + j), scratch.state.data() + j * heads);
  }
}

// Rows [first, first + rows) of one head.
void attend_rows(const MlaExpandedArgs& args, int64_t head, int64_t first, int64_t rows,
                 AttentionScratch& scratch) {
  const int64_t key_width = args.q.shape[2];
  const int64_t rope = args.k_rope.shape[1];
  const int64_t value_width = args.out.shape[2];
  const int64_t first_position = args.kv.shape[0] - args.q.shape[0] + first;
  const int64_t end = first_position + rows;  // tokens that any of the rows sees
  const TensorView q = matrix(head_of(args.q, first, head), rows, key_width, args.q.stride[0]);
  const TensorView out = matrix(head_of(args.out, first, head), rows, value_width, args.out.stride[0]);
  scratch.state.assign(static_cast<size_t>(rows), {});
  for (int64_t begin = 0; begin < end; begin += kTokenBlock) {
    const int64_t count = std::min(kTokenBlock, end - begin);
    for (int64_t t = 0; t < count; ++t) {
      float* key = scratch.keys.data() + t * key_width;
      std::copy_n(row_of<float>(args.k_rope, begin + t), rope,
                  std::copy_n(head_of(args.kv, begin + t, head), args.nope, key));
    }
    const TensorView values =
        matrix(head_of(args.kv, begin, head) + args.nope, count, value_width, args.kv.stride[0]);
    const int64_t skip = std::max<int64_t>(0, begin - first_position);  // rows that see none of the block
    attend_block(
        q.row_range(skip, rows - skip), values, out.row_range(skip, rows - skip), args.scale,
        [&](int64_t i) { return std::min(count, first_position + skip + i + 1 - begin); },
        scratch.state.data() + skip, scratch);
  }
  divide_by_sums(out, scratch.state.data());
}

}  // namespace

void vector_mla_absorbed(const MlaAbsorbedArgs& args, AttentionScratch& scratch) {
  fill_zero(args.out);
  const int64_t heads = args.q.shape[1];
  if (heads == 0) return;
  scratch.reserve(heads, args.q.shape[2], args.latent);
  for (const PagedSequence& sequence : args.sequences) attend_sequence(args, sequence, scratch);
}

void vector_mla_expanded(const MlaExpandedArgs& args, AttentionScratch& scratch) {
  fill_zero(args.out);
  scratch.reserve(kRowBlock, args.q.shape[2], args.out.shape[2]);
  for (int64_t head = 0; head < args.q.shape[1]; ++head) {
    for (int64_t first = 0; first < args.q.shape[0]; first += kRowBlock) {
      attend_rows(args, head, first, std::min(kRowBlock, args.q.shape[0] - first), scratch);
    }
  }
}

}  // namespace lockstep::kernels::cpu
