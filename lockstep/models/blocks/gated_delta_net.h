#pragma once
// The gated DeltaNet layer (Yang, Kautz and Hatamizadeh 2024, as Qwen3-Next has it): a short convolution and
// a recurrent state a value head in place of attention. What it keeps does not grow with the context.
#include "lockstep/models/config_reader.h"
#include "lockstep/models/model.h"
#include "lockstep/models/weights.h"

namespace lockstep::models {

struct GatedDeltaNetConfig {
  int hidden = 0;
  int num_key_heads = 0, num_value_heads = 0;  // consecutive value heads share a key head
  int key_dim = 0, value_dim = 0;              // of a head
  int taps = 0;                                // of the convolution
  float norm_eps = 1e-6f;
  // How the rows of the stored projections follow each other.
  enum class Rows : uint8_t {
    kByKind,     // in_proj_qkv: all q, all k, all v; in_proj_z, in_proj_b, in_proj_a (Qwen3.5)
    kByKeyHead,  // in_proj_qkvz: q, k, v, z of a key head, then of the next; in_proj_ba alike (Qwen3-Next)
  } rows = Rows::kByKind;
  int group() const { return num_value_heads / num_key_heads; }
};

// Keys linear_num_key_heads and so on.
GatedDeltaNetConfig read_gated_delta_net(ConfigReader& reader, int hidden, float norm_eps);

// Weights of the layer.
double num_params(const GatedDeltaNetConfig& config);

// Heads of a shard: an equal share of the value heads, and the key heads that these read. Where a group is
// cut, both sides compute its key head.
struct DeltaHeads {
  Range value, key;
  int first_in_group = 0;  // of the first value head
};
DeltaHeads heads_of(const GatedDeltaNetConfig& config, Shard shard);

// What a shard keeps of a sequence.
struct DeltaState {
  int64_t window = 0;     // values of the rows that the convolution still needs: [taps - 1, channels]
  int64_t recurrent = 0;  // [value heads, key_dim, value_dim]
};
DeltaState state_of(const GatedDeltaNetConfig& config, Shard shard);

// Rows of stored matrices, put side by side: part i gives the columns from `column` on.
struct JoinedRows {
  struct Part {
    WeightView w;  // [some, hidden]
    int64_t column = 0;
  };
  std::vector<Part> parts;
  int64_t width = 0;
};

struct GatedDeltaNetWeights {
  JoinedRows qkv;             // q, k and v of the shard's heads
  JoinedRows z, b, a;         // gate of the output; of the write and the decay, one a value head
  TensorView conv;            // [taps, channels] f32
  TensorView a_log, dt_bias;  // [local value heads]
  TensorView norm;            // [value_dim]
  WeightView out;             // [hidden, local value heads * value_dim]
  int first_in_group = 0;
};

// prefix: "model.layers.0.linear_attn."
GatedDeltaNetWeights read_gated_delta_net_weights(WeightReader& reader, const std::string& prefix,
                                                  const GatedDeltaNetConfig& config, Shard shard);

// x: [rows, hidden], the replica's rows; window and recurrent: [slots, values], as state_of() says. Returns
// [rows, hidden], a share of the sum over the heads' shards.
TensorView run_gated_delta_net(const GatedDeltaNetConfig& config, const GatedDeltaNetWeights& weights,
                               const Batch& batch, const TensorView& window, const TensorView& recurrent,
                               const TensorView& x, const ForwardContext& context);

}  // namespace lockstep::models
