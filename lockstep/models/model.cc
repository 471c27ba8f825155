#include "lockstep/models/model.h"

#include <algorithm>

namespace lockstep::models {

Range given_of(const Batch& batch, int64_t num_rows) {
  return batch.given.size() > 0 ? batch.given : Range{0, num_rows};
}

std::vector<kernels::PagedSequence> sequences_within(std::span<const kernels::PagedSequence> sequences,
                                                     Range given) {
  std::vector<kernels::PagedSequence> within;
  for (const kernels::PagedSequence& sequence : sequences) {
    const int64_t end = sequence.first_row + sequence.num_rows;
    const int64_t first = std::max<int64_t>(sequence.first_row, given.begin), last = std::min(end, given.end);
    if (first >= last) continue;
    kernels::PagedSequence part = sequence;
    part.first_row = static_cast<int32_t>(first - given.begin);
    part.num_rows = static_cast<int32_t>(last - first);
    part.context = static_cast<int32_t>(sequence.context - (end - last));
    within.push_back(part);
  }
  return within;
}

TensorView Model::draft(const Batch& batch, const ForwardContext& /*context*/) const {
  throw Fatal(fmt::format("step {} drafts with a model that has nothing to draft with", batch.plan.step));
}

ParameterCounts count_parameters(const planning::ModelShape& shape, int num_vocabulary_matrices) {
  const double hidden = shape.hidden, an_expert = 3 * hidden * shape.expert_inter;
  const double beside = 3 * hidden * shape.shared_inter + hidden * shape.num_experts;  // shared, router
  ParameterCounts counts;
  counts.total = counts.active = num_vocabulary_matrices * hidden * shape.vocab;
  for (const planning::ModelShape::Ffn ffn : shape.layers) {
    const bool dense = ffn == planning::ModelShape::Ffn::kDense;
    counts.total += shape.attention_params +
                    (dense ? 3 * hidden * shape.dense_inter : an_expert * shape.num_experts + beside);
    counts.active +=
        shape.attention_params + (dense ? 3 * hidden * shape.dense_inter : an_expert * shape.top_k + beside);
  }
  return counts;
}

}  // namespace lockstep::models
