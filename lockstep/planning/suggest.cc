#include "lockstep/planning/suggest.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "lockstep/planning/divisors.h"

namespace lockstep::planning {
namespace {

using Ffn = ModelShape::Ffn;

int count_of(const ModelShape& model, Ffn kind) {
  return static_cast<int>(std::count(model.layers.begin(), model.layers.end(), kind));
}

// A decode step of the whole model, from plans of a few layers: what another layer of a kind adds is the same
// however many there are.
class StepTime {
 public:
  StepTime(const ModelShape& model, const Configuration& solved, const RankGrid& grid, const Machine& machine)
      : model_(model), solved_(solved), grid_(grid), machine_(machine) {}

  std::optional<double> us(const Load& load) const {
    const int dense = count_of(model_, Ffn::kDense), sparse = count_of(model_, Ffn::kExperts);
    const auto base = planned(std::min(dense, 1), std::min(sparse, 1), load);
    if (!base) return std::nullopt;
    double total = *base;
    if (dense > 1) total += (dense - 1) * (*planned(2, std::min(sparse, 1), load) - *base);
    if (sparse > 1) total += (sparse - 1) * (*planned(std::min(dense, 1), 2, load) - *base);
    return total;
  }

 private:
  std::optional<double> planned(int dense, int sparse, const Load& load) const {
    ModelShape few = model_;
    few.layers.assign(static_cast<size_t>(dense), Ffn::kDense);
    few.layers.insert(few.layers.end(), static_cast<size_t>(sparse), Ffn::kExperts);
    // The cache of one layer stays what it is.
    few.cache_values_per_token *= static_cast<double>(few.layers.size()) /
                                  static_cast<double>(std::max<size_t>(1, model_.layers.size()));
    const auto chain = transformer_stages(few, grid_, solved_.stages);
    const auto plan = make_plan(chain, {grid_, machine_, load});
    if (!plan) return std::nullopt;
    return total_us(*plan, chain, grid_, machine_, load);
  }

  const ModelShape& model_;
  const Configuration& solved_;
  const RankGrid& grid_;
  const Machine& machine_;
};

// Every way to set the flags that matters for a model; solve() says which work.
std::vector<ParallelFlags> candidates(const ModelShape& model, int ranks) {
  std::vector<ParallelFlags> found;
  const bool has_experts = count_of(model, Ffn::kExperts) > 0, has_dense = count_of(model, Ffn::kDense) > 0;
  for (const int dp : divisors(ranks))
    for (const int ep : has_experts ? divisors(ranks) : std::vector<int>{1})
      for (const char* backend : {"none", "in_process"})
        for (const int dense : std::set<int>{1, ranks / dp, ranks})
          for (const bool head : {false, true}) {
            if ((ep == 1) != (std::string_view(backend) == "none") && ep == 1) continue;
            if (head && dp == 1) continue;
            if (!has_dense && dense != ranks) continue;
            ParallelFlags flags{.tp_size = ranks, .enable_dp_attention = dp > 1, .enable_dp_lm_head = head};
            if (dp > 1) flags.dp_size = dp;
            if (has_experts) flags.ep_size = ep;
            if (has_experts) flags.moe_a2a_backend = backend;
            if (has_dense) flags.moe_dense_tp_size = dense;
            found.push_back(std::move(flags));
          }
  return found;
}

// Room for the cache decides how many rows a replica can decode; their number decides the step.
std::optional<Suggestion> priced(ParallelFlags flags, const ModelShape& model,
                                 const SuggestRequest& request) {
  flags.max_running_requests = request.num_ranks;
  const auto tried = solve(flags, model, request.machine);
  if (!tried) return std::nullopt;
  const auto grid = RankGrid::make(tried->grid);
  if (!grid) return std::nullopt;
  const int width = grid->shape().attention_tp, replicas = grid->num_replicas();
  const RankMemory memory = memory_of(model, *grid, tried->stages, tried->capacity);
  const double budget = request.machine.memory_gb * 1e9 * request.memory_share;
  const double left = budget - memory.weight_bytes - memory.work_bytes;
  const double a_request =
      memory.cache_bytes_per_token * request.context + request.state_bytes_per_request / width;
  if (left < a_request) return std::nullopt;
  int rows = request.max_rows_per_rank * width;
  if (a_request > 0) rows = static_cast<int>(std::min<double>(rows, left / a_request));
  if (request.objective == Objective::kLatency) rows = 1;
  if (rows < 1) return std::nullopt;
  Load load{.rows_per_replica = round_up(rows, width),
            .hidden = model.hidden,
            .top_k = std::max(1, model.top_k),
            .vocab = model.vocab,
            .context = request.context,
            .latent = model.latent_width};
  const auto us = StepTime(model, *tried, *grid, request.machine).us(load);
  if (!us || *us <= 0) return std::nullopt;
  Suggestion one{.flags = flags, .rows_per_replica = rows, .num_replicas = replicas, .step_us = *us};
  one.flags.max_running_requests = rows * replicas;
  one.launch = launch_line(one.flags);
  one.tokens_per_second = 1e6 * rows * replicas / *us;
  one.tokens_per_second_of_request = 1e6 / *us;
  one.weight_gb = memory.weight_bytes / 1e9;
  one.cache_gb = rows * a_request / 1e9;
  one.total_gb = one.weight_gb + one.cache_gb + memory.work_bytes / 1e9;
  return one;
}

}  // namespace

Result<std::vector<Suggestion>> suggest(const ModelShape& model, const SuggestRequest& request, size_t most) {
  if (request.context < 1)
    return invalid_argument("--context", "--context {} is not at least 1", request.context);
  std::vector<Suggestion> found;
  for (ParallelFlags& flags : candidates(model, request.num_ranks))
    if (auto one = priced(std::move(flags), model, request)) found.push_back(*std::move(one));
  if (found.empty()) {
    const RankGrid one = *RankGrid::make({});
    const double whole = memory_of(model, one, {}, {}).weight_bytes;
    return invalid_argument(
        "--machine",
        "no configuration of {} ranks with {:.0f} GB each has room for the weights ({:.0f} "
        "GB in all) and {} tokens: take more ranks or a shorter --context",
        request.num_ranks, request.machine.memory_gb, whole / 1e9, request.context);
  }
  const auto worth = [&](const Suggestion& one) {
    return request.objective == Objective::kLatency ? one.tokens_per_second_of_request
                                                    : one.tokens_per_second;
  };
  // Of configurations that are worth the same, whole experts first: their products are larger.
  std::stable_sort(found.begin(), found.end(), [&](const Suggestion& a, const Suggestion& b) {
    const double one = worth(a), other = worth(b);
    return one != other ? one > other : a.flags.ep_size.value_or(1) > b.flags.ep_size.value_or(1);
  });
  const auto same = [&](const Suggestion& a, const Suggestion& b) {
    return worth(a) == worth(b) && a.total_gb == b.total_gb;
  };
  found.erase(std::unique(found.begin(), found.end(), same), found.end());
  if (found.size() > most) found.resize(most);
  return found;
}

}  // namespace lockstep::planning
