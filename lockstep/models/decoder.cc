#include "lockstep/models/decoder.h"

#include "lockstep/models/blocks/mtp.h"

namespace lockstep::models {
namespace {

using planning::StageKind;
using enum planning::ModelShape::Ffn;

struct DecoderLayer {
  TensorView mixer_norm, ffn_norm;  // [hidden]
  std::unique_ptr<const Mixer> mixer;
  planning::ModelShape::Ffn ffn = kDense;
  FfnWeights dense;  // one of the two
  MoeWeights experts;
};

struct DecoderParts {
  int hidden = 0, vocab = 0, latent_width = 0;
  float norm_eps = 1e-6f;
  MoeConfig moe;
  WeightView embedding;   // [local vocab, hidden]
  Range known;            // the tokens that it has
  TensorView final_norm;  // [hidden]
  WeightView head;        // [local vocab, hidden]
  std::vector<DecoderLayer> layers;
  std::optional<MtpWeights> mtp;  // what drafts, whose layer is the last of `layers`
  std::shared_ptr<const PlacedWeights>
      placed;                                  // what the views lie in, where it is not the checkpoint's file
  std::shared_ptr<const WeightMemory> memory;  // of weights that are not where the file is mapped
};

class Decoder final : public Model {
 public:
  explicit Decoder(DecoderParts parts) : parts_(std::move(parts)) {}

  // What enter() has carried over an edge is the boundary's; the workspace below it is free again.
  TensorView forward(const Batch& batch, const ForwardContext& context) const override {
    collectives::Boundary& boundary = context.boundary;
    context.workspace.reset();
    boundary.begin(batch.plan);
    TensorView x = embedded(batch, context);
    const int end = static_cast<int>(parts_.layers.size()) - (parts_.mtp ? 1 : 0);
    for (int at = 0; at < end; ++at) x = run_layer(at, x, batch, context);
    return finish(end, x, parts_.final_norm, context);
  }

  TensorView draft(const Batch& batch, const ForwardContext& context) const override {
    LOCKSTEP_CHECK(parts_.mtp.has_value(), "step {} drafts, and no MTP module was loaded", batch.plan.step);
    context.workspace.reset();
    context.boundary.begin(batch.plan);
    const MtpWeights& mtp = *parts_.mtp;
    const int layer = static_cast<int>(parts_.layers.size()) - 1;
    const auto rows = enter({StageKind::kJoin, layer}, embedded(batch, context), mtp.embedding_norm, context);
    const TensorView x = run_mtp_join(mtp, parts_.norm_eps, rows.x, batch.kept_rows, context);
    return finish(layer + 1, run_layer(layer, x, batch, context), mtp.final_norm, context);
  }

 private:
  TensorView embedded(const Batch& batch, const ForwardContext& context) const {
    const TensorView x = context.workspace.take({context.boundary.num_rows(), parts_.hidden});
    embed(context.boundary.held(batch.token_ids), x, context);
    return x;
  }

  TensorView run_layer(int at, const TensorView& x, const Batch& batch, const ForwardContext& context) const {
    const DecoderLayer& layer = parts_.layers[static_cast<size_t>(at)];
    if (parts_.latent_width == 0) {
      const auto rows =
          enter({StageKind::kAttention, at}, x, layer.mixer_norm, context, layer.mixer->readers());
      return feed_forward(at, mix(layer, rows, batch, context), context);
    }
    const auto alone = enter({StageKind::kLatents, at}, x, layer.mixer_norm, context, layer.mixer->readers());
    const TensorView latents = layer.mixer->latents(alone.x, context);
    // Where nothing has to be brought together the rows stay in the workspace, which is not given back here.
    const auto rows = context.boundary.enter({StageKind::kAttention, at}, latents, {});
    return feed_forward(at, mix(layer, rows, batch, context), context);
  }

  // From the last layer to the logits; `end` is the number of the stages behind it.
  TensorView finish(int end, TensorView x, const TensorView& norm, const ForwardContext& context) const {
    if (parts_.mtp) {
      x = enter({StageKind::kTap, end}, x, norm, context).x;
      keep_rows(x, context);
    }
    const auto rows = enter({StageKind::kHead, end}, x, norm, context);
    const TensorView logits = context.workspace.take({rows.x.rows(), parts_.head.rows()});
    context.kernels.linear({.x = rows.x, .w = parts_.head, .out = logits});
    return context.boundary.enter_sampler(logits, parts_.vocab);
  }

  // Zeros for tokens that another rank knows: the plan sums.
  void embed(std::vector<int32_t> ids, const TensorView& x, const ForwardContext& context) const {
    const Range& known = parts_.known;
    if (known.size() == parts_.vocab)
      return context.kernels.embed({.token_ids = ids, .table = parts_.embedding, .out = x});
    std::vector<int64_t> unknown;
    for (size_t row = 0; row < ids.size(); ++row) {
      const bool is_known = ids[row] >= known.begin && ids[row] < known.end;
      if (!is_known) unknown.push_back(static_cast<int64_t>(row));
      ids[row] = is_known ? static_cast<int32_t>(ids[row] - known.begin) : 0;
    }
    if (known.size() > 0) context.kernels.embed({.token_ids = ids, .table = parts_.embedding, .out = x});
    for (const int64_t row : unknown)
      context.kernels.memory().zero(x.as<float>() + row * x.stride[0],
                                    static_cast<size_t>(x.cols()) * sizeof(float));
  }

