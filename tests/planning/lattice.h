#pragma once
// The configurations that the tests of planning run over: every way to set the flags for a small number of
// ranks.
#include <functional>
#include <string>
#include <vector>

#include "lockstep/planning/configuration.h"
#include "lockstep/planning/divisors.h"

namespace lockstep::planning::test {

inline ModelShape small_model(std::vector<ModelShape::Ffn> layers) {
  return {.hidden = 64,
          .vocab = 256,
          .num_heads = 8,
          .layers = std::move(layers),
          .dense_inter = 96,
          .num_experts = 8,
          .top_k = 3,
          .expert_inter = 32,
          .shared_inter = 32,
          .attention_params = 20000,
          .draft_layers = {ModelShape::Ffn::kExperts}};
}
inline ModelShape mixed_model() {
  using enum ModelShape::Ffn;
  return small_model({kDense, kExperts, kExperts, kDense, kExperts});
}

// Calls f with the flags of every configuration of `ranks` ranks, whether it solves or not.
inline void for_each_flags(int ranks, const std::function<void(const ParallelFlags&)>& f) {
  for (const int dp : divisors(ranks))
    for (const int ep : divisors(ranks))
      for (const int dense : divisors(ranks))
        for (const bool head : {false, true})
          for (const char* backend : {"none", "in_process"})
            f({.tp_size = ranks,
               .dp_size = dp,
               .enable_dp_attention = dp > 1 || head,
               .ep_size = ep,
               .moe_dense_tp_size = dense,
               .enable_dp_lm_head = head,
               .moe_a2a_backend = backend,
               .max_running_requests = 2 * ranks + 1,
               .chunked_prefill_size = 8});
}

inline std::vector<std::string> all_passes() {
  std::vector<std::string> names;
  for (const Pass& pass : default_passes()) names.emplace_back(pass.name);
  return names;
}

inline std::string to_text(const ParallelFlags& flags) {
  return fmt::format("tp {} dp {} ep {} dense {} dp_head {} a2a {}", *flags.tp_size, *flags.dp_size,
                     *flags.ep_size, *flags.moe_dense_tp_size, flags.enable_dp_lm_head,
                     *flags.moe_a2a_backend);
}

}  // namespace lockstep::planning::test
