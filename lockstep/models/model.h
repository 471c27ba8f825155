#pragma once
// A model is a description (sizes, stages, cache needs) and, once weights are there, one forward. It never
// asks how many ranks there are: the shapes of its weight views and the boundary say all it needs. Only
// runtime/executor calls these.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/split.h"
#include "lockstep/collectives/boundary.h"
#include "lockstep/kernels/kernels.h"
#include "lockstep/models/weight_source.h"
#include "lockstep/planning/stage.h"
#include "lockstep/planning/step_plan.h"
#include "lockstep/tensors/workspace.h"

namespace lockstep::models {

// One of `parts` balanced slices.
struct Shard {
  int index = 0, parts = 1;
  Range of(int64_t total) const { return split_range(total, parts, index); }
};

// Which slices of the weights are loaded, by the role that splits them.
struct Shards {
  Shard attention;        // heads
  Shard dense;            // width of dense layers
  Shard expert_parallel;  // experts
  Shard expert_tp;        // width of an expert
  Shard shared;           // width of the shared expert
  Shard head;             // rows of the LM head
  // Where they are put; in the host's memory they stay where the file is mapped.
  const Memory* memory = &host_memory();
  Shard embedding = {};                                    // rows of the embedding
  planning::Drafting drafting = planning::Drafting::kOff;  // whether what drafts is loaded too
};

struct SamplingDefaults {
  float temperature = 1.0f, top_p = 1.0f, min_p = 0.0f, repetition_penalty = 1.0f;
  int top_k = 0;
};

// Values that a rank's cache keeps in a layer: for every token (K/V, latent) or, in float32, once a sequence
// (a recurrent state). One of the two is zero, both are on a rank without heads.
struct CacheNeed {
  int layer = 0;
  std::string what;  // "latent", "keys", "values"
  int64_t values_per_token = 0;
  int64_t values_per_sequence = 0;
};

// One step as a model sees it. Spans over "all rows" are in the order of home ranks (Boundary::held picks
// from them); sequences are those of the attention replica that the caller belongs to, their rows counted in
// the replica's rows.
struct Batch {
  const planning::StepPlan& plan;
  std::span<const int32_t> token_ids;  // [all rows]; 0 for padding
  std::span<const int32_t> positions;  // [all rows]; 0 for padding
  std::span<const kernels::PagedSequence> prompts, decodes;
  int page_size = 0;
  // Of the rows that a mixer is handed, those whose outputs are asked for; the others only go into its cache.
  // A mixer may give all rows all the same.
  Range given = {};
  // One a CacheNeed, in that order: [pages * page_size, values per token], or [slots, values per sequence]
  // f32.
  std::span<const TensorView> caches = {};
  // Of a draft, one a row of the replica: the row that it follows among those that the forward before kept.
  std::span<const int32_t> kept_rows = {};
};

// The rows given of x, or all where nothing is said; and of sequences the rows that lie among them, counted
// from the first of them. Later tokens of a sequence are cut off: no earlier one looks at them.
Range given_of(const Batch& batch, int64_t num_rows);
std::vector<kernels::PagedSequence> sequences_within(std::span<const kernels::PagedSequence> sequences,
                                                     Range given);

struct ForwardContext {
  collectives::Boundary& boundary;
  kernels::Kernels& kernels;
  Workspace& workspace;
  // [rows of a replica at most, hidden] f32: what a forward keeps of its rows for drafts; empty: nothing
  // drafts.
  TensorView kept = {};
};

class Model {
 public:
  virtual ~Model() = default;
  // Whole logits of the wanted rows at home here: [wanted rows, vocab] f32, good until the next forward.
  virtual TensorView forward(const Batch& batch, const ForwardContext& context) const = 0;
  // The same of what drafts: row i holds the token that followed the row kept_rows[i]. Only of a model that
  // was loaded with it, across the plan of drafts.
  virtual TensorView draft(const Batch& batch, const ForwardContext& context) const;
};

// Weights of a model, norms and what drafts with it left out.
struct ParameterCounts {
  double total = 0;
  double active = 0;  // that one token meets: the chosen experts of each layer
};
// num_vocabulary_matrices: 2, or 1 where the LM head is the embedding.
ParameterCounts count_parameters(const planning::ModelShape& shape, int num_vocabulary_matrices);

// What config.json says, checked, before a weight is read.
class ModelDescription {
 public:
  virtual ~ModelDescription() = default;
  virtual std::string_view family() const = 0;
  virtual planning::ModelShape shape() const = 0;
  virtual int context_length() const = 0;
  virtual ParameterCounts parameters() const { return count_parameters(shape(), 2); }
  // Where the model runs otherwise than its makers run it: sentences for people, printed at a start.
  virtual std::vector<std::string> notes() const { return {}; }
  // Of a rank with these shards: a rank keeps the keys and values of its own heads.
  virtual std::vector<CacheNeed> cache_needs(const Shards& shards) const = 0;
  // All tensors that do not fit are listed in one error. The checkpoint outlives the model.
  virtual Result<std::unique_ptr<Model>> load(const WeightSource& source, const Shards& shards) const = 0;
};

}  // namespace lockstep::models
