#include "lockstep/models/blocks/gqa.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::models {
namespace {

// The first head_dim values of every `width`, [rows, heads, head_dim].
TensorView by_head(const TensorView& x, int64_t head_dim, int64_t width) {
  TensorView cube = view_of(x.data, x.dtype, {x.rows(), x.cols() / width, head_dim});
  cube.stride = {x.stride[0], width, 1};
  return cube;
}

// The same as a matrix of one row a head; the rows of x follow each other without a gap.
TensorView each_head(const TensorView& x, int64_t offset, int64_t head_dim, int64_t width) {
  TensorView each = view_of(x.as<float>() + offset, {x.num_elements() / width, head_dim});
  each.stride[0] = width;
  return each;
}

kernels::LinearArgs projection(const TensorView& x, const WeightView& w, const TensorView& bias,
                               const ForwardContext& context) {
  return {.x = x, .w = w, .out = context.workspace.take({x.rows(), w.rows()}), .bias = bias};
}

// Attention with a window or sinks takes its queries whole.
kernels::Readers readers_of_q(const GqaConfig& config, const GqaWeights& weights, const TensorView& keys) {
  const bool rounds = keys.dtype == DType::kBF16 && config.window == 0 && weights.sinks.empty();
  return rounds ? kernels::Readers::kNextRounds : kernels::Readers::kAny;
}

kernels::Readers readers_of_out(const GqaConfig& config, const GqaWeights& weights) {
  const bool rounds = config.output_gate != GqaConfig::OutputGate::kSigmoid && weights.o.is_bf16();
  return rounds ? kernels::Readers::kNextRounds : kernels::Readers::kAny;
}

}  // namespace

GqaConfig read_gqa(ConfigReader& reader, int hidden, float norm_eps, const GqaDefaults& defaults) {
  constexpr int64_t kMost = 1 << 16;
  GqaConfig gqa{.hidden = hidden, .norm_eps = norm_eps};
  gqa.num_heads = static_cast<int>(reader.integer("num_attention_heads", 1, kMost));
  gqa.num_kv_heads =
      static_cast<int>(defaults.kv_heads == GqaDefaults::KvHeads::kRequired
                           ? reader.integer("num_key_value_heads", 1, gqa.num_heads)
                           : reader.integer_or("num_key_value_heads", gqa.num_heads, 1, gqa.num_heads));
  if (gqa.num_heads % gqa.num_kv_heads != 0)
    reader.refuse("num_key_value_heads",
                  fmt::format("{} does not divide num_attention_heads {}", gqa.num_kv_heads, gqa.num_heads));
  const int absent = defaults.head_dim == GqaDefaults::HeadDim::k128  ? 128
                     : defaults.head_dim == GqaDefaults::HeadDim::k64 ? 64
                                                                      : std::max(1, hidden / gqa.num_heads);
  gqa.head_dim = static_cast<int>(reader.integer_or("head_dim", absent, 2, kMost));
  gqa.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(gqa.head_dim)));
  if (reader.flag_or(defaults.bias_key, defaults.has_bias == GqaDefaults::HasBias::kYes))
    gqa.bias = defaults.bias;
  return gqa;
}

GqaHeads heads_of(const GqaConfig& config, Shard shard) {
  GqaHeads heads{.query = shard.of(config.num_heads)};
  if (heads.query.size() == 0) return heads;
  const int group = config.group();
  heads.kv = {heads.query.begin / group, (heads.query.end - 1) / group + 1};
  heads.first_in_group = static_cast<int>(heads.query.begin % group);
  return heads;
}

