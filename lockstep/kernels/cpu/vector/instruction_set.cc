#include <fmt/ranges.h>
#include <hwy/targets.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/kernels/device.h"

namespace lockstep::kernels {

Status use_instruction_set(std::string_view name) {
  static constexpr std::pair<std::string_view, int64_t> kSets[] = {
#if HWY_ARCH_X86
      {"avx512", HWY_AVX3},
      {"avx2", HWY_AVX2},
      {"sse4", HWY_SSE4},
#else
      {"neon", HWY_NEON},
#endif
      {"portable", HWY_SCALAR}};
  // The choice is the process's, and kernels that exist would change under those who use them.
  if (hwy::GetChosenTarget().IsInitialized()) {
    const std::string chosen(make_cpu_kernels()->name());
    if (chosen == name) return Done{};
    return invalid_argument("--instruction-set",
                            "--instruction-set {} is too late: this process computes with {} already; start "
                            "an engine with another set in a process of its own",
                            name, chosen);
  }
  hwy::SetSupportedTargetsForTest(0);  // what the machine has
  std::vector<std::string_view> there;
  for (const auto& [known, target] : kSets) {
    if (target != HWY_SCALAR && (hwy::SupportedTargets() & target) == 0) continue;
    there.push_back(known);
    if (known != name) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    return Done{};
  }
  return invalid_argument("--instruction-set", "--instruction-set {} is not one that this machine runs: {}",
                          name, fmt::join(there, ", "));
}

}  // namespace lockstep::kernels
