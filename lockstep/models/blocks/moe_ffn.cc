#include "lockstep/models/blocks/moe_ffn.h"

namespace lockstep::models {
namespace {

collectives::Routing route(const MoeConfig& config, const MoeWeights& weights, const collectives::Rows& x,
                           const ForwardContext& context) {
  const int64_t rows = x.x.rows();
  const TensorView logits = context.workspace.take({rows, config.num_experts});
  const collectives::Routing routing{.expert_idx = context.workspace.take(DType::kI32, {rows, config.top_k}),
                                     .weight = context.workspace.take({rows, config.top_k})};
  context.kernels.linear({.x = x.x, .w = weights.router, .out = logits});
  context.kernels.route({.logits = logits,
                         .bias = weights.router_bias,
                         .valid = x.valid,
                         .top_k = config.top_k,
                         .num_groups = config.num_groups,
                         .top_groups = config.top_groups,
                         .scoring = config.scoring,
                         .weights = config.weights,
                         .scale = config.scale,
                         .expert_idx = routing.expert_idx,
                         .weight = routing.weight});
  return routing;
}

TensorView run_experts(const MoeWeights& weights, const collectives::ExpertRows& rows,
                       const ForwardContext& context) {
  const int64_t slots = rows.x.rows();
  const int64_t width = weights.gate.empty() ? 0 : weights.gate.front().rows();
  const TensorView y = context.workspace.take({slots, rows.x.cols()});
  context.kernels.grouped_ffn({.x = rows.x,
                               .expert_start = rows.expert_start,
                               .gate = weights.gate,
                               .up = weights.up,
                               .down = weights.down,
                               .scratch = context.workspace.take({slots, 2 * width}),
                               .y = y});
  return y;
}

}  // namespace

TensorView run_moe(const MoeConfig& config, const MoeWeights& weights, const collectives::Rows& x,
                   const ForwardContext& context) {
  const collectives::Routing routing = route(config, weights, x, context);
  const collectives::ExpertRows rows =
      context.boundary.dispatch(x, routing, weights.first_expert, static_cast<int64_t>(weights.gate.size()));
  const TensorView y = run_experts(weights, rows, context);
  const TensorView sum = context.boundary.combine(y, routing);
  if (config.shared_width > 0) context.kernels.add({.x = sum, .y = run_ffn(weights.shared, x.x, context)});
  return sum;
}

}  // namespace lockstep::models
