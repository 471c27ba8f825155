#include "lockstep/models/decoder.h"

namespace lockstep::models {
namespace {

using planning::StageKind;

class Decoder final : public Model {
 public:
  explicit Decoder(DecoderParts parts) : parts_(std::move(parts)) {}

  // What enter() has carried over an edge is the boundary's; the workspace below it is free again.
  TensorView forward(const Batch& batch, const ForwardContext& context) const override {
    collectives::Boundary& boundary = context.boundary;
    context.workspace.reset();
    boundary.begin(batch.plan);
    const std::vector<int32_t> ids = boundary.held(batch.token_ids);
    TensorView x = context.workspace.take({boundary.num_rows(), parts_.hidden});
    context.kernels.embed({.token_ids = ids, .table = parts_.embedding, .out = x});
    for (int at = 0; at < static_cast<int>(parts_.layers.size()); ++at) {
      const DecoderLayer& layer = parts_.layers[at];
      const auto rows = enter({StageKind::kAttention, at}, x, layer.mixer_norm, context);
      x = feed_forward(at, layer.mixer->run(rows.x, batch, context), context);
    }
    const auto rows =
        enter({StageKind::kHead, static_cast<int>(parts_.layers.size())}, x, parts_.final_norm, context);
    const TensorView logits = context.workspace.take({rows.x.rows(), parts_.head.rows()});
    context.kernels.linear({.x = rows.x, .w = parts_.head, .out = logits});
    return boundary.enter_sampler(logits, parts_.vocab);
  }

 private:
  collectives::Rows enter(planning::StageRef stage, const TensorView& given, const TensorView& norm,
                          const ForwardContext& context) const {
    const auto rows = context.boundary.enter(stage, given, {norm, parts_.norm_eps});
    context.workspace.reset();
    return rows;
  }

  TensorView feed_forward(int at, const TensorView& x, const ForwardContext& context) const {
    const DecoderLayer& layer = parts_.layers[at];
    if (layer.ffn == planning::ModelShape::Ffn::kDense)
      return run_ffn(layer.dense, enter({StageKind::kDense, at}, x, layer.ffn_norm, context).x, context);
    return run_moe(parts_.moe, layer.experts, enter({StageKind::kExperts, at}, x, layer.ffn_norm, context),
                   context);
  }

  const DecoderParts parts_;
};

}  // namespace

std::unique_ptr<Model> make_decoder(DecoderParts parts) {
  return std::make_unique<Decoder>(std::move(parts));
}

}  // namespace lockstep::models
