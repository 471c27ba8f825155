// A plan that somebody wrote: it is refused with the line, or read as what it says; and whatever it says, the
// verifier looks at it without falling over and calls nothing proven that another pair of eyes does not.
#include <string_view>

#include "lockstep/planning/configuration.h"
#include "lockstep/planning/verifier.h"

namespace {

using namespace lockstep::planning;

// The design's worked example with one dense layer and one of experts.
struct Example {
  RankGrid grid = *RankGrid::make({.num_ranks = 4, .attention_tp = 2, .expert_tp = 1, .dense_tp = 1});
  std::vector<Stage> chain =
      transformer_stages({.hidden = 64,
                          .vocab = 256,
                          .num_heads = 8,
                          .layers = {ModelShape::Ffn::kDense, ModelShape::Ffn::kExperts},
                          .dense_inter = 96,
                          .num_experts = 8,
                          .top_k = 2,
                          .expert_inter = 32},
                         grid, {ExchangeBackend::kInProcess, HeadSplit::kAttentionTp});
  StepPlan step_plan = make_step_plan(
      0, step_shape(grid, {.max_requests = 4, .max_rows = 8, .max_decode_rows = 4, .max_logit_rows = 4}),
      {{.num_requests = 1, .num_target_rows = 3, .logit_rows = {0, 2}},
       {.num_requests = 1, .num_target_rows = 1, .logit_rows = {0}}});
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Example example;
  if (size > 1 << 14) return 0;
  const auto plan = plan_from_text(std::string_view(reinterpret_cast<const char*>(data), size), example.grid);
  if (!plan) {
    if (plan.error().message.rfind("line ", 0) != 0) __builtin_trap();
    return 0;
  }
  const auto again = plan_from_text(to_text(*plan, example.grid), example.grid);
  if (!again || *again != *plan || hash_of(*again) != hash_of(*plan)) __builtin_trap();
  const bool proven = verify(*plan, example.chain, example.grid, example.step_plan).empty();
  const bool right = verify(*plan, example.chain, example.grid, example.step_plan,
                            {.claims = VerifierOptions::Claims::kIgnored})
                         .empty();
  if (proven && !right) __builtin_trap();
  const ShortenedPlan shortened = without_repeats(*plan, example.chain, example.grid);
  if (verify(shortened.plan, shortened.chain, example.grid, example.step_plan).empty() != proven)
    __builtin_trap();
  return 0;
}
