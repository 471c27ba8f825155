#pragma once
// Bytes that SGLang's decision tables put on the wire for one layer without context parallelism, out of one
// rank, by its own way of choosing (published sources up to September 2026: scatter modes of the attention
// and the MLP). With counts padded to the longest (decode) its gather over replicas is a reduce-scatter over
// attention-TP and an all-gather over all ranks; with counts as they are (prefill) an all-reduce of a buffer
// of all rows, and so is the way back unless experts, replicas and ranks are equally many. Dispatch and
// combine are left out: both sides send the same rows.
#include "lockstep/planning/configuration.h"

namespace lockstep::planning::test {

struct PriorArtLayer {
  int ranks = 1, replicas = 1;  // W, D
  int experts_parallel = 1;     // E
  enum class Mlp { kScattered, kFull } mlp = Mlp::kFull;
  enum class Counts { kPadded, kAsTheyAre } counts = Counts::kPadded;
};

// It overwrites --ep-size with all ranks where rows are exchanged, and knows two dense widths.
inline bool is_prior_art_configuration(const ParallelFlags& flags) {
  const int ranks = flags.tp_size.value_or(1), dense = flags.moe_dense_tp_size.value_or(ranks);
  const bool exchanges = flags.moe_a2a_backend.value_or("none") != "none";
  return (dense == 1 || dense == ranks) && (!exchanges || flags.ep_size.value_or(1) == ranks);
}

// SCATTERED where rows are exchanged or a dense layer is whole, else FULL. It has no other dense widths.
inline PriorArtLayer prior_art_layer(const Configuration& solved, ModelShape::Ffn ffn, Regime regime) {
  const GridShape& grid = solved.grid;
  const bool exchanges = solved.stages.exchange != ExchangeBackend::kNone;
  const bool scattered = ffn == ModelShape::Ffn::kExperts ? exchanges : grid.dense_tp == 1;
  return {.ranks = grid.num_ranks,
          .replicas = grid.num_ranks / grid.attention_tp,
          .experts_parallel = grid.num_ranks / grid.expert_tp,
          .mlp = scattered ? PriorArtLayer::Mlp::kScattered : PriorArtLayer::Mlp::kFull,
          .counts = regime == Regime::kPrefill ? PriorArtLayer::Counts::kAsTheyAre
                                               : PriorArtLayer::Counts::kPadded};
}

// `rows` of every replica, `row` bytes each.
inline double prior_art_bytes(const PriorArtLayer& layer, double rows, double row) {
  const double w = layer.ranks, d = layer.replicas, a = w / d;
  const double scatter = (a - 1) / a * rows, gather = (a - 1) / a * rows;  // over attention-TP
  if (layer.mlp == PriorArtLayer::Mlp::kScattered) return (scatter + gather) * row;
  if (d == 1) return 2 * (2 * (w - 1) / w * rows) * row;  // an all-reduce on either side
  if (layer.counts == PriorArtLayer::Counts::kAsTheyAre) {
    const double all_reduce = 2 * (w - 1) / w * d * rows;
    const bool scatters_back = layer.experts_parallel == layer.replicas && layer.ranks == layer.replicas;
    return (all_reduce + (scatters_back ? all_reduce / 2 : all_reduce)) * row;
  }
  const double to_all = scatter + (w - 1) * rows / a;   // reduce-scatter, all-gather over all ranks
  const double back = (w - 1) / w * d * rows + gather;  // reduce-scatter over all ranks, all-gather
  return (to_all + back) * row;
}

// The collectives of the same, which each cost their latency.
inline int prior_art_collectives(const PriorArtLayer& layer) {
  const bool has_tp = layer.ranks > layer.replicas;
  if (layer.mlp == PriorArtLayer::Mlp::kScattered) return has_tp ? 2 : 0;
  if (layer.replicas == 1 || layer.counts == PriorArtLayer::Counts::kAsTheyAre)
    return layer.ranks > 1 ? 2 : 0;
  return has_tp ? 4 : 2;
}

// What a plan puts on the wire for layer `layer`: the edges into its FFN and into what follows.
struct Spent {
  double bytes = 0, us = 0;  // of what communicates
};
inline Spent planned(const Plans& plans, Regime regime, int layer, const Machine& machine) {
  Spent spent;
  for (const Edge& edge : plans.of(regime).edges) {
    const bool into_ffn = edge.to.layer == layer && edge.from.kind == StageKind::kAttention;
    const bool out_of_ffn = edge.from.layer == layer && edge.to.kind == StageKind::kAttention &&
                            edge.from.kind != StageKind::kEmbedding;
    if (!into_ffn && !out_of_ffn) continue;
    for (const Step& step : edge.steps)
      if (step.kind != StepKind::kDispatch && step.kind != StepKind::kCombine &&
          step.kind != StepKind::kFusedCombineAdd && !step.over.empty()) {
        spent.bytes += wire_bytes(step, plans.grid, machine, plans.load_of(regime));
        spent.us +=
            step.kind == StepKind::kSlice ? 0 : estimate(step, plans.grid, machine, plans.load_of(regime)).us;
      }
  }
  return spent;
}

}  // namespace lockstep::planning::test
