#include "lockstep/planning/stage.h"

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
  // The whole table on every rank, and every rank knows all token ids: any share of a replica's rows can be
  // looked up without communication.
  Stage stage{.kind = StageKind::kEmbedding, .layer = 0, .signatures = {}};
  for_each_sharding(grid.attention_tp(), [&](Layout tp) {
    const Layout gives = tp.with(grid.attention_dp(), kShard);
    stage.signatures.push_back(
        {.needs = gives, .gives = gives, .flops_per_row = static_cast<double>(model.hidden)});
  });
  return stage;
}

Stage attention(const ModelShape& model, const RankGrid& grid, AxisSet split, int layer) {
  const Layout rows = Layout().with(grid.attention_dp(), kShard);
  const int width = grid.size(split);
  return {.kind = StageKind::kAttention,
          .layer = layer,
          .signatures = {{.needs = rows,
                          .gives = rows.with(split, kPartial),
                          .weight_bytes = model.attention_params * model.bytes_per_weight / width,
                          .flops_per_row = 2 * model.attention_params / width}}};
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

// Every rank that holds a part of the shared expert adds what it and its experts, or its slices of them,
// gave.
Stage experts(const ModelShape& model, const RankGrid& grid, AxisSet owes, int layer) {
  const AxisSet exchange = grid.all() - owes;
  const double expert_params = 3.0 * model.hidden * model.expert_inter;
  const double shared_params = 3.0 * model.hidden * model.shared_inter / grid.size(owes);
  const Layout rows = Layout().with(exchange, kShard);
  return {
      .kind = StageKind::kExperts,
      .layer = layer,
      .signatures = {{.needs = rows,
                      .gives = rows.with(owes, kPartial),
                      .exchange = exchange,
                      .weight_bytes = (expert_params * model.num_experts / grid.num_ranks() + shared_params) *
                                      model.bytes_per_weight,
                      .flops_per_row = 2 * (expert_params * model.top_k / grid.size(owes) + shared_params)}}};
}

Stage head(const ModelShape& model, const RankGrid& grid, AxisSet columns) {
  const Layout rows = Layout().with(grid.all() - columns, kShard);
  const double params = static_cast<double>(model.hidden) * model.vocab / grid.size(columns);
  return {.kind = StageKind::kHead,
          .layer = static_cast<int>(model.layers.size()),
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
    case StageKind::kHead:
      return "head";
    case StageKind::kSampler:
      return "sampler";
  }
  return "?";
}

const Signature* signature_of(const Stage& stage, const Layout* needs, const Layout* gives) {
  for (const Signature& signature : stage.signatures)
    if ((needs == nullptr || signature.needs == *needs) && (gives == nullptr || signature.gives == *gives))
      return &signature;
  return nullptr;
}

WeightSplits weight_splits(const RankGrid& grid, const StageOptions& options) {
  const bool exchanges = options.exchange != ExchangeBackend::kNone;
  return {.attention = grid.attention_tp(),
          .dense = grid.dense_tp(),
          .expert_parallel = grid.expert_parallel(),
          .expert_tp = grid.expert_tp(),
          .shared = exchanges ? grid.expert_tp() : grid.all(),
          .head = options.head == HeadSplit::kAllRanks ? grid.all() : grid.attention_tp()};
}

std::vector<Stage> transformer_stages(const ModelShape& model, const RankGrid& grid,
                                      const StageOptions& options) {
  const WeightSplits splits = weight_splits(grid, options);
  std::vector<Stage> chain = {embedding(model, grid)};
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    chain.push_back(attention(model, grid, splits.attention, layer));
    chain.push_back(model.layers[layer] == ModelShape::Ffn::kDense
                        ? dense(model, grid, splits.dense, layer)
                        : experts(model, grid, splits.shared, layer));
  }
  chain.push_back(head(model, grid, splits.head));
  const Layout home = Layout().with(grid.all(), kShard);
  chain.push_back({.kind = StageKind::kSampler,
                   .layer = chain.back().layer,
                   .signatures = {{.needs = home, .gives = home}}});
  return chain;
}

}  // namespace lockstep::planning
