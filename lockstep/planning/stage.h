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
  kTap,        // keeps the normed rows of a replica for drafts, and hands them on
  kJoin,       // of a draft: the token's embedding and the kept row before it become one row
  kLatents,    // what attention makes of each row alone, before it looks at others: narrower than the row
  kHead,       // vocabulary split over the head's axes
  kSampler,    // whole logits of a row at the row's home
};
std::string_view name_of(StageKind kind);
// Head and sampler see the rows whose logits are wanted; all other stages see all rows.
constexpr bool sees_wanted_rows(StageKind kind) {
  return kind == StageKind::kHead || kind == StageKind::kSampler;
}

// How the shared expert is computed beside the routed ones, whose sum may be owed over some axes.
enum class SharedExpert : uint8_t {
  kSplit,      // its width is split over the ranks that owe the sum
  kAtHome,     // whole on every rank; of the ranks that owe a row's sum, the one nearest its home computes it
  kEveryRank,  // whole on every rank, and every rank adds it: right only where no sum is owed
};

std::string_view name_of(SharedExpert shared);

// How a router tells padding from rows. Only the first is right for every step; the others are what the
// verifier must find.
enum class RouterMask : uint8_t { kByRow, kByCount, kNone };
// What the numbers are that a dispatch sends: of all experts, or of those of the rank that owns them.
enum class ExpertIds : uint8_t { kGlobal, kLocal };
// How the rows that are dispatched lie at their experts.
enum class ExchangeSlots : uint8_t {
  kExactCount,   // as many slots as rows came, grouped by expert
  kExpertMajor,  // every expert has as many slots as rows could come, with holes behind those that did
  kTokenMajor,   // every rank has as many places as rows it could send; a row comes once for all its experts
};

// One way to run a stage.
struct Signature {
  Layout needs, gives;
  AxisSet exchange;  // kExperts: the axes over which rows are dispatched to their experts and combined back;
                     // empty where a rank computes the experts that it owns for the rows that it holds
  double weight_bytes = 0;                     // read by one rank in a step, whatever its rows
  double flops_per_row = 0;                    // by one rank for one row that it holds under `needs`
  SharedExpert shared = SharedExpert::kSplit;  // kExperts, as the next two
  RouterMask mask = RouterMask::kByRow;
  ExpertIds ids = ExpertIds::kGlobal;
  ExchangeSlots slots = ExchangeSlots::kExactCount;
  // kExperts: an expert is read only where a row chose it.
  double expert_bytes = 0;   // of the part of one expert that a rank owns
  double owned_experts = 0;  // on average
  double choice = 0;         // that a row chooses a given expert
  // kAttention: bytes of the cache that a rank reads for one row and one earlier token.
  double cache_bytes_per_token = 0;
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
  double attention_params = 0;  // of one layer; split over attention-TP, but for those of the latents
  double bytes_per_weight = 2;
  int quant_block =
      0;  // inputs or outputs that share a quantized weight's factor; 0: every split is between blocks
  double cache_values_per_token = 0;  // of all layers, on one rank that holds all heads
  int cache_split = 1;                // ranks over which attention-TP can split them; 1: each keeps all
  double cache_bytes_per_value = 2;
  std::vector<Ffn> draft_layers = {};  // of the module that drafts (MTP); empty: there is none
  // Of what attention makes of a row alone, whole on every rank; 0: it needs rows together from the start.
  int latent_width = 0;
  double latent_params = 0;
  std::string no_drafts_because = {};      // why the model cannot draft; empty: it can, or has no such module
  std::string rows_in_order_because = {};  // why a prompt's rows must stand in order; empty: they need not
};

enum class ExchangeBackend : uint8_t { kNone, kInProcess, kInProcessExpertMajor, kInProcessTokenMajor };
inline constexpr ExchangeBackend kExchangeBackends[] = {ExchangeBackend::kNone, ExchangeBackend::kInProcess,
                                                        ExchangeBackend::kInProcessExpertMajor,
                                                        ExchangeBackend::kInProcessTokenMajor};
std::string_view name_of(ExchangeBackend backend);
enum class HeadSplit : uint8_t { kAllRanks, kAttentionTp, kOwnWidth };  // the last: GridShape::head_tp

std::string_view name_of(HeadSplit split);

// Whether a checkpoint's MTP module runs beside the model.
enum class Drafting : uint8_t { kOff, kMtp };
std::string_view name_of(Drafting drafting);

struct StageOptions {
  ExchangeBackend exchange = ExchangeBackend::kNone;
  HeadSplit head = HeadSplit::kAllRanks;
  SharedExpert shared = SharedExpert::kSplit;
  Drafting drafting = Drafting::kOff;
};

// The axes over which the vocabulary of the head is split.
AxisSet head_axes(const RankGrid& grid, HeadSplit split);
// The axes over which a stage of experts owes a sum: those over which no exchange brings rows together.
AxisSet experts_owe(const RankGrid& grid, ExchangeBackend backend);

// Over which axes each kind of weight is split. Stages are declared and weights are sliced by this one
// answer.
struct WeightSplits {
  AxisSet attention;        // heads
  AxisSet dense;            // width of dense layers
  AxisSet expert_parallel;  // experts
  AxisSet expert_tp;        // width of an expert
  AxisSet shared;     // width of the shared expert: over all who owe addends of an experts stage; or none
  AxisSet head;       // rows of the LM head
  AxisSet embedding;  // rows of the embedding
};
WeightSplits weight_splits(const RankGrid& grid, const StageOptions& options);

// The chain of a pre-norm transformer: embedding, (attention, FFN) per layer, head, sampler. With drafting a
// tap stands before the head.
std::vector<Stage> transformer_stages(const ModelShape& model, const RankGrid& grid,
                                      const StageOptions& options);
// The chain of the module that drafts (DeepSeek-V3 Technical Report, section 2.2): embedding, join, its
// layers, tap, head, sampler, by the target's grid. Layers are numbered behind those of the target.
std::vector<Stage> draft_stages(const ModelShape& model, const RankGrid& grid, const StageOptions& options);

}  // namespace lockstep::planning
