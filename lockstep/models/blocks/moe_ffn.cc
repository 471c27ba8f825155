#include "lockstep/models/blocks/moe_ffn.h"

namespace lockstep::models {
namespace {

collectives::Routing route(const MoeConfig& config, const MoeWeights& weights, const collectives::Rows& x,
                           const ForwardContext& context) {
  const int64_t rows = x.x.rows();
  const TensorView logits = context.workspace.take({rows, config.num_experts});
  const collectives::Routing routing{.expert_idx = context.workspace.take(DType::kI32, {rows, config.top_k}),
                                     .weight = context.workspace.take({rows, config.top_k})};
  const bool for_choice = config.router_bias == MoeConfig::RouterBias::kForChoice;
  context.kernels.linear_route({.product = {.x = x.x,
                                            .w = weights.router,
                                            .out = logits,
                                            .bias = for_choice ? TensorView{} : weights.router_bias,
                                            .inputs = kernels::LinearArgs::Inputs::kWhole},
                                .route = {.logits = logits,
                                          .bias = for_choice ? weights.router_bias : TensorView{},
                                          .valid = x.valid,
                                          .top_k = config.top_k,
                                          .num_groups = config.num_groups,
                                          .top_groups = config.top_groups,
                                          .group_score = config.group_score,
                                          .scoring = config.scoring,
                                          .weights = config.weights,
                                          .scale = config.scale,
                                          .expert_idx = routing.expert_idx,
                                          .weight = routing.weight}});
  return routing;
}

// With room for what the rows' slots give.
kernels::GroupedFfnArgs experts_of(const MoeConfig& config, const MoeWeights& weights,
                                   const collectives::ExpertRows& rows, const ForwardContext& context) {
  const int64_t slots = rows.x.rows();
  const int64_t width = weights.gate.empty() ? 0 : weights.gate.front().rows();
  kernels::GroupedFfnArgs args{.x = rows.x,
                               .expert_start = rows.expert_start,
                               .gate = weights.gate,
                               .up = weights.up,
                               .down = weights.down,
                               .gate_bias = weights.gate_bias,
                               .up_bias = weights.up_bias,
                               .down_bias = weights.down_bias,
                               .gating = config.gating,
                               .scratch = context.workspace.take({slots, 2 * width})};
  args.y = context.workspace.take(context.kernels.type_of_expert_outputs(args), {slots, rows.x.cols()});
  return args;
}

TensorView run_experts(const MoeConfig& config, const MoeWeights& weights,
                       const collectives::ExpertRows& rows, const ForwardContext& context) {
  const kernels::GroupedFfnArgs experts = experts_of(config, weights, rows, context);
  context.kernels.grouped_ffn(experts);
  return experts.y;
}

kernels::Readers readers_of(const MoeWeights& weights) {
  const bool rounds = !weights.gate.empty() && weights.gate.front().is_bf16();
  return rounds ? kernels::Readers::kNextRounds : kernels::Readers::kAny;
}

// A share of the sum over the shards of its width.
TensorView run_shared_rows(const MoeWeights& weights, const TensorView& x, const ForwardContext& context) {
  const TensorView y = run_ffn(weights.shared, x, context);
  if (weights.shared_gate.empty()) return y;
  const TensorView gate = context.workspace.take({x.rows(), 1});
  context.kernels.linear({.x = x, .w = weights.shared_gate, .out = gate});
  context.kernels.sigmoid_mul({.x = y, .gate = gate});
  return y;
}

// [rows, hidden]: what this rank adds; zeros for the rows that another rank adds it for.
TensorView run_shared(const MoeWeights& weights, const collectives::Rows& x, const ForwardContext& context) {
  int64_t num_own = 0;
  for (const planning::Segment& rows : x.own) num_own += rows.num_rows;
  if (weights.shared_rows == MoeWeights::SharedRows::kAll || num_own == x.x.rows())
    return run_shared_rows(weights, x.x, context);
  const TensorView out = context.workspace.take({x.x.rows(), x.x.cols()});
  context.kernels.memory().zero(out.data, static_cast<size_t>(out.num_elements()) * sizeof(float));
  for (const planning::Segment& rows : x.own)
    context.kernels.add(
        {.x = out.row_range(rows.first_row, rows.num_rows),
         .y = run_shared_rows(weights, x.x.row_range(rows.first_row, rows.num_rows), context)});
  return out;
}

void read_one_by_one(WeightReader& reader, const std::string& prefix, const MoeConfig& config, Range local,
                     Shard shard, MoeWeights& weights) {
  for (int64_t expert = local.begin; expert < local.end; ++expert) {
    const FfnWeights one = read_ffn(reader, fmt::format("{}experts.{}.", prefix, expert), config.hidden,
                                    config.expert_width, shard, config.names.expert);
    weights.gate.push_back(one.gate);
    weights.up.push_back(one.up);
    weights.down.push_back(one.down);
  }
}

void read_together(WeightReader& reader, const std::string& prefix, const MoeConfig& config, Range local,
                   Shard shard, MoeWeights& weights) {
  const int64_t width = config.expert_width;
  const Range keep = shard.of(width);
  for (const WeightView& both :
       reader.weights(prefix + "experts.gate_up_proj", config.num_experts, 2 * width, config.hidden, local)) {
    weights.gate.push_back(reader.keep(both.row_range(keep.begin, keep.size())));
    weights.up.push_back(reader.keep(both.row_range(width + keep.begin, keep.size())));
  }
  for (const WeightView& down :
       reader.weights(prefix + "experts.down_proj", config.num_experts, config.hidden, width, local))
    weights.down.push_back(reader.keep(down.col_range(keep.begin, keep.size())));
}

// gpt-oss: rows of gate and up alternate. As plain numbers the matrices store inputs first, as codes outputs.
void read_interleaved_numbers(WeightReader& reader, const std::string& both, const std::string& down,
                              const MoeConfig& config, Range local, Range keep, MoeWeights& weights) {
  const int64_t width = config.expert_width, experts = config.num_experts, hidden = config.hidden;
  const Range inputs{0, hidden};
  const Every gate{2 * keep.begin, 2, keep.size()}, up{2 * keep.begin + 1, 2, keep.size()};
  weights.gate = reader.transposed(both, experts, hidden, 2 * width, local, inputs, gate);
  weights.up = reader.transposed(both, experts, hidden, 2 * width, local, inputs, up);
  weights.down = reader.transposed(down, experts, width, hidden, local, keep, {0, 1, hidden});
}

void read_interleaved_codes(WeightReader& reader, const std::string& both, const std::string& down,
                            const MoeConfig& config, Range local, Range keep, MoeWeights& weights) {
  const int64_t width = config.expert_width, experts = config.num_experts, hidden = config.hidden;
  for (const WeightView& rows : reader.weights(both, experts, 2 * width, hidden, local)) {
    weights.gate.push_back(reader.keep(rows.every_second_row(0).row_range(keep.begin, keep.size())));
    weights.up.push_back(reader.keep(rows.every_second_row(1).row_range(keep.begin, keep.size())));
  }
  for (const WeightView& rows : reader.weights(down, experts, hidden, width, local))
    weights.down.push_back(reader.keep(rows.col_range(keep.begin, keep.size())));
}

void read_interleaved(WeightReader& reader, const std::string& prefix, const MoeConfig& config, Range local,
                      Shard shard, MoeWeights& weights) {
  const Range keep = shard.of(config.expert_width);
  const std::string both = prefix + "experts.gate_up_proj", down = prefix + "experts.down_proj";
  const auto read_matrices = reader.has(both + "_blocks") ? read_interleaved_codes : read_interleaved_numbers;
  read_matrices(reader, both, down, config, local, keep, weights);
  const Every gate{2 * keep.begin, 2, keep.size()}, up{2 * keep.begin + 1, 2, keep.size()};
  const int64_t experts = config.num_experts;
  weights.gate_bias = reader.vectors(both + "_bias", experts, 2 * config.expert_width, local, gate);
  weights.up_bias = reader.vectors(both + "_bias", experts, 2 * config.expert_width, local, up);
  weights.down_bias = reader.vectors(down + "_bias", experts, config.hidden, local, {0, 1, config.hidden});
  // Of the shards of an expert's width one alone owes it.
  if (shard.index != 0) weights.down_bias.assign(weights.down_bias.size(), {});
}

TensorView read_router_bias(WeightReader& reader, const std::string& prefix, const MoeConfig& config) {
  switch (config.router_bias) {
    case MoeConfig::RouterBias::kNone:
      return {};
    case MoeConfig::RouterBias::kForChoice:
      return reader.f32_vector(prefix + config.names.router + "e_score_correction_bias", config.num_experts);
    case MoeConfig::RouterBias::kOfLogits:
      return reader.vector(prefix + config.names.router + "bias", config.num_experts);
  }
  return {};
}

}  // namespace

void read_expert_groups(ConfigReader& reader, MoeConfig& moe) {
  moe.num_groups = static_cast<int>(reader.integer_or("n_group", 1, 1, moe.num_experts));
  moe.top_groups = static_cast<int>(reader.integer_or("topk_group", 1, 1, moe.num_groups));
  if (moe.num_experts % moe.num_groups != 0)
    reader.refuse("n_group",
                  fmt::format("{} does not divide n_routed_experts {}", moe.num_groups, moe.num_experts));
  if (moe.top_k > moe.num_experts / moe.num_groups * moe.top_groups)
    reader.refuse("num_experts_per_tok",
                  fmt::format("{} is more than the {} chosen groups hold", moe.top_k, moe.top_groups));
}

MoeConfig read_sigmoid_moe(ConfigReader& reader, int hidden, const SigmoidMoeDefaults& defaults) {
  constexpr int64_t kMost = 1 << 24;
  MoeConfig moe{.hidden = hidden,
                .scoring = kernels::Scoring::kSigmoid,
                .router_bias = MoeConfig::RouterBias::kForChoice};
  reader.require("scoring_func", reader.text_or("scoring_func", "sigmoid"), {"sigmoid"});
  reader.require("topk_method", reader.text_or("topk_method", "noaux_tc"), {"noaux_tc"});
  moe.num_experts = static_cast<int>(reader.integer("n_routed_experts", 1, 1 << 16));
  moe.top_k = static_cast<int>(reader.integer("num_experts_per_tok", 1, moe.num_experts));
  moe.expert_width = static_cast<int>(reader.integer("moe_intermediate_size", 1, kMost));
  moe.shared_width = moe.expert_width * static_cast<int>(reader.integer_or(
                                            "n_shared_experts", defaults.num_shared_experts, 0, 64));
  read_expert_groups(reader, moe);
  moe.weights = reader.flag_or("norm_topk_prob", true) ? kernels::RouteArgs::Weights::kNormalised
                                                       : kernels::RouteArgs::Weights::kAsScored;
  moe.scale = static_cast<float>(reader.number_or("routed_scaling_factor", 1.0, 0, 1e6));
  return moe;
}

MoeConfig read_softmax_moe(ConfigReader& reader, int hidden) {
  MoeConfig moe{.hidden = hidden, .scoring = kernels::Scoring::kSoftmax};
  const char* count = reader.has("num_experts") ? "num_experts" : "num_local_experts";
  moe.num_experts = static_cast<int>(reader.integer(count, 1, 1 << 16));
  moe.top_k = static_cast<int>(reader.integer("num_experts_per_tok", 1, moe.num_experts));
  moe.expert_width = static_cast<int>(reader.integer("moe_intermediate_size", 1, 1 << 24));
  moe.weights = reader.flag_or("norm_topk_prob", false) ? kernels::RouteArgs::Weights::kNormalised
                                                        : kernels::RouteArgs::Weights::kAsScored;
  return moe;
}

MoeWeights read_moe(WeightReader& reader, const std::string& prefix, const MoeConfig& config,
                    const Shards& shards) {
  MoeWeights weights;
  weights.router = reader.matrix(prefix + config.names.router + "weight", config.num_experts, config.hidden);
  weights.router_bias = read_router_bias(reader, prefix, config);
  const Range local = shards.expert_parallel.of(config.num_experts);
  weights.first_expert = local.begin;
  const auto read_routed = config.layout == MoeConfig::Layout::kInterleaved      ? read_interleaved
                           : reader.has_weights(prefix + "experts.gate_up_proj") ? read_together
                                                                                 : read_one_by_one;
  read_routed(reader, prefix, config, local, shards.expert_tp, weights);
  weights.shared_rows =
      shards.shared.parts == 1 ? MoeWeights::SharedRows::kOwn : MoeWeights::SharedRows::kAll;
  if (config.shared_width > 0) {
    const bool is_gated = config.shared_expert == MoeConfig::SharedExpert::kGated;
    weights.shared = read_ffn(reader, prefix + (is_gated ? "shared_expert." : "shared_experts."),
                              config.hidden, config.shared_width, shards.shared);
    if (is_gated) weights.shared_gate = reader.matrix(prefix + "shared_expert_gate.weight", 1, config.hidden);
  }
  return weights;
}

TensorView run_moe(const MoeConfig& config, const MoeWeights& weights, const collectives::Rows& x,
                   const ForwardContext& context) {
  const collectives::Routing routing = route(config, weights, x, context);
  const int64_t routed = x.x.rows() * config.top_k;
  if (routed > 0 && routed <= context.kernels.most_routed() && context.boundary.keeps_rows()) {
    const TensorView shared = config.shared_width > 0 ? run_shared(weights, x, context) : TensorView();
    const auto room =
        context.boundary.room_for_experts(x, routing, static_cast<int64_t>(weights.gate.size()));
    const auto experts = experts_of(config, weights, room, context);
    return context.boundary.run_experts(x, routing, weights.first_expert, experts, shared,
                                        readers_of(weights));
  }
  const collectives::ExpertRows rows = context.boundary.dispatch(
      x, routing, weights.first_expert, static_cast<int64_t>(weights.gate.size()), readers_of(weights));
  const TensorView y = run_experts(config, weights, rows, context);
  const TensorView shared = config.shared_width > 0 ? run_shared(weights, x, context) : TensorView();
  return context.boundary.combine(y, routing, shared);
}

}  // namespace lockstep::models
