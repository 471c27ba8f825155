#pragma once
// The ops of a layer that keeps a state once a sequence instead of keys and values for every token: a short
// causal convolution and the gated delta rule. Only a part of kernels.h. Rows of a sequence are taken one
// after the other from the state that the step before left, so how a prompt was cut into steps leaves no
// trace in any bit.
#include <span>

#include "lockstep/kernels/paged_sequence.h"
#include "lockstep/tensors/tensor.h"

namespace lockstep::kernels {

// out_t = silu( Σ_j weight_j ⊙ x_(t - taps + 1 + j) ), x being zero before the first token.
struct CausalConvArgs {
  TensorView x;                              // [rows, channels] f32
  TensorView weight;                         // [taps, channels] f32; the last tap meets the row itself
  std::span<const PagedSequence> sequences;  // rows outside every sequence are padding: their output is zero
  TensorView state;  // [slots, taps - 1, channels] f32, in place: rows of x before the sequence's next one
  TensorView out;    // [rows, channels] f32
};

// x = x · scale · (Σ x² + eps)^(-1/2), head by head.
struct L2NormArgs {
  TensorView x;  // [rows, heads, head_dim] f32, in place
  float eps = 1e-6f;
  float scale = 1.0f;
};

// decay = e^(-e^a_log · softplus(a + dt_bias)) and beta = σ(b), both in (0, 1).
struct DeltaGatesArgs {
  TensorView a, b;            // [rows, heads] f32
  TensorView a_log, dt_bias;  // [heads] f32 or bf16
  TensorView decay, beta;     // out [rows, heads] f32; may be a and b (in place)
};

// The gated delta rule (Yang, Kautz and Hatamizadeh 2024), for every row of a sequence and value head:
//   S = decay · S;  S = S + k ⊗ beta · (v - Sᵀ k);  out = Sᵀ q.
// `group` consecutive value heads share a key head; value head j reads key head (first_in_group + j) / group.
struct GatedDeltaArgs {
  TensorView q, k;                           // [rows, key heads, key_dim] f32
  TensorView v;                              // [rows, heads, value_dim] f32
  TensorView decay, beta;                    // [rows, heads] f32
  std::span<const PagedSequence> sequences;  // rows outside every sequence are padding: their output is zero
  int group = 1, first_in_group = 0;
  TensorView state;  // [slots, heads, key_dim, value_dim] f32, in place
  TensorView out;    // [rows, heads, value_dim] f32
};

}  // namespace lockstep::kernels