GqaWeights read_gqa_weights(WeightReader& reader, const std::string& prefix, const GqaConfig& config,
                            Shard shard) {
  using enum GqaConfig::Bias;
  const GqaHeads heads = heads_of(config, shard);
  const auto values_of = [&](Range range, int width) {
    return Range{range.begin * width, range.end * width};
  };
  const Range query = values_of(heads.query, config.query_width());
  const Range kv = values_of(heads.kv, config.head_dim);
  const int64_t all_query = int64_t{config.num_heads} * config.query_width();
  const int64_t all_kv = int64_t{config.num_kv_heads} * config.head_dim;
  GqaWeights weights{.first_in_group = heads.first_in_group};
  weights.q = reader.weight_rows(prefix + "q_proj.weight", all_query, config.hidden, query);
  weights.k = reader.weight_rows(prefix + "k_proj.weight", all_kv, config.hidden, kv);
  weights.v = reader.weight_rows(prefix + "v_proj.weight", all_kv, config.hidden, kv);
  weights.o =
      reader.weight_cols(prefix + "o_proj.weight", config.hidden, int64_t{config.num_heads} * config.head_dim,
                         values_of(heads.query, config.head_dim));
  if (config.bias != kNone) {
    weights.q_bias = reader.vector_part(prefix + "q_proj.bias", all_query, query);
    weights.k_bias = reader.vector_part(prefix + "k_proj.bias", all_kv, kv);
    weights.v_bias = reader.vector_part(prefix + "v_proj.bias", all_kv, kv);
  }
  if (config.bias == kQkvo && shard.index == 0)
    weights.o_bias = reader.vector(prefix + "o_proj.bias", config.hidden);
  if (config.sinks == GqaConfig::Sinks::kOnePerHead)
    weights.sinks = reader.vector_part(prefix + "sinks", config.num_heads, heads.query);
  if (config.head_norm == GqaConfig::HeadNorm::kQueriesAndKeys) {
    weights.q_norm = reader.norm(prefix + "q_norm.weight", config.head_dim, config.norm_form);
    weights.k_norm = reader.norm(prefix + "k_norm.weight", config.head_dim, config.norm_form);
  }
  return weights;
}

TensorView run_gqa(const GqaConfig& config, const GqaWeights& weights, const RopeTables& rope,
                   const Batch& batch, const TensorView& keys, const TensorView& values, const TensorView& x,
                   const ForwardContext& context) {
  const std::vector<int32_t> positions = context.boundary.held(batch.positions);
  const Range given = given_of(batch, x.rows());
  const std::span<const int32_t> given_positions =
      std::span(positions).subspan(static_cast<size_t>(given.begin), static_cast<size_t>(given.size()));
  const auto to_q = projection(x.row_range(given.begin, given.size()), weights.q, weights.q_bias, context);
  const auto to_k = projection(x, weights.k, weights.k_bias, context);
  const auto to_v = projection(x, weights.v, weights.v_bias, context);
  if (given.size() == x.rows()) {
    context.kernels.linears(std::array{to_q, to_k, to_v});
  } else {
    context.kernels.linear(to_q);
    context.kernels.linears(std::array{to_k, to_v});
  }
  const TensorView q = to_q.out, k = to_k.out, v = to_v.out;
  std::vector<kernels::PagedSequence> sequences(batch.prompts.begin(), batch.prompts.end());
  sequences.insert(sequences.end(), batch.decodes.begin(), batch.decodes.end());
  const int64_t num_heads = q.cols() / config.query_width();
  const TensorView mixed = context.workspace.take({q.rows(), num_heads * config.head_dim});
  const auto asked = sequences_within(sequences, given);
  context.kernels.attend({.rows = {.q = q,
                                   .k = k,
                                   .v = v,
                                   .head_dim = config.head_dim,
                                   .query_stride = config.query_width(),
                                   .q_norm = weights.q_norm,
                                   .k_norm = weights.k_norm,
                                   .eps = config.norm_eps,
                                   .dim = config.rope,
                                   .q_positions = given_positions,
                                   .k_positions = positions,
                                   .cos = rope.cos(),
                                   .sin = rope.sin(),
                                   .sequences = sequences,
                                   .page_size = batch.page_size,
                                   .keys = keys,
                                   .values = values,
                                   .q_readers = readers_of_q(config, weights, keys)},
                          .gqa = {.q = by_head(q, config.head_dim, config.query_width()),
                                  .sequences = asked,
                                  .page_size = batch.page_size,
                                  .k = keys,
                                  .v = values,
                                  .group = config.group(),
                                  .first_in_group = weights.first_in_group,
                                  .scale = config.scale,
                                  .window = config.window,
                                  .sinks = weights.sinks,
                                  .out = by_head(mixed, config.head_dim, config.head_dim),
                                  .out_readers = readers_of_out(config, weights)}});
  if (config.output_gate == GqaConfig::OutputGate::kSigmoid)
    context.kernels.sigmoid_mul(
        {.x = each_head(mixed, 0, config.head_dim, config.head_dim),
         .gate = each_head(q, config.head_dim, config.head_dim, config.query_width())});
  const auto to_out = projection(mixed, weights.o, weights.o_bias, context);
  context.kernels.linear(to_out);
  return to_out.out;
}

}  // namespace lockstep::models
