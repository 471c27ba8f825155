#include "lockstep/planning/lattice.h"

#include <algorithm>

#include "lockstep/base/hash.h"
#include "lockstep/planning/divisors.h"
#include "lockstep/planning/verifier.h"

namespace lockstep::planning {
namespace {

using enum ModelShape::Ffn;
using Layers = std::vector<ModelShape::Ffn>;
enum class Head : uint8_t { kAllRanks, kReplica, kOwnWidth };

std::vector<Layers> layer_orders() {
  return {{kDense, kDense},
          {kExperts, kExperts},
          {kDense, kExperts, kExperts, kDense},
          {kExperts, kDense, kExperts}};
}

// A tap changes what follows the last layer, and a draft has one layer: where all layers are of a kind, both
// are seen beside each kind.
bool drafts(const Layers& layers) { return std::equal(layers.begin() + 1, layers.end(), layers.begin()); }

// Sparse layers alone make something of rows before these come together: of the orders with experts the
// shortest.
ModelShape model_of(const Layers& layers) {
  const bool has_latents = layers == Layers{kExperts, kExperts};
  return {.hidden = 64,
          .vocab = 256,
          .num_heads = 8,
          .layers = layers,
          .dense_inter = 96,
          .num_experts = 512,
          .top_k = 3,
          .expert_inter = 32,
          .shared_inter = 32,
          .attention_params = 20000,
          .draft_layers = {layers.back()},
          .latent_width = has_latents ? 24 : 0,
          .latent_params = has_latents ? 5000.0 : 0};
}

ParallelFlags base_flags(int ranks, int dp, int ep, int moe_dp, int dense) {
  return {.tp_size = ranks,
          .dp_size = dp,
          .enable_dp_attention = dp > 1,
          .ep_size = ep,
          .moe_dense_tp_size = dense,
          .moe_dp_size = moe_dp,
          .max_running_requests = 2 * ranks + 1,
          .chunked_prefill_size = 8};
}

// Every replica as full as admission lets it be.
StepPlan fullest(const StepShape& shape, Forward forward) {
  std::vector<ReplicaCounts> counts(static_cast<size_t>(shape.num_replicas));
  for (ReplicaCounts& replica : counts) {
    replica.num_requests = shape.capacity.max_requests;
    num_rows(replica, forward) = shape.capacity.max_rows;
    const int32_t wanted = std::min(shape.capacity.max_logit_rows, shape.capacity.max_rows);
    for (int32_t row = 0; row < wanted; ++row) replica.logit_rows.push_back(row);
    if (forward == Forward::kTarget) replica.prompt_rows = {shape.capacity.max_rows};
  }
  return make_step_plan(0, shape, std::move(counts), forward);
}

// Everything that verify() and the step plans are made of.
uint64_t proof_key(const Plans& plans, const Plan& plan, const std::vector<StepPlan>& step_plans) {
  Hasher hasher;
  const GridShape& grid = plans.grid.shape();
  for (const int width : {grid.num_ranks, grid.attention_tp, grid.expert_tp, grid.dense_tp, grid.moe_dp,
                          grid.head_tp, grid.embedding_tp, grid.attn_cp})
    hasher.add(static_cast<uint64_t>(width));
  hasher.add(static_cast<uint64_t>(grid.row_shares));
  for (const Stage& stage : plans.chain) {
    hasher.add(static_cast<uint64_t>(stage.kind)).add(static_cast<uint64_t>(stage.layer));
    hasher.add(stage.signatures.size());
    for (const Signature& signature : stage.signatures) {
      hasher.add(signature.needs.bits()).add(signature.gives.bits()).add(signature.exchange.bits());
      for (const auto choice : {static_cast<int>(signature.shared), static_cast<int>(signature.mask),
                                static_cast<int>(signature.ids), static_cast<int>(signature.slots)})
        hasher.add(static_cast<uint64_t>(choice));
    }
  }
  for (const StepPlan& step_plan : step_plans) hasher.add(step_plan.hash);
  return hasher.add(hash_of(plan)).value();
}

std::string prove_plan(const Plans& plans, Regime regime, const std::vector<StepPlan>& step_plans,
                       int& num_proofs, ProvenPlans& proven) {
  const Plan& plan = plans.of(regime);
  const uint64_t key = proof_key(plans, plan, step_plans);
  if (proven.count(key) != 0) return "";
  if (const auto found = check_structure(plan, plans.chain, plans.grid); !found.empty())
    return to_text(found[0]);
  const ShortenedPlan shortened = without_repeats(plan, plans.chain, plans.grid);
  for (const StepPlan& step_plan : step_plans) {
    ++num_proofs;
    if (const auto found = verify(shortened.plan, shortened.chain, plans.grid, step_plan); !found.empty())
      return fmt::format("the {} plan: {}", name_of(regime), to_text(found[0]));
  }
  proven.insert(key);
  return "";
}

// All regimes of one chain; empty where nothing was found.
std::string prove_plans(const Plans& plans, const Capacity& capacity, Forward forward, int& num_proofs,
                        ProvenPlans& proven) {
  const StepShape shape = step_shape(plans.grid, capacity);
  std::vector<StepPlan> step_plans = probing_step_plans(shape, forward);
  step_plans.push_back(fullest(shape, forward));
  for (const Regime regime : kRegimes) {
    const std::string failure = prove_plan(plans, regime, step_plans, num_proofs, proven);
    if (!failure.empty()) return failure;
  }
  return "";
}

}  // namespace

std::string to_text(const LatticeCase& one) {
  const ParallelFlags& f = one.flags;
  std::string layers;
  for (const auto layer : one.layers) layers += layer == kDense ? 'd' : 'e';
  return fmt::format(
      "--tp-size {} --dp-size {} --attn-cp-size {} --ep-size {} --moe-dp-size {} --moe-dense-tp-size {} "
      "--moe-a2a-backend {} "
      "--embedding-tp-size {} --lm-head-tp-size {} --shared-experts {}{}{}, layers {}",
      f.tp_size.value_or(1), f.dp_size.value_or(1), f.attn_cp_size.value_or(1), f.ep_size.value_or(1),
      f.moe_dp_size.value_or(1), f.moe_dense_tp_size.value_or(0), f.moe_a2a_backend.value_or("none"),
      f.embedding_tp_size.value_or(1), f.lm_head_tp_size.value_or(0), f.shared_experts.value_or("split"),
      f.enable_dp_lm_head ? " --enable-dp-lm-head" : "",
      f.speculative_algorithm ? " --speculative-algorithm " + *f.speculative_algorithm : "", layers);
}

std::vector<LatticeCase> small_worlds(int most) {
  std::vector<LatticeCase> cases;
  uint64_t turn = 0;
  // The ways of what lies at the ends of the chain and beside the experts, for one choice of the rest.
  const auto add_ends = [&](const LatticeCase& base, const std::vector<int>& widths) {
    for (const int embedding : widths)
      for (const char* shared : {"split", "whole"})
        for (const Head head : {Head::kAllRanks, Head::kReplica, Head::kOwnWidth}) {
          LatticeCase one = base;
          one.flags.embedding_tp_size = embedding;
          one.flags.shared_experts = shared;
          one.flags.enable_dp_lm_head = head == Head::kReplica;
          one.flags.enable_dp_attention |= head == Head::kReplica;
          if (head == Head::kOwnWidth) one.flags.lm_head_tp_size = widths[turn++ % widths.size()];
          cases.push_back(one);
          if (!drafts(base.layers)) continue;
          one.flags.speculative_algorithm = "NEXTN";
          one.flags.speculative_num_steps = 1;
          cases.push_back(std::move(one));
        }
  };
  for (int ranks = 1; ranks <= most; ++ranks) {
    const std::vector<int> widths = divisors(ranks);
    for (const int dp : widths)
      for (const int ep : widths)
        for (const int moe_dp : widths)
          for (const int dense : widths)
            for (const int cp : divisors(ranks / dp))
              for (const ExchangeBackend backend : kExchangeBackends)
                for (const Layers& layers : layer_orders()) {
                  LatticeCase one{base_flags(ranks, dp, ep, moe_dp, dense), layers};
                  one.flags.moe_a2a_backend = name_of(backend);
                  one.flags.attn_cp_size = cp;
                  // What cannot be for these cannot be for any head or embedding either: counted once.
                  if (works(one.flags, model_of(layers))) {
                    add_ends(one, widths);
                  } else {
                    cases.push_back(std::move(one));
                  }
                }
  }
  return cases;
}

std::vector<LatticeCase> sampled_worlds(uint64_t seed, int num, int most) {
  std::vector<LatticeCase> cases;
  uint64_t counter = 0;
  const auto draw = [&](size_t below) {
    return std::min(below - 1,
                    static_cast<size_t>(uniform_draw(seed, counter++) * static_cast<double>(below)));
  };
  while (static_cast<int>(cases.size()) < num) {
    const int ranks = 1 + static_cast<int>(draw(static_cast<size_t>(most)));
    const std::vector<int> widths = divisors(ranks);
    const auto width = [&] { return widths[draw(widths.size())]; };
    LatticeCase one{base_flags(ranks, width(), width(), width(), width()), layer_orders()[draw(4)]};
    one.flags.moe_a2a_backend = name_of(kExchangeBackends[draw(std::size(kExchangeBackends))]);
    one.flags.embedding_tp_size = width();
    const std::vector<int> contexts = divisors(ranks / *one.flags.dp_size);
    one.flags.attn_cp_size = contexts[draw(contexts.size())];
    one.flags.shared_experts = draw(2) == 0 ? "split" : "whole";
    const auto head = static_cast<Head>(draw(3));
    one.flags.enable_dp_lm_head = head == Head::kReplica && *one.flags.dp_size > 1;
    if (head == Head::kOwnWidth) one.flags.lm_head_tp_size = width();
    if (draw(2) == 0) one.flags.speculative_algorithm = "NEXTN";
    if (works(one.flags, model_of(one.layers))) cases.push_back(std::move(one));
  }
  return cases;
}

CaseResult prove_case(const LatticeCase& one, const Machine& machine) {
  ProvenPlans proven;
  return prove_case(one, machine, proven);
}

CaseResult prove_case(const LatticeCase& one, const Machine& machine, ProvenPlans& proven) {
  const ModelShape model = model_of(one.layers);
  if (!works(one.flags, model)) return {.is_refused = true, .failure = {}};
  const auto solved = solve(one.flags, model, machine);
  const auto plans = solved ? make_plans(*solved, model, machine) : Result<Plans>(solved.error());
  if (!plans) return {.failure = to_text(one) + ": " + plans.error().message};
  CaseResult result;
  result.failure = prove_plans(*plans, solved->capacity, Forward::kTarget, result.num_proofs, proven);
  if (plans->draft && result.failure.empty()) {
    result.failure = prove_plans(*plans->draft, solved->capacity, Forward::kDraft, result.num_proofs, proven);
    if (!result.failure.empty()) result.failure = "of the drafts " + result.failure;
  }
  if (!result.failure.empty()) result.failure = to_text(one) + ": " + result.failure;
  return result;
}

}  // namespace lockstep::planning
