#pragma once
// The parallel configurations that equivalence and golden tests run over: 1, 2, 4 and 8 ranks, with the two
// of which other engines gave nonsense or NaN among them.
#include <string>
#include <vector>

#include "lockstep/planning/configuration.h"
#include "tests/sanitized.h"

namespace lockstep::test {

struct NamedFlags {
  std::string name;
  planning::ParallelFlags flags;
};

using lockstep::test::kSanitized;

inline planning::ParallelFlags flags(int tp, int dp, int ep, const char* a2a, int dense) {
  return {.tp_size = tp,
          .dp_size = dp,
          .enable_dp_attention = dp > 1,
          .ep_size = ep,
          .moe_dense_tp_size = dense,
          .moe_a2a_backend = a2a};
}

inline planning::ParallelFlags with_dp_head(planning::ParallelFlags flags) {
  flags.enable_dp_lm_head = true;
  return flags;
}

inline planning::ParallelFlags with_max_running(planning::ParallelFlags flags, int requests) {
  flags.max_running_requests = requests;
  return flags;
}

inline std::vector<NamedFlags> all_configurations() {
  return {
      {"one_rank", flags(1, 1, 1, "none", 1)},
      {"tp2", flags(2, 1, 1, "none", 2)},
      {"tp2_ep2_dispatch", flags(2, 1, 2, "in_process", 1)},
      {"dp2", flags(2, 2, 1, "none", 2)},
      {"dp2_ep2_dispatch_dense1_dphead", with_dp_head(flags(2, 2, 2, "in_process", 1))},
      {"tp4", flags(4, 1, 1, "none", 4)},
      {"tp4_ep4", flags(4, 1, 4, "none", 4)},
      {"tp4_ep2_dispatch_dense2", flags(4, 1, 2, "in_process", 2)},
      // Scattered dense layers with fusion allowed and a request limit that the attention-TP width 2 does not
      // divide.
      {"scattered_dense_fusion_odd_limit", with_max_running(flags(4, 2, 4, "in_process", 1), 7)},
      // Fixed-geometry dispatch, dense layers whole on every rank, LM head over attention-TP, replicas of
      // unequal load.
      {"fixed_geometry_dense1_dphead", with_dp_head(with_max_running(flags(4, 4, 4, "in_process", 1), 9))},
      {"tp4_dp2_gather_dense4", flags(4, 2, 4, "none", 4)},
      {"tp4_dp2_ep2_experts_tp2", flags(4, 2, 2, "in_process", 2)},
      {"tp4_dp4_ep1_dense1", with_dp_head(flags(4, 4, 1, "none", 1))},
      {"tp8", flags(8, 1, 1, "none", 8)},
      {"tp8_dp2_ep8_dense1", flags(8, 2, 8, "in_process", 1)},
      {"tp8_dp4_ep2_experts_tp4_dense2", flags(8, 4, 2, "in_process", 2)},
      {"tp8_dp8_ep8_dphead", with_dp_head(flags(8, 8, 8, "in_process", 1))},
      {"tp8_dp2_ep4_dense4", flags(8, 2, 4, "none", 4)},
  };
}

// All of them, or the few that sanitizers look at.
inline std::vector<NamedFlags> configurations() {
  if (!kSanitized) return all_configurations();
  std::vector<NamedFlags> few;
  for (const NamedFlags& named : all_configurations())
    for (const char* name : {"one_rank", "scattered_dense_fusion_odd_limit", "fixed_geometry_dense1_dphead",
                             "tp4_dp2_gather_dense4", "tp8_dp4_ep2_experts_tp4_dense2"})
      if (named.name == name) few.push_back(named);
  return few;
}

// Of a model without experts: those that spread none, and some that only such models are asked for; on three
// ranks neither heads nor widths divide.
inline std::vector<NamedFlags> dense_configurations() {
  std::vector<NamedFlags> found;
  for (const NamedFlags& named : configurations())
    if (named.flags.ep_size == 1) found.push_back(named);
  found.push_back({"tp3", flags(3, 1, 1, "none", 3)});
  found.push_back({"tp4_dp2_dense2", flags(4, 2, 1, "none", 2)});
  found.push_back({"tp8_dp2_dense1_dphead", with_dp_head(flags(8, 2, 1, "none", 1))});
  return found;
}

// With experts, where heads are shared: three ranks of which some begin in the middle of a group of heads.
inline std::vector<NamedFlags> grouped_configurations() {
  std::vector<NamedFlags> found = configurations();
  found.push_back({"tp3_ep3_dispatch", flags(3, 1, 3, "in_process", 1)});
  return found;
}

}  // namespace lockstep::test
