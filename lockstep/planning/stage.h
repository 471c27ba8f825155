#pragma once
// Compute stages and what they declare: for each way in which a stage can run, the layout that it needs, the
// layout that it gives, and its cost. A stage never reduces, gathers or asks for a rank; the plan does.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/planning/layout.h"

namespace lockstep::planning {

enum class StageKind : uint8_t {
  kEmbedding,  // token ids (known everywhere) to rows
  kAttention,  // a replica's own rows, heads split over attention-TP
  kDense,      // dense FFN, width split over dense-TP
  kExperts,    // router, routed experts, shared expert
  kHead,       // vocabulary split over the head's axes
  kSampler,    // whole logits of a row at the row's home
};
std::string_view name_of(StageKind kind);

// One way to run a stage.
struct Signature {
  Layout needs, gives;
  AxisSet exchange;  // kExperts: the axes over which rows are dispatched to their experts and combined back;
                     // empty where a rank computes the experts that it owns for the rows that it holds
  double weight_bytes = 0;   // read by one rank in a step
  double flops_per_row = 0;  // by one rank for one row that it holds under `needs`
};

struct Stage {
  StageKind kind = StageKind::kAttention;
  int layer = 0;  // of the model; the embedding has 0, head and sampler the number of layers
  std::vector<Signature> signatures;
};

// The signature that needs and gives these; nullptr as an argument matches all, as a result means none.
const Signature* signature_of(const Stage& stage, const Layout* needs, const Layout* gives);

// What planning must know of a model: sizes, no names of tensors, no formats.
struct ModelShape {
  enum class Ffn : uint8_t { kDense, kExperts };
  int hidden = 0, vocab = 0, num_heads = 0;
  std::vector<Ffn> layers;  // the FFN of each layer
  int dense_inter = 0;
  int num_experts = 0, top_k = 0, expert_inter = 0;
  int shared_inter = 0;         // 0: no shared expert
  double attention_params = 0;  // of one layer, split over attention-TP
  double bytes_per_weight = 2;
  int quant_block =
      0;  // inputs or outputs that share a quantized weight's factor; 0: every split is between blocks
};

enum class ExchangeBackend : uint8_t { kNone, kInProcess };
enum class HeadSplit : uint8_t { kAllRanks, kAttentionTp };

struct StageOptions {
  ExchangeBackend exchange = ExchangeBackend::kNone;
  HeadSplit head = HeadSplit::kAllRanks;
};

// Over which axes each kind of weight is split. Stages are declared and weights are sliced by this one
// answer.
struct WeightSplits {
  AxisSet attention;        // heads
  AxisSet dense;            // width of dense layers
  AxisSet expert_parallel;  // experts
  AxisSet expert_tp;        // width of an expert
  AxisSet shared;           // width of the shared expert: over all who owe addends of an experts stage
  AxisSet head;             // rows of the LM head
};
WeightSplits weight_splits(const RankGrid& grid, const StageOptions& options);

// The chain of a pre-norm transformer: embedding, (attention, FFN) per layer, head, sampler.
std::vector<Stage> transformer_stages(const ModelShape& model, const RankGrid& grid,
                                      const StageOptions& options);

}  // namespace lockstep::planning
