#include "lockstep/planning/memory.h"

#include <algorithm>
#include <cmath>

namespace lockstep::planning {
namespace {

WeightPlace place(const RankGrid& grid, std::string what, AxisSet over, double whole_bytes) {
  const int parts = grid.size(over), copies = grid.num_ranks() / parts;
  return {.what = std::move(what),
          .split = fmt::format("{} part{} over {}; {} cop{}", parts, parts == 1 ? "" : "s",
                               grid.name_of(over), copies, copies == 1 ? "y" : "ies"),
          .parts = parts,
          .copies = copies,
          .bytes = whole_bytes / parts};
}

}  // namespace

RankMemory memory_of(const ModelShape& model, const RankGrid& grid, const StageOptions& options,
                     const Capacity& capacity) {
  const double weight = model.bytes_per_weight;
  std::vector<ModelShape::Ffn> layers = model.layers;
  const bool drafts = options.drafting == Drafting::kMtp;
  if (drafts) layers.insert(layers.end(), model.draft_layers.begin(), model.draft_layers.end());
  const auto num_layers = static_cast<double>(layers.size());
  const auto num_dense =
      static_cast<double>(std::count(layers.begin(), layers.end(), ModelShape::Ffn::kDense));
  const double num_sparse = num_layers - num_dense;
  const double vocabulary = 1.0 * model.vocab * model.hidden * std::max(2.0, weight);
  RankMemory memory;
  const auto add = [&](WeightPlace one) {
    if (one.bytes <= 0) return;
    memory.weight_bytes += one.bytes;
    memory.weights.push_back(std::move(one));
  };
  add(place(grid, "embedding", grid.embedding_tp(), vocabulary));
  add(place(grid, "attention", grid.attention_heads(),
            num_layers * (model.attention_params - model.latent_params) * weight));
  add(place(grid, "attention's latents", AxisSet(), num_layers * model.latent_params * weight));
  add(place(grid, "dense layers", grid.dense_tp(),
            num_dense * 3.0 * model.hidden * model.dense_inter * weight));
  // The fullest rank: experts are owned whole, or in slices of their width.
  const AxisSet owned = grid.expert_parallel() | grid.expert_tp();
  WeightPlace experts = place(grid, "experts", owned, 0);
  const double slice = 3.0 * model.hidden * model.expert_inter * weight / grid.size(grid.expert_tp());
  experts.bytes = num_sparse * slice * std::ceil(1.0 * model.num_experts / grid.size(grid.expert_parallel()));
  add(std::move(experts));
  const AxisSet shared =
      options.shared == SharedExpert::kSplit ? experts_owe(grid, options.exchange) : AxisSet();
  add(place(grid, "shared experts", shared, num_sparse * 3.0 * model.hidden * model.shared_inter * weight));
  add(place(grid, "routers", AxisSet(), num_sparse * model.num_experts * model.hidden * 2.0));
  if (drafts) add(place(grid, "drafts' projection", AxisSet(), 2.0 * model.hidden * model.hidden * weight));
  add(place(grid, "LM head", head_axes(grid, options.head), vocabulary));
  // The module that drafts caches as a layer of the model does.
  const double cached_layers =
      model.layers.empty() ? 1 : num_layers / static_cast<double>(model.layers.size());
  memory.cache_bytes_per_token = cached_layers * model.cache_values_per_token * model.cache_bytes_per_value /
                                 std::min(grid.size(grid.attention_heads()), std::max(1, model.cache_split));
  // Hidden and residual, before and after a step, of all rows that some stage may hold; and the logits.
  const double rows = 1.0 * capacity.max_rows * grid.num_replicas();
  memory.work_bytes = 4 * rows * model.hidden * 2 + 4.0 * capacity.max_logit_rows * grid.num_replicas() *
                                                        model.vocab /
                                                        grid.size(head_axes(grid, options.head));
  return memory;
}

}  // namespace lockstep::planning
