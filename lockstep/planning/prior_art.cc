#include "lockstep/planning/prior_art.h"

#include <algorithm>

namespace lockstep::planning {
namespace {

constexpr double kSame = 1 + 1e-9;  // sums in another order

bool communicates(const Step& step) {
  switch (step.kind) {
    case StepKind::kDispatch:
    case StepKind::kCombine:
    case StepKind::kFusedCombineAdd:
    case StepKind::kSlice:
      return false;
    default:
      return !step.over.empty();
  }
}

// The edges into the layer's FFN and into what follows it.
SpentByLayers spent_by(const Plans& plans, Regime regime, int layer, const Machine& machine) {
  SpentByLayers spent{.first = layer, .last = layer};
  const auto is_ffn = [](StageKind kind) { return kind == StageKind::kDense || kind == StageKind::kExperts; };
  for (const Edge& edge : plans.of(regime).edges) {
    const bool into_ffn = edge.to.layer == layer && edge.from.kind == StageKind::kAttention;
    const bool out_of_ffn = edge.from.layer == layer && is_ffn(edge.from.kind) && edge.to.layer == layer + 1;
    // Rows that come together as latents, behind what the layer before gave.
    const bool of_latents = edge.from.layer == layer + 1 && edge.from.kind == StageKind::kLatents;
    if (!into_ffn && !out_of_ffn && !of_latents) continue;
    const Load load = load_on(edge.from.kind, plans.load_of(regime));
    for (const Step& step : edge.steps) {
      if (!communicates(step)) continue;
      spent.bytes += wire_bytes(step, plans.grid, machine, load);
      spent.us += estimate(step, plans.grid, machine, load).us;
      ++spent.collectives;
    }
  }
  return spent;
}

bool spend_the_same(const SpentByLayers& a, const SpentByLayers& b) {
  return a.ffn == b.ffn && a.bytes == b.bytes && a.us == b.us && a.prior_bytes == b.prior_bytes;
}

}  // namespace

std::optional<PriorArtLayer> prior_art_layer(const GridShape& grid, ExchangeBackend exchange,
                                             ModelShape::Ffn ffn, Regime regime) {
  const bool exchanges = exchange != ExchangeBackend::kNone;
  const bool is_experts = ffn == ModelShape::Ffn::kExperts;
  if (grid.attn_cp > 1 || grid.moe_dp > 1) return std::nullopt;
  if (grid.dense_tp != 1 && grid.dense_tp != grid.num_ranks) return std::nullopt;
  if (exchanges && grid.expert_tp > 1) return std::nullopt;
  // SCATTERED where rows are exchanged or a dense layer is whole, else FULL.
  const bool scattered = is_experts ? exchanges : grid.dense_tp == 1;
  return PriorArtLayer{.ranks = grid.num_ranks,
                       .replicas = grid.num_ranks / grid.attention_tp,
                       .experts_parallel = grid.num_ranks / grid.expert_tp,
                       .mlp = scattered ? PriorArtLayer::Mlp::kScattered : PriorArtLayer::Mlp::kFull,
                       .counts = regime == Regime::kPrefill ? PriorArtLayer::Counts::kAsTheyAre
                                                            : PriorArtLayer::Counts::kPadded};
}

double prior_art_bytes(const PriorArtLayer& layer, double rows, double row_bytes) {
  const double w = layer.ranks, d = layer.replicas, a = w / d;
  const double scatter = (a - 1) / a * rows, gather = (a - 1) / a * rows;  // over attention-TP
  if (layer.mlp == PriorArtLayer::Mlp::kScattered) return (scatter + gather) * row_bytes;
  if (d == 1) return 2 * (2 * (w - 1) / w * rows) * row_bytes;  // an all-reduce on either side
  if (layer.counts == PriorArtLayer::Counts::kAsTheyAre) {
    const double all_reduce = 2 * (w - 1) / w * d * rows;
    const bool scatters_back = layer.experts_parallel == layer.replicas && layer.ranks == layer.replicas;
    return (all_reduce + (scatters_back ? all_reduce / 2 : all_reduce)) * row_bytes;
  }
  const double to_all = scatter + (w - 1) * rows / a;   // reduce-scatter, all-gather over all ranks
  const double back = (w - 1) / w * d * rows + gather;  // reduce-scatter over all ranks, all-gather
  return (to_all + back) * row_bytes;
}

int prior_art_collectives(const PriorArtLayer& layer) {
  const bool has_tp = layer.ranks > layer.replicas;
  if (layer.mlp == PriorArtLayer::Mlp::kScattered) return has_tp ? 2 : 0;
  if (layer.replicas == 1 || layer.counts == PriorArtLayer::Counts::kAsTheyAre)
    return layer.ranks > 1 ? 2 : 0;
  return has_tp ? 4 : 2;
}

std::vector<SpentByLayers> spent_beside_prior_art(const Plans& plans, ExchangeBackend exchange,
                                                  const ModelShape& model, const Machine& machine,
                                                  Regime regime) {
  std::vector<SpentByLayers> all;
  const int ranks = plans.grid.num_ranks();
  if (ranks == 1 || (machine.ranks_per_host > 0 && machine.ranks_per_host < ranks)) return all;
  // A draft's layers have other numbers, and no counterpart there.
  const auto is_first = [](const Stage& stage) {
    return stage.kind == StageKind::kAttention && stage.layer == 0;
  };
  if (std::none_of(plans.chain.begin(), plans.chain.end(), is_first)) return all;
  const double row_bytes = 1.0 * model.hidden * machine.bytes_per_value;
  for (size_t layer = 0; layer + 1 < model.layers.size(); ++layer) {
    const auto prior = prior_art_layer(plans.grid.shape(), exchange, model.layers[layer], regime);
    if (!prior) return {};
    SpentByLayers spent = spent_by(plans, regime, static_cast<int>(layer), machine);
    spent.ffn = model.layers[layer];
    spent.prior_bytes = prior_art_bytes(*prior, plans.load_of(regime).rows_per_replica, row_bytes);
    spent.prior_collectives = prior_art_collectives(*prior);
    spent.prior_us =
        spent.prior_collectives * machine.collective_us + spent.prior_bytes / (machine.link_gbs * 1e9) * 1e6;
    if (!all.empty() && spend_the_same(all.back(), spent))
      all.back().last = spent.last;
    else
      all.push_back(spent);
  }
  return all;
}

std::string why_more_bytes(const SpentByLayers& spent) {
  if (spent.bytes <= spent.prior_bytes * kSame) return "";
  return fmt::format("{} collectives and {:.1f} us instead of {} and {:.1f}", spent.collectives, spent.us,
                     spent.prior_collectives, spent.prior_us);
}

std::string to_text(const std::vector<SpentByLayers>& spent) {
  std::string text;
  for (const SpentByLayers& one : spent) {
    const std::string why = why_more_bytes(one);
    const std::string layers = one.first == one.last ? fmt::format("layer {}", one.first)
                                                     : fmt::format("layers {} to {}", one.first, one.last);
    text += fmt::format("  {:<18} {:<8} {:>12.0f} B in {} collectives, SGLang's tables {:>12.0f} B in {}{}\n",
                        layers, one.ffn == ModelShape::Ffn::kDense ? "dense" : "experts", one.bytes,
                        one.collectives, one.prior_bytes, one.prior_collectives,
                        why.empty() ? "" : "; the bytes buy time: " + why);
  }
  return text;
}

Json to_json(const std::vector<SpentByLayers>& spent) {
  Json list = Json::array();
  for (const SpentByLayers& one : spent)
    list.push_back({{"first_layer", one.first},
                    {"last_layer", one.last},
                    {"ffn", one.ffn == ModelShape::Ffn::kDense ? "dense" : "experts"},
                    {"bytes", one.bytes},
                    {"us", one.us},
                    {"collectives", one.collectives},
                    {"prior_art_bytes", one.prior_bytes},
                    {"prior_art_us", one.prior_us},
                    {"prior_art_collectives", one.prior_collectives},
                    {"why_more_bytes", why_more_bytes(one)}});
  return list;
}

}  // namespace lockstep::planning
