#pragma once
// Attention of the vectorised implementation. Tokens pass in blocks that begin at multiples of kTokenBlock,
// with a running softmax, so that memory does not grow with the context and a row's bits depend on its
// position and the cache alone.
#include <span>
#include <vector>

#include "lockstep/base/split.h"
#include "lockstep/kernels/cpu/vector/vector_ops.h"
#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels::cpu {

constexpr int64_t kTokenBlock = 64;
constexpr int64_t kRowBlock = 96;  // rows of one head that share a block of keys in the expanded form

// Memory for at most `queries` at a time: the heads of a row, or kRowBlock rows of a head, or rows of a group
// of heads.
struct AttentionScratch {
  std::vector<float> queries, outs;  // [queries, width], of a group of heads
  std::vector<float> keys, values;   // [kTokenBlock, width]; keys of groups of heads [width, kTokenBlock]
  std::vector<float> scores;         // [queries, kTokenBlock]
  std::vector<float> part;           // [queries, value width]: what one block of tokens adds
  std::vector<float> factor;         // [queries]: what it shrinks the earlier blocks by
  std::vector<SoftmaxState> state;   // [new rows of the sequence, heads] or [kRowBlock]

  void reserve(int64_t num_queries, int64_t key_width, int64_t value_width);
};

// Parts of an op that do not depend on each other, the longest first where their lengths differ. Each writes
// its own heads of its own rows, whatever part ran before it; rows outside every sequence are no part's.
struct GqaPart {
  int64_t sequence = 0;  // its number
  Range heads;           // of a rank, that share a key/value head
  int64_t column = 0;    // of a cached row, where that head's values begin
  Range rows;            // of the sequence
};
std::vector<GqaPart> parts_of(const GqaArgs& args);
void vector_gqa(const GqaArgs& args, const GqaPart& part, AttentionScratch& scratch);

struct MlaAbsorbedPart {
  int64_t sequence = 0;
  Range heads;
};
std::vector<MlaAbsorbedPart> parts_of(const MlaAbsorbedArgs& args, int num_threads);
void vector_mla_absorbed(const MlaAbsorbedArgs& args, const MlaAbsorbedPart& part, AttentionScratch& scratch);

struct MlaExpandedPart {
  int64_t head = 0;
  Range rows;
};
std::vector<MlaExpandedPart> parts_of(const MlaExpandedArgs& args);
void vector_mla_expanded(const MlaExpandedArgs& args, const MlaExpandedPart& part, AttentionScratch& scratch);

// Zeros for the rows that belong to no sequence.
void fill_padding(const TensorView& cube, std::span<const PagedSequence> sequences);

}  // namespace lockstep::kernels::cpu
