#pragma once
// What the configs of all decoder families say in the same words, and what planning must know of it.
#include <vector>

#include "lockstep/models/blocks/moe_ffn.h"
#include "lockstep/models/config_reader.h"
#include "lockstep/models/quantization/quant_config.h"
#include "lockstep/models/weights.h"
#include "lockstep/planning/stage.h"

namespace lockstep::models {

struct DecoderConfig {
  int num_layers = 0, hidden = 0, vocab = 0, context_length = 0;
  int dense_width = 0;
  float norm_eps = 1e-6f;
  NormForm norm_form = NormForm::kWhole;
  enum class Head : uint8_t { kOwn, kTiedToEmbedding } head = Head::kOwn;
  std::vector<planning::ModelShape::Ffn> layers;
  MoeConfig moe;           // num_experts 0: all layers are dense
  int num_mtp_layers = 0;  // layers num_layers … in the file, of which the first can draft
  planning::ModelShape::Ffn mtp_ffn = planning::ModelShape::Ffn::kExperts;
  int latent_width = 0;                                            // see ModelShape
  double latent_params = 0;                                        // likewise
  std::string no_drafts_because = {}, rows_in_order_because = {};  // see ModelShape
  QuantConfig quantization;
};

struct DecoderDefaults {
  double norm_eps = 1e-6;  // where rms_norm_eps is absent
  enum class DenseWidth : uint8_t {
    kRequired,
    kMayBeAbsent,  // intermediate_size, of a model whose layers may all have experts
  } dense_width = DenseWidth::kRequired;
  enum class OutputGate : uint8_t {
    kNone,  // attn_output_gate true is refused
    kRead,  // the family's attention reads attn_output_gate itself
  } output_gate = OutputGate::kNone;
};

// Sizes and head, with all layers dense and no experts. Refuses other activations.
DecoderConfig read_decoder(ConfigReader& reader, const DecoderDefaults& defaults = {});

// The softmax router's experts in every decoder_sparse_step-th layer, but for those that mlp_only_layers
// lists.
void read_sparse_layers(ConfigReader& reader, DecoderConfig& config);

// num_attention_params: weights of the attention of one layer.
planning::ModelShape shape_of(const DecoderConfig& config, int num_heads, double num_attention_params);

}  // namespace lockstep::models
