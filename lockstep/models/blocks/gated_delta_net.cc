#include "lockstep/models/blocks/gated_delta_net.h"

#include <algorithm>
#include <cmath>

namespace lockstep::models {
namespace {

constexpr float kL2Eps = 1e-6f;  // of the norm of queries and keys, on the sum of squares

int64_t num_channels(const GatedDeltaNetConfig& config, const DeltaHeads& heads) {
  return 2 * heads.key.size() * config.key_dim + heads.value.size() * config.value_dim;
}

Range values_of(Range heads, int64_t width) { return {heads.begin * width, heads.end * width}; }

// The rows of q, k and v of the shard's heads where all q come first, then all k, then all v.
struct ChannelRanges {
  Range q, k, v;
  int64_t total = 0;  // of all heads
};

ChannelRanges channels_of(const GatedDeltaNetConfig& config, const DeltaHeads& heads) {
  const int64_t keys = int64_t{config.num_key_heads} * config.key_dim;
  const int64_t values = int64_t{config.num_value_heads} * config.value_dim;
  const auto behind = [](Range range, int64_t offset) {
    return Range{range.begin + offset, range.end + offset};
  };
  const Range key = values_of(heads.key, config.key_dim);
  return {.q = key,
          .k = behind(key, keys),
          .v = behind(values_of(heads.value, config.value_dim), 2 * keys),
          .total = 2 * keys + values};
}

// A stored matrix [rows, hidden] of which ranges of rows are read one by one.
struct StoredRows {
  WeightReader& reader;
  std::string name;
  int64_t rows = 0, hidden = 0;
};

void append(JoinedRows& joined, const StoredRows& stored, Range rows) {
  joined.parts.push_back(
      {stored.reader.weight_rows(stored.name, stored.rows, stored.hidden, rows), joined.width});
  joined.width += rows.size();
}

void read_by_kind(WeightReader& reader, const std::string& prefix, const GatedDeltaNetConfig& config,
                  const DeltaHeads& heads, GatedDeltaNetWeights& weights) {
  const ChannelRanges channels = channels_of(config, heads);
  const StoredRows qkv{reader, prefix + "in_proj_qkv.weight", channels.total, config.hidden};
  for (const Range& rows : {channels.q, channels.k, channels.v}) append(weights.qkv, qkv, rows);
  const int64_t values = int64_t{config.num_value_heads} * config.value_dim;
  append(weights.z, {reader, prefix + "in_proj_z.weight", values, config.hidden},
         values_of(heads.value, config.value_dim));
  append(weights.b, {reader, prefix + "in_proj_b.weight", config.num_value_heads, config.hidden},
         heads.value);
  append(weights.a, {reader, prefix + "in_proj_a.weight", config.num_value_heads, config.hidden},
         heads.value);
}

// The value heads of a key head that the shard has, counted from the first of its group.
Range in_group(const GatedDeltaNetConfig& config, const DeltaHeads& heads, int64_t key_head) {
  const int64_t first = key_head * config.group();
  return {std::max(heads.value.begin, first) - first,
          std::min(heads.value.end, first + config.group()) - first};
}

void read_by_key_head(WeightReader& reader, const std::string& prefix, const GatedDeltaNetConfig& config,
                      const DeltaHeads& heads, GatedDeltaNetWeights& weights) {
  const int64_t group = config.group(), values = group * config.value_dim;
  const int64_t rows = 2 * config.key_dim + 2 * values;  // of a key head
  const StoredRows qkvz{reader, prefix + "in_proj_qkvz.weight", config.num_key_heads * rows, config.hidden};
  const StoredRows ba{reader, prefix + "in_proj_ba.weight", 2 * int64_t{config.num_value_heads},
                      config.hidden};
  const auto append_keys = [&](int64_t offset) {
    for (int64_t head = heads.key.begin; head < heads.key.end; ++head)
      append(weights.qkv, qkvz, {head * rows + offset, head * rows + offset + config.key_dim});
  };
  const auto append_values = [&](JoinedRows& joined, int64_t offset) {
    for (int64_t head = heads.key.begin; head < heads.key.end; ++head) {
      const Range kept = values_of(in_group(config, heads, head), config.value_dim);
      append(joined, qkvz, {head * rows + offset + kept.begin, head * rows + offset + kept.end});
    }
  };
  append_keys(0);
  append_keys(config.key_dim);
  append_values(weights.qkv, 2 * config.key_dim);
  append_values(weights.z, 2 * config.key_dim + values);
  for (int64_t head = heads.key.begin; head < heads.key.end; ++head) {
    const Range kept = in_group(config, heads, head);
    const int64_t first = head * 2 * group;
    append(weights.b, ba, {first + kept.begin, first + kept.end});
    append(weights.a, ba, {first + group + kept.begin, first + group + kept.end});
  }
}

TensorView project(const TensorView& x, const JoinedRows& joined, const ForwardContext& context) {
  const TensorView out = context.workspace.take({x.rows(), joined.width});
  for (const JoinedRows::Part& part : joined.parts)
    context.kernels.linear({.x = x, .w = part.w, .out = out.col_range(part.column, part.w.rows())});
  return out;
}

// Columns [begin, begin + heads * dim) of a matrix, head by head.
TensorView heads_in(const TensorView& matrix, int64_t begin, int64_t heads, int64_t dim) {
  TensorView cube = view_of(matrix.as<float>() + begin, {matrix.rows(), heads, dim});
  cube.stride[0] = matrix.stride[0];
  return cube;
}

// The same as a matrix of one row a head, for what a projection of its own gave.
TensorView one_by_one(const TensorView& matrix, int64_t dim) {
  return view_of(matrix.data, matrix.dtype, {matrix.num_elements() / dim, dim});
}

TensorView project_out(const TensorView& x, const WeightView& w, const ForwardContext& context) {
  const TensorView out = context.workspace.take({x.rows(), w.rows()});
  context.kernels.linear({.x = x, .w = w, .out = out});
  return out;
}

}  // namespace

GatedDeltaNetConfig read_gated_delta_net(ConfigReader& reader, int hidden, float norm_eps) {
  constexpr int64_t kMost = 1 << 16;
  GatedDeltaNetConfig config{.hidden = hidden, .norm_eps = norm_eps};
  config.num_key_heads = static_cast<int>(reader.integer("linear_num_key_heads", 1, kMost));
  config.num_value_heads = static_cast<int>(reader.integer("linear_num_value_heads", 1, kMost));
  config.key_dim = static_cast<int>(reader.integer("linear_key_head_dim", 1, kMost));
  config.value_dim = static_cast<int>(reader.integer("linear_value_head_dim", 1, kMost));
  config.taps = static_cast<int>(reader.integer("linear_conv_kernel_dim", 1, 64));
  if (config.num_value_heads % config.num_key_heads != 0) {
    reader.refuse("linear_num_key_heads", fmt::format("{} does not divide linear_num_value_heads {}",
                                                      config.num_key_heads, config.num_value_heads));
    config.num_key_heads = config.num_value_heads;
  }
  return config;
}

double num_params(const GatedDeltaNetConfig& config) {
  const double keys = double{1} * config.num_key_heads * config.key_dim;
  const double values = double{1} * config.num_value_heads * config.value_dim;
  // q, k, v, z and the output; the gates of write and decay.
  return config.hidden * (2 * keys + 3 * values + 2.0 * config.num_value_heads);
}

DeltaHeads heads_of(const GatedDeltaNetConfig& config, Shard shard) {
  DeltaHeads heads{.value = shard.of(config.num_value_heads)};
  if (heads.value.size() == 0) return heads;
  const int group = config.group();
  heads.key = {heads.value.begin / group, (heads.value.end - 1) / group + 1};
  heads.first_in_group = static_cast<int>(heads.value.begin % group);
  return heads;
}

DeltaState state_of(const GatedDeltaNetConfig& config, Shard shard) {
  const DeltaHeads heads = heads_of(config, shard);
  return {.window = (config.taps - 1) * num_channels(config, heads),
          .recurrent = heads.value.size() * config.key_dim * config.value_dim};
}

GatedDeltaNetWeights read_gated_delta_net_weights(WeightReader& reader, const std::string& prefix,
                                                  const GatedDeltaNetConfig& config, Shard shard) {
  const DeltaHeads heads = heads_of(config, shard);
  GatedDeltaNetWeights weights{.first_in_group = heads.first_in_group};
  (config.rows == GatedDeltaNetConfig::Rows::kByKind ? read_by_kind : read_by_key_head)(
      reader, prefix, config, heads, weights);
  const ChannelRanges channels = channels_of(config, heads);
  weights.conv = reader.taps(prefix + "conv1d.weight", channels.total, config.taps,
                             {channels.q, channels.k, channels.v});
  weights.a_log = reader.vector_part(prefix + "A_log", config.num_value_heads, heads.value);
  weights.dt_bias = reader.vector_part(prefix + "dt_bias", config.num_value_heads, heads.value);
  weights.norm = reader.vector(prefix + "norm.weight", config.value_dim);
  weights.out = reader.weight_cols(prefix + "out_proj.weight", config.hidden,
                                   int64_t{config.num_value_heads} * config.value_dim,
                                   values_of(heads.value, config.value_dim));
  return weights;
}

TensorView run_gated_delta_net(const GatedDeltaNetConfig& config, const GatedDeltaNetWeights& weights,
                               const Batch& batch, const TensorView& window, const TensorView& recurrent,
                               const TensorView& x, const ForwardContext& context) {
  const int64_t rows = x.rows(), channels = weights.qkv.width, heads = weights.b.width;
  const int64_t keys = (channels - heads * config.value_dim) / 2, key_heads = keys / config.key_dim;
  if (heads == 0) return project_out(context.workspace.take({rows, 0}), weights.out, context);
  std::vector<kernels::PagedSequence> sequences(batch.prompts.begin(), batch.prompts.end());
  sequences.insert(sequences.end(), batch.decodes.begin(), batch.decodes.end());

  const TensorView mixed = context.workspace.take({rows, channels});
  context.kernels.causal_conv(
      {.x = project(x, weights.qkv, context),
       .weight = weights.conv,
       .sequences = sequences,
       .state = view_of(window.as<float>(), {window.rows(), config.taps - 1, channels}),
       .out = mixed});
  const TensorView q = heads_in(mixed, 0, key_heads, config.key_dim);
  const TensorView k = heads_in(mixed, keys, key_heads, config.key_dim);
  context.kernels.l2_norm({.x = q,
                           .eps = kL2Eps,
                           .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.key_dim)))});
  context.kernels.l2_norm({.x = k, .eps = kL2Eps});
  const TensorView decay = project(x, weights.a, context), beta = project(x, weights.b, context);
  context.kernels.delta_gates({.a = decay,
                               .b = beta,
                               .a_log = weights.a_log,
                               .dt_bias = weights.dt_bias,
                               .decay = decay,
                               .beta = beta});
  const TensorView y = context.workspace.take({rows, heads * config.value_dim});
  context.kernels.gated_delta({.q = q,
                               .k = k,
                               .v = heads_in(mixed, 2 * keys, heads, config.value_dim),
                               .decay = decay,
                               .beta = beta,
                               .sequences = sequences,
                               .group = config.group(),
                               .first_in_group = weights.first_in_group,
                               .state = view_of(recurrent.data, recurrent.dtype,
                                                {recurrent.rows(), heads, config.key_dim, config.value_dim}),
                               .out = heads_in(y, 0, heads, config.value_dim)});

  // The output's norm knows its gate: w ⊙ norm(y) ⊙ silu(z), head by head.
  const TensorView each = one_by_one(y, config.value_dim);
  const TensorView gate = one_by_one(project(x, weights.z, context), config.value_dim);
  kernels::RmsNormArgs norm{.x = each, .weight = weights.norm, .eps = config.norm_eps, .out = each};
  context.kernels.rms_norm(norm);
  context.kernels.silu_mul({.gate = gate, .up = each, .out = gate});
  return project_out(view_of(gate.as<float>(), {rows, heads * config.value_dim}), weights.out, context);
}

}  // namespace lockstep::models
