#include "lockstep/planning/stage.h"

#include <algorithm>

namespace lockstep::planning {
namespace {

using enum Placement;

// Calls f with Shard on every subset of `free` and Replicate on the rest.
template <class F>
void for_each_sharding(AxisSet free, F f) {
  for (uint32_t subset = free.bits();; subset = (subset - 1) & free.bits()) {
    f(Layout().with(AxisSet(subset), kShard));
    if (subset == 0) break;
  }
}

Stage embedding(const ModelShape& model, const RankGrid& grid) {
  // Every rank knows all token ids: any share of a replica's rows can be looked up without communication. A
  // rank that holds a part of the vocabulary gives zeros for the tokens that it does not know.
  Stage stage{.kind = StageKind::kEmbedding, .layer = 0, .signatures = {}};
  const AxisSet split = grid.embedding_tp();
  for_each_sharding(grid.attention_tp() - split, [&](Layout tp) {
    const Layout rows = tp.with(grid.attention_dp() - split, kShard);
    stage.signatures.push_back({.needs = rows,
                                .gives = rows.with(split, kPartial),
                                .flops_per_row = static_cast<double>(model.hidden)});
  });
  return stage;
}

// Of one layer, for one row and one earlier token, on one of `width` ranks.
double cache_bytes(const ModelShape& model, int width) {
  if (model.layers.empty()) return 0;
  return model.cache_values_per_token * model.cache_bytes_per_value /
         static_cast<double>(model.layers.size()) / std::min(width, model.cache_split);
}

// Rows may lie in any way in which ranks of a replica have them: what follows is narrower to bring together.
Stage latents(const ModelShape& model, const RankGrid& grid, int layer) {
  Stage stage{.kind = StageKind::kLatents, .layer = layer, .signatures = {}};
  for_each_sharding(grid.attention_tp(), [&](Layout tp) {
    const Layout rows = tp.with(grid.attention_dp(), kShard);
    stage.signatures.push_back({.needs = rows,
                                .gives = rows,
                                .weight_bytes = model.latent_params * model.bytes_per_weight,
                                .flops_per_row = 2 * model.latent_params});
  });
  return stage;
}

Stage attention(const ModelShape& model, const RankGrid& grid, int layer) {
  const double params = model.attention_params - model.latent_params;
  const Layout rows = Layout().with(grid.attention_dp(), kShard);
  const AxisSet heads = grid.attention_heads(), context = grid.attention_cp();
  const int width = grid.size(heads);
  Stage stage{.kind = StageKind::kAttention, .layer = layer, .signatures = {}};
  // Every rank of a replica caches all of its tokens, so each needs all rows; of the rows that it attends
  // with it may give a share of its own only.
  const auto add = [&](Layout gives, double share) {
    stage.signatures.push_back({.needs = rows,
                                .gives = gives.with(heads, kPartial),
                                .weight_bytes = params * model.bytes_per_weight / width,
                                .flops_per_row = 2 * params / width * share,
                                .cache_bytes_per_token = cache_bytes(model, width) * share});
  };
  if (!context.empty()) add(rows.with(context, kShard), 1.0 / grid.size(context));
  add(rows, 1);
  return stage;
}

Stage dense(const ModelShape& model, const RankGrid& grid, AxisSet split, int layer) {
  Stage stage{.kind = StageKind::kDense, .layer = layer, .signatures = {}};
  const double params = 3.0 * model.hidden * model.dense_inter / grid.size(split);
  for_each_sharding(grid.all() - split, [&](Layout rows) {
    stage.signatures.push_back({.needs = rows,
                                .gives = rows.with(split, kPartial),
                                .weight_bytes = params * model.bytes_per_weight,
                                .flops_per_row = 2 * params});
  });
  return stage;
}

ExchangeSlots slots_of(ExchangeBackend backend) {
  if (backend == ExchangeBackend::kInProcessExpertMajor) return ExchangeSlots::kExpertMajor;
  return backend == ExchangeBackend::kInProcessTokenMajor ? ExchangeSlots::kTokenMajor
                                                          : ExchangeSlots::kExactCount;
}

Stage experts(const ModelShape& model, const RankGrid& grid, int layer, const StageOptions& options) {
  const AxisSet exchange = options.exchange == ExchangeBackend::kNone ? AxisSet() : grid.expert_parallel();
  const AxisSet owes = experts_owe(grid, options.exchange);
  const double expert_params = 3.0 * model.hidden * model.expert_inter / grid.size(grid.expert_tp());
  const double shared_params = 3.0 * model.hidden * model.shared_inter;
  const bool is_split = options.shared == SharedExpert::kSplit;
  const double in_copy = grid.size(grid.expert_parallel());
  Stage stage{.kind = StageKind::kExperts, .layer = layer, .signatures = {}};
  // Copies of the experts may share the rows, or each compute them all.
  for_each_sharding(grid.expert_copies(), [&](Layout copies) {
    const Layout rows = copies.with(exchange, kShard);
    stage.signatures.push_back(
        {.needs = rows,
         .gives = rows.with(owes, kPartial),
         .exchange = exchange,
         .weight_bytes =
             (is_split ? shared_params / grid.size(owes) : shared_params) * model.bytes_per_weight,
         .flops_per_row = 2 * (expert_params * model.top_k * grid.size(grid.expert_tp()) + shared_params) /
                          grid.size(owes),
         .shared = options.shared,
         .slots = slots_of(options.exchange),
         .expert_bytes = expert_params * model.bytes_per_weight,
         .owned_experts = model.num_experts / in_copy,
         .choice = model.num_experts > 0 ? static_cast<double>(model.top_k) / model.num_experts : 0});
  });
  return stage;
}

// A replica's rows on each of its ranks: what a forward keeps and the next takes up, whose rows have other
// homes.
Layout kept_rows(const RankGrid& grid) { return Layout().with(grid.attention_dp(), kShard); }

Stage tap(const RankGrid& grid, int layer) {
  const Layout rows = kept_rows(grid);
  return {.kind = StageKind::kTap, .layer = layer, .signatures = {{.needs = rows, .gives = rows}}};
}

// Its projection is whole on every rank.
Stage join(const ModelShape& model, const RankGrid& grid, int layer) {
  const Layout rows = kept_rows(grid);
  const double params = 2.0 * model.hidden * model.hidden;
  return {.kind = StageKind::kJoin,
          .layer = layer,
          .signatures = {{.needs = rows,
                          .gives = rows,
                          .weight_bytes = params * model.bytes_per_weight,
                          .flops_per_row = 2 * params}}};
}

Stage head(const ModelShape& model, const RankGrid& grid, HeadSplit split, int layer) {
  const AxisSet columns = head_axes(grid, split);
  const Layout rows = Layout().with(grid.all() - columns, kShard);
  const double params = static_cast<double>(model.hidden) * model.vocab / grid.size(columns);
  return {.kind = StageKind::kHead,
          .layer = layer,
          .signatures = {{.needs = rows,
                          .gives = rows.with(columns, kColumns),
                          .weight_bytes = params * model.bytes_per_weight,
                          .flops_per_row = 2 * params}}};
}

}  // namespace

std::string_view name_of(StageKind kind) {
  switch (kind) {
    case StageKind::kEmbedding:
      return "embedding";
    case StageKind::kAttention:
      return "attention";
    case StageKind::kDense:
      return "dense";
    case StageKind::kExperts:
      return "experts";
    case StageKind::kTap:
      return "tap";
    case StageKind::kJoin:
      return "join";
    case StageKind::kLatents:
      return "latents";
    case StageKind::kHead:
      return "head";
    case StageKind::kSampler:
      return "sampler";
  }
  return "?";
}

std::string_view name_of(ExchangeBackend backend) {
  switch (backend) {
    case ExchangeBackend::kNone:
      return "none";
    case ExchangeBackend::kInProcess:
      return "in_process";
    case ExchangeBackend::kInProcessExpertMajor:
      return "in_process_expert_major";
    case ExchangeBackend::kInProcessTokenMajor:
      return "in_process_token_major";
  }
  return "?";
}

std::string_view name_of(SharedExpert shared) {
  switch (shared) {
    case SharedExpert::kSplit:
      return "split";
    case SharedExpert::kAtHome:
      return "whole";
    case SharedExpert::kEveryRank:
      return "every_rank";
  }
  return "?";
}
std::string_view name_of(HeadSplit split) {
  switch (split) {
    case HeadSplit::kAllRanks:
      return "all_ranks";
    case HeadSplit::kAttentionTp:
      return "attention_tp";
    case HeadSplit::kOwnWidth:
      return "own_width";
  }
  return "?";
}

std::string_view name_of(Drafting drafting) { return drafting == Drafting::kOff ? "off" : "mtp"; }

AxisSet head_axes(const RankGrid& grid, HeadSplit split) {
  switch (split) {
    case HeadSplit::kAllRanks:
      return grid.all();
    case HeadSplit::kAttentionTp:
      return grid.attention_tp();
    case HeadSplit::kOwnWidth:
      return grid.head_tp();
  }
  return grid.all();
}

AxisSet experts_owe(const RankGrid& grid, ExchangeBackend backend) {
  const AxisSet copy = grid.expert_tp() | grid.expert_parallel();
  return backend == ExchangeBackend::kNone ? copy : grid.expert_tp();
}

const Signature* signature_of(const Stage& stage, const Layout* needs, const Layout* gives) {
  for (const Signature& signature : stage.signatures)
    if ((needs == nullptr || signature.needs == *needs) && (gives == nullptr || signature.gives == *gives))
      return &signature;
  return nullptr;
}

WeightSplits weight_splits(const RankGrid& grid, const StageOptions& options) {
  const bool splits_shared = options.shared == SharedExpert::kSplit;
  return {.attention = grid.attention_heads(),
          .dense = grid.dense_tp(),
          .expert_parallel = grid.expert_parallel(),
          .expert_tp = grid.expert_tp(),
          .shared = splits_shared ? experts_owe(grid, options.exchange) : AxisSet(),
          .head = head_axes(grid, options.head),
          .embedding = grid.embedding_tp()};
}

namespace {

// Adds the layers and what follows them; they are numbered from `first`.
void add_layers(std::vector<Stage>& chain, const ModelShape& model,
                const std::vector<ModelShape::Ffn>& layers, int first, const RankGrid& grid,
                const StageOptions& options) {
  const WeightSplits splits = weight_splits(grid, options);
  int layer = first;
  for (const ModelShape::Ffn ffn : layers) {
    if (model.latent_width > 0) chain.push_back(latents(model, grid, layer));
    chain.push_back(attention(model, grid, layer));
    chain.push_back(ffn == ModelShape::Ffn::kDense ? dense(model, grid, splits.dense, layer)
                                                   : experts(model, grid, layer, options));
    ++layer;
  }
  if (options.drafting == Drafting::kMtp) chain.push_back(tap(grid, layer));
  chain.push_back(head(model, grid, options.head, layer));
  const Layout home = Layout().with(grid.all(), kShard);
  chain.push_back(
      {.kind = StageKind::kSampler, .layer = layer, .signatures = {{.needs = home, .gives = home}}});
}

}  // namespace

std::vector<Stage> transformer_stages(const ModelShape& model, const RankGrid& grid,
                                      const StageOptions& options) {
  std::vector<Stage> chain = {embedding(model, grid)};
  add_layers(chain, model, model.layers, 0, grid, options);
  return chain;
}

std::vector<Stage> draft_stages(const ModelShape& model, const RankGrid& grid, const StageOptions& options) {
  const int first = static_cast<int>(model.layers.size());
  std::vector<Stage> chain = {embedding(model, grid), join(model, grid, first)};
  add_layers(chain, model, model.draft_layers, first, grid, options);
  return chain;
}

}  // namespace lockstep::planning
