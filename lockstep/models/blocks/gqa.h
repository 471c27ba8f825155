#pragma once
// Grouped-query attention (Ainslie et al. 2023): several query heads share a key/value head. Rotated keys and
// values are cached. Optional: biases, a norm of every query and key head (Qwen3), rotation of a part of the
// head only (GLM-4), a gate on what a head gives (Qwen3-Next), a window of tokens, sinks (gpt-oss).
#include "lockstep/models/blocks/rope.h"
#include "lockstep/models/model.h"
#include "lockstep/models/weights.h"

namespace lockstep::models {

struct GqaConfig {
  int hidden = 0, num_heads = 0, num_kv_heads = 0;
  int head_dim = 0;
  int rope = 0;     // rotated values of a head: the first ones
  float scale = 0;  // of the scores
  float norm_eps = 1e-6f;
  enum class Bias : uint8_t { kNone, kQkv, kQkvo } bias = Bias::kNone;
  enum class HeadNorm : uint8_t { kNone, kQueriesAndKeys } head_norm = HeadNorm::kNone;
  NormForm norm_form = NormForm::kWhole;  // of the head norms
  // kSigmoid: q_proj gives for each head a query and then a gate; the head's output is multiplied by its
  // sigmoid.
  enum class OutputGate : uint8_t { kNone, kSigmoid } output_gate = OutputGate::kNone;
  enum class Sinks : uint8_t { kNone, kOnePerHead } sinks = Sinks::kNone;
  int window = 0;  // a row sees the last `window` tokens up to itself; 0: all
  int group() const { return num_heads / num_kv_heads; }
  // Values that q_proj gives for a head.
  int query_width() const { return output_gate == OutputGate::kNone ? head_dim : 2 * head_dim; }
};

// What the families take where a config says nothing.
struct GqaDefaults {
  enum class HeadDim : uint8_t { kHiddenOverHeads, k64, k128 } head_dim = HeadDim::kHiddenOverHeads;
  enum class KvHeads : uint8_t { kRequired, kAsManyAsHeads } kv_heads = KvHeads::kRequired;
  GqaConfig::Bias bias = GqaConfig::Bias::kQkvo;  // what attention_bias switches on
  const char* bias_key = "attention_bias";
  enum class HasBias : uint8_t { kNo, kYes } has_bias = HasBias::kNo;  // where bias_key is absent
};

// All but rope and head_norm. norm_eps: of the head norms.
GqaConfig read_gqa(ConfigReader& reader, int hidden, float norm_eps, const GqaDefaults& defaults);

// Heads of a shard: an equal share of query heads, and the key/value heads that these read. Where a group is
// cut, both sides keep a copy of its key/value head.
struct GqaHeads {
  Range query, kv;
  int first_in_group = 0;  // of the first query head
};
GqaHeads heads_of(const GqaConfig& config, Shard shard);

struct GqaWeights {
  WeightView q;                       // [local heads * query_width, hidden]
  WeightView k, v;                    // [local kv heads * head_dim, hidden]
  TensorView q_bias, k_bias, v_bias;  // as many as the rows above; empty without
  TensorView q_norm, k_norm;          // [head_dim]; empty without head norms
  WeightView o;                       // [hidden, local heads * head_dim]
  TensorView o_bias;                  // [hidden], on the first shard alone: it is owed once
  TensorView sinks;                   // [local heads]; empty without sinks
  int first_in_group = 0;
};

// prefix: "model.layers.0.self_attn."
GqaWeights read_gqa_weights(WeightReader& reader, const std::string& prefix, const GqaConfig& config,
                            Shard shard);

// x: [rows, hidden], the replica's rows; keys and values: caches [pages * page_size, local kv heads *
// head_dim]. Returns [rows, hidden], a share of the sum over the heads' shards.
TensorView run_gqa(const GqaConfig& config, const GqaWeights& weights, const RopeTables& rope,
                   const Batch& batch, const TensorView& keys, const TensorView& values, const TensorView& x,
                   const ForwardContext& context);

}  // namespace lockstep::models
