#include "lockstep/kernels/cpu/vector/attention.h"

#include <algorithm>

#include "lockstep/kernels/cpu/scalar_ops.h"
#include "lockstep/kernels/cpu/vector/attention_block.h"

namespace lockstep::kernels::cpu {

void AttentionScratch::reserve(int64_t num_queries, int64_t key_width, int64_t value_width) {
  const auto grow = [](std::vector<float>& memory, int64_t count) {
    memory.resize(std::max(memory.size(), static_cast<size_t>(count)));
  };
  grow(queries, num_queries * key_width);
  grow(outs, num_queries * value_width);
  grow(keys, kTokenBlock * key_width);
  grow(values, kTokenBlock * value_width);
  grow(scores, num_queries * kTokenBlock);
  grow(part, num_queries * value_width);
  grow(factor, num_queries);
}

namespace {

// Tokens [begin, begin + count) of a sequence as floats, one after the other.
void gather_keys(const MlaAbsorbedArgs& args, const PagedSequence& sequence, int64_t begin, int64_t count,
                 float* keys) {
  const TokenRows rows(sequence, args.page_size, begin, count);
  vector_copy_rows({.cache = args.cache, .rows = rows.all(), .width = args.cache.shape[1]}, keys);
}

void attend_sequence(const MlaAbsorbedArgs& args, const PagedSequence& sequence, Range some_heads,
                     AttentionScratch& scratch) {
  const int64_t heads = some_heads.size();
  const int64_t width = args.q.shape[2];
  const int64_t first_position = int64_t{sequence.context} - sequence.num_rows;
  scratch.state.assign(static_cast<size_t>(sequence.num_rows * heads), {});
  const auto q_of = [&](int64_t row) {
    return matrix(head_of(args.q, row, some_heads.begin), heads, width, args.q.stride[1]);
  };
  const auto out_of = [&](int64_t row) {
    return matrix(head_of(args.out, row, some_heads.begin), heads, args.latent, args.out.stride[1]);
  };
  for (int64_t begin = 0; begin < sequence.context; begin += kTokenBlock) {
    const int64_t count = std::min(kTokenBlock, sequence.context - begin);
    gather_keys(args, sequence, begin, count, scratch.keys.data());
    for (int64_t j = std::max<int64_t>(0, begin - first_position); j < sequence.num_rows; ++j) {
      const int64_t visible = std::min(count, first_position + j + 1 - begin);
      const TensorView values = matrix(scratch.keys.data(), visible, args.latent, width);
      score_rows(q_of(sequence.first_row + j), visible, scratch);
      attend_block(
          values, out_of(sequence.first_row + j), args.scale, [&](int64_t) { return Range{0, visible}; },
          scratch.state.data() + j * heads, scratch);
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
    score_rows(q.row_range(skip, rows - skip), count, scratch);
    attend_block(
        values, out.row_range(skip, rows - skip), args.scale,
        [&](int64_t i) { return Range{0, std::min(count, first_position + skip + i + 1 - begin)}; },
        scratch.state.data() + skip, scratch);
  }
  divide_by_sums(out, scratch.state.data());
}

}  // namespace

void fill_padding(const TensorView& cube, std::span<const PagedSequence> sequences) {
  std::vector<uint8_t> is_padding(static_cast<size_t>(cube.shape[0]), 1);
  for (const PagedSequence& sequence : sequences)
    std::fill_n(is_padding.begin() + sequence.first_row, sequence.num_rows, uint8_t{0});
  for (int64_t row = 0; row < cube.shape[0]; ++row)
    if (is_padding[static_cast<size_t>(row)] != 0) fill_zero(cube, {row, row + 1}, {0, cube.shape[1]});
}

// All heads read the same keys, so a part takes many of them.
std::vector<MlaAbsorbedPart> parts_of(const MlaAbsorbedArgs& args, int num_threads) {
  constexpr int64_t kLeastHeads = 4;
  const int64_t heads = args.q.shape[1];
  const auto sequences = static_cast<int64_t>(args.sequences.size());
  std::vector<MlaAbsorbedPart> parts;
  if (heads == 0 || sequences == 0) return parts;
  const int64_t wanted = num_threads == 1 ? 1 : (2 * num_threads + sequences - 1) / sequences;
  const int64_t count = std::clamp<int64_t>(heads / kLeastHeads, 1, wanted);
  for (int64_t sequence = 0; sequence < sequences; ++sequence)
    for (int64_t part = 0; part < count; ++part)
      parts.push_back({.sequence = sequence, .heads = split_range(heads, count, part)});
  return parts;
}

void vector_mla_absorbed(const MlaAbsorbedArgs& args, const MlaAbsorbedPart& part,
                         AttentionScratch& scratch) {
  const PagedSequence& sequence = args.sequences[static_cast<size_t>(part.sequence)];
  fill_zero(args.out, {sequence.first_row, sequence.first_row + sequence.num_rows}, part.heads);
  scratch.reserve(part.heads.size(), args.q.shape[2], args.latent);
  attend_sequence(args, sequence, part.heads, scratch);
}

std::vector<MlaExpandedPart> parts_of(const MlaExpandedArgs& args) {
  std::vector<MlaExpandedPart> parts;
  for (int64_t end = args.q.shape[0]; end > 0;) {  // later rows see more
    const int64_t begin = std::max<int64_t>(0, end - kRowBlock);
    for (int64_t head = 0; head < args.q.shape[1]; ++head)
      parts.push_back({.head = head, .rows = {begin, end}});
    end = begin;
  }
  return parts;
}

void vector_mla_expanded(const MlaExpandedArgs& args, const MlaExpandedPart& part,
                         AttentionScratch& scratch) {
  fill_zero(args.out, part.rows, {part.head, part.head + 1});
  scratch.reserve(kRowBlock, args.q.shape[2], args.out.shape[2]);
  attend_rows(args, part.head, part.rows.begin, part.rows.size(), scratch);
}

}  // namespace lockstep::kernels::cpu
