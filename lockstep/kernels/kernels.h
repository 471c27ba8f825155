#pragma once
// The op table. An op knows nothing of ranks. kernels/cpu/reference is written to be read and is what every
// other implementation is tested against; all take exactly these structs. Rules for every op and every
// implementation:
//   - any dimension may be zero; rows do not influence each other; on the host a row's bits do not depend on
//     the others or on how many there are either, so batch composition cannot change an answer, as on a GPU
//     it can: there the order of sums is chosen by how many rows come together;
//   - outputs may not overlap inputs unless the field says "in place";
//   - views lie in the memory of the implementation, spans in the host's;
//   - weights are f32 or bf16 with any row stride, on the host also codes (weight_view.h: decode_row() says
//     what they mean); activations f32 contiguous in their last dimension; fastest are rows at cache lines.
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string_view>

#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/cpu_threads.h"
#include "lockstep/kernels/delta_net.h"
#include "lockstep/kernels/fused_ops.h"
#include "lockstep/kernels/paged_sequence.h"
#include "lockstep/kernels/row_moves.h"
#include "lockstep/tensors/memory.h"
#include "lockstep/tensors/weight_view.h"

namespace lockstep::kernels {

struct EmbedArgs {
  std::span<const int32_t> token_ids;  // [rows]; an id outside the table gives a row of zeros
  WeightView table;                    // [vocab, hidden]
  TensorView out;                      // [rows, hidden] f32
};

// out = w ⊙ x · (mean(x²) + eps)^(-1/2), Zhang and Sennrich 2019.
struct RmsNormArgs {
  TensorView x;       // [rows, hidden] f32
  TensorView weight;  // [hidden] f32 or bf16
  float eps = 1e-6f;
  TensorView out;                     // [rows, hidden] f32; may be x (in place)
  int64_t first_non_finite_row = -1;  // out: the first row whose mean square is no finite f32, or -1
};

// x += y.
struct AddArgs {
  TensorView x;  // [rows, hidden] f32, in place
  TensorView y;  // [rows, hidden] f32
};

// out = x · wᵀ + bias, the layout of a stored Linear.
struct LinearArgs {
  TensorView x;          // [rows, in] f32, row stride >= in
  WeightView w;          // [out, in]
  TensorView out;        // [rows, out] f32, row stride >= out
  TensorView bias = {};  // [out] f32 or bf16; empty: none
  // Whether x may be rounded to the dtype of w, which is what tensor cores multiply. kWhole is for sums whose
  // order decides something, as a router's do.
  enum class Inputs : uint8_t { kMayRound, kWhole } inputs = Inputs::kMayRound;
};

// out = x · w, for the absorbed form of MLA.
struct MatmulArgs {
  TensorView x;    // [rows, in] f32, row stride >= in
  WeightView w;    // [in, out]
  TensorView out;  // [rows, out] f32, row stride >= out
};

// How a gate acts: g · σ(alpha · g) · (u + up_shift), with g = min(gate, limit) and u = up clamped to ±limit.
// As it stands: silu(gate) · up. gpt-oss (OpenAI 2025, model card) has limit 7, alpha 1.702 and shift 1.
struct Gating {
  float limit = std::numeric_limits<float>::infinity();
  float alpha = 1.0f;
  float up_shift = 0.0f;
};

// out = silu(gate) ⊙ up, silu(x) = x / (1 + e^-x), or what the gating makes of it.
struct SiluMulArgs {
  TensorView gate;  // [rows, inter] f32
  TensorView up;    // [rows, inter] f32
  TensorView out;   // [rows, inter] f32; may be gate (in place)
  Gating gating = {};
};

// x *= σ(gate), σ(g) = 1 / (1 + e^-g): output gates of attention (one a value) and of a shared expert (one a
// row).
struct SigmoidMulArgs {
  TensorView x;     // [rows, width] f32, in place
  TensorView gate;  // [rows, width] or [rows, 1] f32
};

enum class RopePairing : uint8_t {
  kInterleaved,  // pair i is (x[2i], x[2i+1]): DeepSeek
  kHalf,         // pair i is (x[i], x[i + d/2]): Llama, Qwen
};

// Rotates `dim` values of every head in place by the angles of the row's position.
struct RopeArgs {
  TensorView x;  // [rows, heads * head_stride] f32 in place, row stride >= that
  int num_heads = 1;
  int head_stride = 0;                 // values between two heads
  int offset = 0;                      // of the rotated part in a head
  int dim = 0;                         // rotated values of a head, even
  std::span<const int32_t> positions;  // [rows]
  TensorView cos, sin;                 // [max positions, dim / 2] f32
  RopePairing pairing = RopePairing::kInterleaved;
};

enum class Scoring : uint8_t { kSoftmax, kSigmoid };

// DeepSeek-V3 routing (DeepSeek-AI 2024, section 2.1.2): scores choose with a bias, weigh without it; groups
// are ranked by the sum of their two best biased scores, or by the best alone (DeepSeek-V2). num_groups = 1
// is plain top-k. Ties go to the smaller expert.
struct RouteArgs {
  TensorView logits;               // [rows, num_experts] f32
  TensorView bias;                 // [num_experts] f32; empty: none
  std::span<const uint8_t> valid;  // [rows]; 0 routes nowhere (expert_idx -1, weight 0)
  int top_k = 1;
  int num_groups = 1, top_groups = 1;
  enum class GroupScore : uint8_t { kTwoBest, kBest } group_score = GroupScore::kTwoBest;
  Scoring scoring = Scoring::kSoftmax;
  enum class Weights : uint8_t { kAsScored, kNormalised } weights = Weights::kNormalised;
  float scale = 1.0f;
  TensorView expert_idx;  // out [rows, top_k] i32, largest biased score first
  TensorView weight;      // out [rows, top_k] f32
};

// y = down( silu(x · gateᵀ) ⊙ (x · upᵀ) ) for rows that are grouped by expert, each product plus its bias
// where there is one. Unweighted.
struct GroupedFfnArgs {
  TensorView
      x;  // [slots, hidden] f32; where the host cannot read expert_start, some at the end may be unused
  TensorView expert_start;               // [num_local_experts + 1] i32, ascending from 0 to the slots in use
  std::span<const WeightView> gate, up;  // [num_local_experts] of [inter, hidden]
  std::span<const WeightView> down;      // [num_local_experts] of [hidden, inter]
  // All empty, or [num_local_experts] of [inter], [inter] and [hidden] f32 or bf16; an empty one is none.
  std::span<const TensorView> gate_bias = {}, up_bias = {}, down_bias = {};
  Gating gating = {};
  TensorView scratch;  // [slots, 2 * inter] f32
  TensorView y;        // out [slots, hidden] f32, or what type_of_expert_outputs() says
};

// linear(), whose output are the logits, then route().
struct LinearRouteArgs {
  LinearArgs product;
  RouteArgs route;
};

// place_slots() of one source, grouped_ffn() of its slots, pull_add() of what that gives. Views between the
// three are room for as many slots as all rows could need, and hold nothing behind it.
struct RoutedFfnArgs {
  PlaceSlotsArgs place;
  GroupedFfnArgs ffn;
  PullAddArgs pull;
};

// A point in the work of one rank's kernels for which another rank's can wait.
class Fence {
 public:
  virtual ~Fence() = default;
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual std::string_view name() const = 0;  // "reference", "avx512", …
  virtual void embed(const EmbedArgs&) = 0;
  virtual void rms_norm(RmsNormArgs&) = 0;
  virtual void add(const AddArgs&) = 0;
  virtual void linear(const LinearArgs&) = 0;
  virtual void matmul(const MatmulArgs&) = 0;
  virtual void silu_mul(const SiluMulArgs&) = 0;
  virtual void sigmoid_mul(const SigmoidMulArgs&) = 0;
  virtual void rope(const RopeArgs&) = 0;
  virtual void route(const RouteArgs&) = 0;
  virtual void grouped_ffn(const GroupedFfnArgs&) = 0;
  virtual void cache_write(const CacheWriteArgs&) = 0;
  virtual void cache_read(const CacheReadArgs&) = 0;
  virtual void mla_absorbed(const MlaAbsorbedArgs&) = 0;
  virtual void mla_expanded(const MlaExpandedArgs&) = 0;
  virtual void gqa(const GqaArgs&) = 0;
  virtual void causal_conv(const CausalConvArgs&) = 0;
  virtual void l2_norm(const L2NormArgs&) = 0;
  virtual void delta_gates(const DeltaGatesArgs&) = 0;
  virtual void gated_delta(const GatedDeltaArgs&) = 0;
  virtual void copy_rows(const CopyRowsArgs&) = 0;
  virtual void sum_rows(const SumRowsArgs&) = 0;
  virtual void sum_add_norm(SumAddNormArgs&) = 0;
  virtual void place_slots(const PlaceSlotsArgs&) = 0;
  virtual void pull_weighted(const PullWeightedArgs&) = 0;

