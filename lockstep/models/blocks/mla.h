#pragma once
// Multi-head latent attention (DeepSeek-V2, section 2.1): the cache keeps one latent and one rotated key a
// token for all heads. Prompt rows run in expanded form, decode rows in absorbed form; both read the same
// cache.
#include "lockstep/models/blocks/rope.h"
#include "lockstep/models/model.h"

namespace lockstep::models {

struct MlaConfig {
  int hidden = 0, num_heads = 0;
  int q_lora = 0;                     // 0: queries are not compressed
  int latent = 0;                     // kv_lora_rank
  int nope = 0, rope = 0, value = 0;  // of a head: query/key without rope, with rope, value
  float scale = 0;                    // of the scores
  int cache_width() const { return latent + rope; }
  // Of what is made of a row alone; 0 where queries are made of whole rows.
  int latent_width() const { return q_lora > 0 ? q_lora + cache_width() : 0; }
};

struct MlaWeights {
  WeightView q_a;        // [q_lora, hidden]; empty without compression
  TensorView q_a_norm;   // [q_lora]
  WeightView q_b;        // [local heads * (nope + rope), q_lora or hidden]
  WeightView kv_a;       // [latent + rope, hidden]
  TensorView kv_a_norm;  // [latent]
  WeightView kv_b;       // [local heads * (nope + value), latent]: per head key rows, then value rows
  WeightView o;          // [hidden, local heads * value]
};

// Of each row alone: the compressed query, normed, then the latent, normed, and the key, not yet rotated.
// x: [rows, hidden]. Returns [rows, latent_width].
TensorView mla_latents(const MlaConfig& config, const MlaWeights& weights, const TensorView& x,
                       const ForwardContext& context);

// x: [rows, latent_width] of the replica's rows, which are rotated in place; [rows, hidden] where there is no
// such width. Returns [rows, hidden], a share of the sum over the heads' shards.
TensorView run_mla(const MlaConfig& config, const MlaWeights& weights, const RopeTables& rope,
                   const Batch& batch, const TensorView& cache, const TensorView& x,
                   const ForwardContext& context);

}  // namespace lockstep::models
