#pragma once
// Arguments of ops that are several others in a row. Part of kernels.h, whose rules hold.
#include <cstdint>
#include <span>

#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/paged_sequence.h"
#include "lockstep/kernels/readers.h"
#include "lockstep/kernels/row_moves.h"
#include "lockstep/tensors/tensor.h"

namespace lockstep::kernels {

// Between the products of q, k and v and attention: rms_norm() of the heads of q and of k, rope() of both in
// halves, cache_write() of k and of v.
struct AttentionRowsArgs {
  TensorView q;                         // [query rows, heads * query_stride] f32, in place
  TensorView k, v;                      // [rows, key/value heads * head_dim] f32; k is spoiled
  int head_dim = 0;                     // the first values of every head that are normed
  int query_stride = 0;                 // values between two heads of q
  TensorView q_norm = {}, k_norm = {};  // [head_dim] f32 or bf16; empty: no norm
  float eps = 1e-6f;
  int dim = 0;                                        // the first values of every head that are turned, even
  std::span<const int32_t> q_positions, k_positions;  // [query rows], [rows]
  TensorView cos, sin;                                // [max positions, dim / 2] f32
  std::span<const PagedSequence> sequences;           // of rows of k and v
  int page_size = 0;
  TensorView keys, values;  // caches, [pages * page_size, key/value heads * head_dim] f32 or bf16
  Readers q_readers = Readers::kAny;
};

// attention_rows(), then gqa() of the same q, keys and values, of some or all of the sequences. The first
// head_dim values of every head of q, and k, hold nothing behind it.
struct AttendArgs {
  AttentionRowsArgs rows;
  GqaArgs gqa;
};

// pull_weighted(), then out += plus, then onto += out; an empty one is left out.
struct PullAddArgs {
  PullWeightedArgs pull;
  TensorView plus = {};  // [rows, hidden] f32
  TensorView onto = {};  // [rows, hidden] f32, in place
};

// pull_add() of `pull` and `plus`, then sum_add_norm() of what that gives. `pull.out` is only room to work
// in.
struct PullAddNormArgs {
  PullWeightedArgs pull;
  TensorView plus = {};  // [rows, hidden] f32; empty: left out
  TensorView residual;   // [rows, hidden] f32, in place
  TensorView weight;     // [hidden] f32 or bf16
  float eps = 1e-6f;
  TensorView out;  // [rows, hidden] f32
  Readers out_readers = Readers::kAny;
  int64_t first_non_finite_row = -1;  // out, as RmsNormArgs
};

// The largest of the first `num_valid` numbers of every row and where it first stands; the place is -1 where
// any number of the row is not finite.
struct LargestArgs {
  TensorView x;           // [rows, width] f32
  int64_t num_valid = 0;  // 1 <= num_valid <= width
  TensorView value, idx;  // out [rows] f32, i32
};

}  // namespace lockstep::kernels