  // Several of the above that follow each other, which they run unless an implementation has one for all.
  virtual void linears(std::span<const LinearArgs> products);  // of one x, the same view in all
  virtual void attention_rows(const AttentionRowsArgs& args);
  virtual void pull_add(const PullAddArgs& args);
  virtual void pull_add_norm(PullAddNormArgs& args);
  virtual void attend(const AttendArgs& args);
  virtual void linear_route(const LinearRouteArgs& args);
  virtual void routed_ffn(const RoutedFfnArgs& args);
  // Up to so many experts of rows, routed_ffn() is more than the ops that it stands for.
  virtual int64_t most_routed() const { return 0; }
  // What grouped_ffn() had best give its outputs as where pull_weighted() alone reads them.
  virtual DType type_of_expert_outputs(const GroupedFfnArgs& args) const {
    static_cast<void>(args);
    return DType::kF32;
  }
  // Of logits; on the host as it stands.
  virtual void largest(const LargestArgs& args);

  // Runs `body`, the ops of one step. Where a step with this key has run before, a device may launch what it
  // recorded then at once; `body` may run twice for that.
  virtual void step(uint64_t key, const std::function<void()>& body) {
    static_cast<void>(key);
    body();
  }

  virtual const Memory& memory() { return host_memory(); }  // where their views lie
  // Kernels that have run when a call returns need no fences and make none.
  // A fence is recorded by its own rank's thread and may be waited for by any.
  virtual std::unique_ptr<Fence> make_fence() { return nullptr; }
  virtual void record(Fence&) {}
  virtual void wait(const Fence&) {}
};

// One object a rank: it may hold scratch and is used by one thread at a time.
std::unique_ptr<Kernels> make_reference_kernels();
// Vectorised for the widest instruction set that this machine runs (Highway's run-time dispatch).
std::unique_ptr<Kernels> make_cpu_kernels(const CpuThreads& threads = {});

}  // namespace lockstep::kernels
