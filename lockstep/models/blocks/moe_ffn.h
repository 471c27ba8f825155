#pragma once
// Routed experts and a shared expert: y = Σ p_e · ffn_e(x) + [σ(x · gate) ·] ffn_shared(x). The boundary
// moves rows to experts and back and multiplies by p_e; where the experts are is no concern of this block.
#include "lockstep/models/blocks/dense_ffn.h"
#include "lockstep/models/config_reader.h"
#include "lockstep/models/model.h"

namespace lockstep::models {

// Where a family's tensors of a layer with experts lie.
struct MoeNames {
  const char* block = "mlp.";  // behind the layer's prefix
  const char* router = "gate.";
  FfnNames expert = {};
};

struct MoeConfig {
  int hidden = 0, num_experts = 0, top_k = 0, expert_width = 0;
  int shared_width = 0;  // 0: no shared expert
  enum class SharedExpert : uint8_t {
    kPlain,  // "shared_experts."
    kGated,  // "shared_expert.", times the sigmoid of "shared_expert_gate" (Qwen)
  } shared_expert = SharedExpert::kPlain;
  int num_groups = 1, top_groups = 1;
  kernels::Scoring scoring = kernels::Scoring::kSoftmax;
  kernels::RouteArgs::GroupScore group_score = kernels::RouteArgs::GroupScore::kTwoBest;
  // kForChoice: DeepSeek-V3's, which does not weigh. kOfLogits: of the router's product, like any bias.
  enum class RouterBias : uint8_t { kNone, kForChoice, kOfLogits } router_bias = RouterBias::kNone;
  // kInterleaved: all experts in one tensor with inputs first and gate and up in turns, and biases (gpt-oss).
  enum class Layout : uint8_t { kGateThenUp, kInterleaved } layout = Layout::kGateThenUp;
  kernels::Gating gating = {};
  MoeNames names = {};
  kernels::RouteArgs::Weights weights = kernels::RouteArgs::Weights::kNormalised;
  float scale = 1.0f;
};

struct MoeWeights {
  TensorView router;       // [num_experts, hidden]
  TensorView router_bias;  // [num_experts], f32 where it is for the choice; empty: none
  int64_t first_expert = 0;
  std::vector<WeightView> gate, up, down;                 // [local experts], local width
  std::vector<TensorView> gate_bias, up_bias, down_bias;  // the same, or empty without biases
  FfnWeights shared;
  TensorView shared_gate;  // [1, hidden]; empty: none
  // Whose shared expert a rank adds: a share of its width for all rows, or all of it for the rows it owns.
  enum class SharedRows : uint8_t { kAll, kOwn } shared_rows = SharedRows::kAll;
};

// A router that scores by a sigmoid, with a bias for the choice and groups of experts (DeepSeek-V3,
// GLM-4-MoE).
struct SigmoidMoeDefaults {
  int num_shared_experts = 0;  // where n_shared_experts is absent
};
// n_group and topk_group of a config whose num_experts and top_k are read.
void read_expert_groups(ConfigReader& reader, MoeConfig& moe);
MoeConfig read_sigmoid_moe(ConfigReader& reader, int hidden, const SigmoidMoeDefaults& defaults);

// A router that takes the softmax of its logits (Qwen).
MoeConfig read_softmax_moe(ConfigReader& reader, int hidden);

// prefix: "model.layers.3.mlp.". Experts may lie one by one (experts.7.gate_proj.weight) or all together
// (experts.gate_up_proj [num_experts, 2 * width, hidden], gate first, and experts.down_proj).
MoeWeights read_moe(WeightReader& reader, const std::string& prefix, const MoeConfig& config,
                    const Shards& shards);

// x as entered into an experts stage. Returns [rows, hidden] in the layout that the stage gives.
TensorView run_moe(const MoeConfig& config, const MoeWeights& weights, const collectives::Rows& x,
                   const ForwardContext& context);

}  // namespace lockstep::models
