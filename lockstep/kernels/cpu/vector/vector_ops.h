#pragma once
// The ops with vectors inside, each dispatched to the widest instruction set of the machine. Arguments are
// checked by the caller. What they promise beyond kernels.h: the bits of an output depend on its own inputs
// and the instruction set only, never on how a product was cut into blocks.
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels::cpu {

std::string_view vector_target();  // "avx512", "avx2", "sse4", "neon" or "portable"

// Of plain weights, without the bias.
void vector_linear(const LinearArgs& args);

// Each output is one chain of fused multiply-adds over the inner dimension, ascending; kOut goes on with the
// chain that ends in `out`, so that a product may be computed in pieces without a change of its bits.
enum class ChainFrom : uint8_t { kZero, kOut };
void vector_matmul(const MatmulArgs& args, ChainFrom start);

// decode_row() of codes: the same bits.
void vector_decode_row(const WeightView& weight, int64_t row, int64_t begin, int64_t count, float* out);
// The same products on codes: weights are read from memory once, as small as they are stored, and the bits
// are those of the product with the decoded numbers. For few rows numbers are made in registers, where they
// are multiplied; for many a block at a time is decoded into `decoded` and stays in cache while rows pass.
void vector_linear_coded(const LinearArgs& args, std::vector<float>& decoded);
// The first of the two ways; false where a weight's blocks do not lie so that it can be taken.
bool vector_linear_in_registers(const LinearArgs& args);
void vector_matmul_coded(const MatmulArgs& args, std::vector<float>& decoded);

void vector_rms_norm(RmsNormArgs& args);
void vector_add(const AddArgs& args);
void vector_silu_mul(const SiluMulArgs& args);
void vector_silu(const TensorView& x);  // [rows, width] f32, in place
void vector_sigmoid_mul(const SigmoidMulArgs& args);
void vector_pull_weighted(const PullWeightedArgs& args);

void vector_l2_norm(const L2NormArgs& args);
void vector_causal_conv(const CausalConvArgs& args);
// One sequence and value head.
void vector_gated_delta(const GatedDeltaArgs& args, const PagedSequence& sequence, int64_t head);

// One row and head of a softmax that goes over its tokens block by block.
struct SoftmaxState {
  float highest = -std::numeric_limits<float>::infinity();  // of the blocks so far
  float sum = 0;                                            // of their weights relative to it
};

// score[i] becomes e^(scale · score[i] - highest) for the `count` scores of a block; the result is what
// everything accumulated before the block must be multiplied by.
float vector_softmax_block(float* score, int64_t count, float scale, SoftmaxState& state);

// acc = acc · factor + x, and acc / divisor.
void vector_scale_add(float* acc, float factor, const float* x, int64_t count);
void vector_divide(float* acc, float divisor, int64_t count);

}  // namespace lockstep::kernels::cpu
