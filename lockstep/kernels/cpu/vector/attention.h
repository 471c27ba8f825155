#pragma once
// Attention of the vectorised implementation. Tokens pass in blocks that begin at multiples of kTokenBlock,
// with a running softmax, so that memory does not grow with the context and a row's bits depend on its
// position and the cache alone.
#include <vector>

#include "lockstep/kernels/cpu/vector/vector_ops.h"
#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels::cpu {

constexpr int64_t kTokenBlock = 64;
constexpr int64_t kRowBlock = 48;  // rows of one head that share a block of keys in the expanded form

// Memory for at most `queries` at a time: the heads of a row, or kRowBlock rows of a head, or rows of a group
// of heads.
struct AttentionScratch {
  std::vector<float> queries, outs;  // [queries, width], of a group of heads
  std::vector<float> keys, values;   // [kTokenBlock, width]
  std::vector<float> scores;         // [queries, kTokenBlock]
  std::vector<float> part;           // [queries, value width]: what one block of tokens adds
  std::vector<float> factor;         // [queries]: what it shrinks the earlier blocks by
  std::vector<SoftmaxState> state;   // [new rows of the sequence, heads] or [kRowBlock]

  void reserve(int64_t num_queries, int64_t key_width, int64_t value_width);
};

void vector_mla_absorbed(const MlaAbsorbedArgs& args, AttentionScratch& scratch);
void vector_mla_expanded(const MlaExpandedArgs& args, AttentionScratch& scratch);
void vector_gqa(const GqaArgs& args, AttentionScratch& scratch);

}  // namespace lockstep::kernels::cpu
