#pragma once
// Multi-token prediction (DeepSeek-V3 Technical Report, section 2.2): a decoder layer behind the model that
// drafts the token after the next from the model's last normed rows and the token that followed each.
#include "lockstep/models/model.h"
#include "lockstep/models/weights.h"

namespace lockstep::models {

// The parts around the module's layer. Embedding and head are the model's own.
struct MtpWeights {
  TensorView embedding_norm, hidden_norm;  // [hidden]
  WeightView of_embedding, of_hidden;      // [hidden, hidden] each: the halves of eh_proj, embedding first
  TensorView final_norm;                   // [hidden]
};

// prefix: "model.layers.61."
MtpWeights read_mtp(WeightReader& reader, const std::string& prefix, int64_t hidden, NormForm norm_form);

// The first rows of the module's layer: embedding · Wₑᵀ + norm(kept rows) · Wₕᵀ. normed_embedding: [rows,
// hidden]; kept_rows says for each row which of context.kept it follows. Returns [rows, hidden].
TensorView run_mtp_join(const MtpWeights& weights, float norm_eps, const TensorView& normed_embedding,
                        std::span<const int32_t> kept_rows, const ForwardContext& context);

// What the next draft starts from: x, the rows of a replica, [rows, hidden].
void keep_rows(const TensorView& x, const ForwardContext& context);

}  // namespace lockstep::models