  static TensorView mix(const DecoderLayer& layer, const collectives::Rows& rows, const Batch& batch,
                        const ForwardContext& context) {
    Batch mine = batch;
    mine.given = {rows.gives.first_row, rows.gives.first_row + rows.gives.num_rows};
    const TensorView y = layer.mixer->run(rows.x, mine, context);
    return y.rows() == mine.given.size() ? y : y.row_range(mine.given.begin, mine.given.size());
  }

  collectives::Rows enter(planning::StageRef stage, const TensorView& given, const TensorView& norm,
                          const ForwardContext& context,
                          kernels::Readers readers = kernels::Readers::kAny) const {
    const auto rows = context.boundary.enter(stage, given, {norm, parts_.norm_eps, readers});
    context.workspace.reset();
    return rows;
  }

  TensorView feed_forward(int at, const TensorView& x, const ForwardContext& context) const {
    const DecoderLayer& layer = parts_.layers[at];
    if (layer.ffn == kDense)
      return run_ffn(layer.dense, enter({StageKind::kDense, at}, x, layer.ffn_norm, context).x, context);
    return run_moe(parts_.moe, layer.experts, enter({StageKind::kExperts, at}, x, layer.ffn_norm, context),
                   context);
  }

  const DecoderParts parts_;
};

DecoderLayer read_layer(WeightReader& reader, const std::string& prefix, const DecoderConfig& config,
                        const Shards& shards, int at, planning::ModelShape::Ffn ffn,
                        const ReadMixer& read_mixer) {
  DecoderLayer layer;
  layer.mixer_norm = reader.norm(prefix + "input_layernorm.weight", config.hidden, config.norm_form);
  layer.ffn_norm = reader.norm(prefix + "post_attention_layernorm.weight", config.hidden, config.norm_form);
  layer.mixer = read_mixer(reader, prefix, at);
  layer.ffn = ffn;
  if (layer.ffn == kExperts) {
    layer.experts = read_moe(reader, prefix + config.moe.names.block, config.moe, shards);
  } else {
    layer.dense = read_ffn(reader, prefix + "mlp.", config.hidden, config.dense_width, shards.dense);
  }
  return layer;
}

// What published checkpoints hold beside the layers that run. prefix: "model."
std::vector<KnownTensors> known_tensors(const DecoderConfig& config, const std::string& prefix,
                                        planning::Drafting drafting) {
  std::vector<KnownTensors> known;
  for (int at = config.num_layers; at < config.num_layers + config.num_mtp_layers; ++at) {
    const std::string layer = fmt::format("{}layers.{}.", prefix, at);
    if (drafting == planning::Drafting::kOff || at > config.num_layers) {
      known.push_back({layer, "drafting"});
    } else {
      for (const char* copy : {"embed_tokens.", "shared_head.head."})
        known.push_back({layer + copy, "drafting: the model's own are used"});
    }
  }
  if (config.head == DecoderConfig::Head::kTiedToEmbedding)
    known.push_back({"lm_head.", "a head that config.json ties to the embedding"});
  return known;
}

}  // namespace

TensorView Mixer::latents(const TensorView& x, const ForwardContext& /*context*/) const {
  throw Fatal(fmt::format("{} rows for a mixer that makes nothing of a row alone", x.rows()));
}

Result<std::unique_ptr<Model>> load_decoder(const DecoderConfig& config, const WeightSource& source,
                                            const Shards& shards, const ReadMixer& read_mixer) {
  WeightReader reader(source, config.quantization, *shards.memory);
  DecoderParts parts{.hidden = config.hidden,
                     .vocab = config.vocab,
                     .latent_width = config.latent_width,
                     .norm_eps = config.norm_eps,
                     .moe = config.moe};
  const std::string prefix =
      reader.has("model.language_model.embed_tokens.weight") ? "model.language_model." : "model.";
  const std::string embedding = prefix + "embed_tokens.weight";
  parts.known = shards.embedding.of(config.vocab);
  parts.embedding = reader.weight_rows(embedding, config.vocab, config.hidden, parts.known);
  parts.final_norm = reader.norm(prefix + "norm.weight", config.hidden, config.norm_form);
  const std::string head = config.head == DecoderConfig::Head::kOwn ? "lm_head.weight" : embedding;
  parts.head = reader.weight_rows(head, config.vocab, config.hidden, shards.head.of(config.vocab));
  for (int at = 0; at < config.num_layers; ++at)
    parts.layers.push_back(read_layer(reader, fmt::format("{}layers.{}.", prefix, at), config, shards, at,
                                      config.layers[static_cast<size_t>(at)], read_mixer));
  if (shards.drafting == planning::Drafting::kMtp) {
    const std::string module = fmt::format("{}layers.{}.", prefix, config.num_layers);
    parts.mtp = read_mtp(reader, module, config.hidden, config.norm_form);
    parts.layers.push_back(
        read_layer(reader, module, config, shards, config.num_layers, config.mtp_ffn, read_mixer));
  }
  if (const Status status = reader.finish(known_tensors(config, prefix, shards.drafting)); !status)
    return status.error();
  parts.memory = reader.memory();
  parts.placed = reader.placed();
  return std::unique_ptr<Model>(std::make_unique<Decoder>(std::move(parts)));
}

}  // namespace lockstep::models
