#include "lockstep/models/blocks/mtp.h"

namespace lockstep::models {

MtpWeights read_mtp(WeightReader& reader, const std::string& prefix, int64_t hidden, NormForm norm_form) {
  const std::string projection = prefix + "eh_proj.weight";
  return {.embedding_norm = reader.norm(prefix + "enorm.weight", hidden, norm_form),
          .hidden_norm = reader.norm(prefix + "hnorm.weight", hidden, norm_form),
          .of_embedding = reader.weight_cols(projection, hidden, 2 * hidden, {0, hidden}),
          .of_hidden = reader.weight_cols(projection, hidden, 2 * hidden, {hidden, 2 * hidden}),
          .final_norm = reader.norm(prefix + "shared_head.norm.weight", hidden, norm_form)};
}

TensorView run_mtp_join(const MtpWeights& weights, float norm_eps, const TensorView& normed_embedding,
                        std::span<const int32_t> kept_rows, const ForwardContext& context) {
  const int64_t rows = normed_embedding.rows(), hidden = normed_embedding.cols();
  LOCKSTEP_CHECK_EQ(static_cast<int64_t>(kept_rows.size()), rows);
  std::vector<kernels::RowPiece> pieces;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t from = kept_rows[static_cast<size_t>(row)];
    LOCKSTEP_CHECK_LT(from, context.kept.rows());
    const bool joins = !pieces.empty() && pieces.back().src_row + pieces.back().num_rows == from;
    if (joins)
      ++pieces.back().num_rows;
    else
      pieces.push_back({.src_row = from, .dst_row = row, .num_rows = 1});
  }
  const TensorView kept = context.workspace.take({rows, hidden});
  context.kernels.copy_rows({.sources = {&context.kept, 1}, .pieces = pieces, .out = kept});
  kernels::RmsNormArgs norm{.x = kept, .weight = weights.hidden_norm, .eps = norm_eps, .out = kept};
  context.kernels.rms_norm(norm);
  const TensorView joined = context.workspace.take({rows, hidden});
  context.kernels.linear({.x = normed_embedding, .w = weights.of_embedding, .out = joined});
  const TensorView other = context.workspace.take({rows, hidden});
  context.kernels.linear({.x = kept, .w = weights.of_hidden, .out = other});
  context.kernels.add({.x = joined, .y = other});
  return joined;
}

void keep_rows(const TensorView& x, const ForwardContext& context) {
  LOCKSTEP_CHECK_LE(x.rows(), context.kept.rows());
  if (x.rows() == 0) return;
  const kernels::RowPiece all{.num_rows = x.rows()};
  context.kernels.copy_rows(
      {.sources = {&x, 1}, .pieces = {&all, 1}, .out = context.kept.row_range(0, x.rows())});
}

}  // namespace lockstep::models
