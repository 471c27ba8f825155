#pragma once
// Arguments of attention and of its cache. Part of kernels.h, whose rules hold.
#include <cstdint>
#include <span>

#include "lockstep/kernels/paged_sequence.h"
#include "lockstep/kernels/readers.h"
#include "lockstep/tensors/tensor.h"

namespace lockstep::kernels {

// Writes one value a row into the cache (latent and rotated key of MLA side by side).
struct CacheWriteArgs {
  TensorView x;  // [rows, width] f32
  std::span<const PagedSequence> sequences;
  int page_size = 0;
  TensorView cache;  // [pages * page_size, width] f32 or bf16
};

// Reads tokens 0 … count-1 of one sequence.
struct CacheReadArgs {
  PagedSequence sequence;
  int page_size = 0;
  TensorView cache;  // [pages * page_size, width] f32 or bf16
  TensorView out;    // [sequence.context, width] f32
};

// MLA in absorbed form (DeepSeek-V2, section 2.1.2): one shared key of latent + rope values, one shared value
// (the latent) for all heads. Softmax in float32, tokens in ascending order.
struct MlaAbsorbedArgs {
  TensorView q;  // [rows, heads, latent + rope] f32: the absorbed query, then its rope part
  std::span<const PagedSequence> sequences;  // rows outside every sequence are padding: their output is zero
  int page_size = 0;
  TensorView cache;  // [pages * page_size, latent + rope] f32 or bf16
  int latent = 0;
  float scale = 1.0f;
  TensorView out;  // [rows, heads, latent] f32
};

// MLA in expanded form for one sequence: keys and values of every head made from the latent beforehand.
struct MlaExpandedArgs {
  TensorView q;       // [num_rows, heads, nope + rope] f32
  TensorView kv;      // [context, heads, nope + value] f32: key without rope, then value
  TensorView k_rope;  // [context, rope] f32, row stride >= rope
  int nope = 0;
  float scale = 1.0f;
  TensorView out;  // [num_rows, heads, value] f32; row j sees tokens 0 … context - num_rows + j
};

// Attention in which `group` consecutive query heads share a key/value head (Ainslie et al. 2023). A rank may
// begin or end in the middle of a group: query head j reads head (first_in_group + j) / group of the caches.
// Softmax in float32, tokens in ascending order.
struct GqaArgs {
  TensorView q;                              // [rows, heads, head_dim] f32
  std::span<const PagedSequence> sequences;  // rows outside every sequence are padding: their output is zero
  int page_size = 0;
  TensorView k, v;  // caches, [pages * page_size, key/value heads * head_dim] f32 or bf16
  int group = 1, first_in_group = 0;
  float scale = 1.0f;
  int window = 0;  // a row sees the last `window` tokens up to itself; 0: all
  // [heads] f32 or bf16: an unscaled score that joins every row's softmax and has no value (gpt-oss); or none
  TensorView sinks = {};
  TensorView out;  // [rows, heads, head_dim] f32
  Readers out_readers = Readers::kAny;
};

}  // namespace lockstep::kernels
