// lockstep verify: the proof that every start runs, for one configuration or for a whole lattice of them.
#include <cstdio>

#include "lockstep/cli/commands.h"
#include "lockstep/cli/report.h"
#include "lockstep/planning/verifier.h"

namespace lockstep::cli {
namespace {

struct Tally {
  int proven = 0, refused = 0;
  std::vector<std::string> failures;
};

std::vector<int> divisors(int number) {
  std::vector<int> found;
  for (int d = 1; d <= number; ++d)
    if (number % d == 0) found.push_back(d);
  return found;
}

void prove_one(const planning::ParallelFlags& flags, const runtime::PlannedEngine& base, Tally& tally) {
  const auto solved = planning::solve(flags, base.shape, base.machine);
  if (!solved) {
    ++tally.refused;
    return;
  }
  const auto plans = planning::make_plans(*solved, base.shape, base.machine);
  const auto proof = plans ? planning::prove(*plans, solved->capacity) : Status(plans.error());
  if (proof) {
    ++tally.proven;
  } else {
    tally.failures.push_back(
        fmt::format("{}\n{}", proof.error().message, planning::to_text(solved->settings)));
  }
}

Tally prove_worlds(int most, const runtime::PlannedEngine& base) {
  Tally tally;
  ProgressLine progress;
  for (int ranks = 1; ranks <= most; ++ranks)
    for (const int dp : divisors(ranks))
      for (const int ep : divisors(ranks))
        for (const int dense : divisors(ranks))
          for (const bool dp_head : {false, true})
            for (const char* backend : {"none", "in_process"}) {
              if (interrupted().load() != 0) return tally;
              prove_one({.tp_size = ranks,
                         .dp_size = dp,
                         .enable_dp_attention = dp > 1 || dp_head,
                         .ep_size = ep,
                         .moe_dense_tp_size = dense,
                         .enable_dp_lm_head = dp_head,
                         .moe_a2a_backend = backend,
                         .max_running_requests = 2 * ranks + 1,
                         .chunked_prefill_size = 16},
                        base, tally);
              progress.show(
                  fmt::format("verify: {} ranks, {} proven, {} refused", ranks, tally.proven, tally.refused));
            }
  return tally;
}

void print(const Tally& tally, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    fmt::print(
        "{}\n",
        to_text(Json{{"proven", tally.proven}, {"refused", tally.refused}, {"failures", tally.failures}}));
    return;
  }
  for (const std::string& failure : tally.failures) fmt::print("FAILED {}\n", failure);
  fmt::print("{} configurations proven, {} refused, {} failed\n", tally.proven, tally.refused,
             tally.failures.size());
}

}  // namespace

int run(const VerifyCommand& command) {
  auto planned = runtime::plan_engine(command.engine);
  if (!planned) return report(planned.error());
  Tally tally;
  if (command.worlds > 0) {
    interrupted();
    tally = prove_worlds(command.worlds, *planned);
  } else {
    const auto proof = planning::prove(planned->plans, planned->configuration.capacity);
    if (proof) {
      tally.proven = 1;
    } else {
      tally.failures.push_back(proof.error().message);
    }
  }
  print(tally, command.format);
  if (command.worlds > 0 && interrupted().load() != 0) return kInterrupted;
  return tally.failures.empty() ? kOk : kFailed;
}

}  // namespace lockstep::cli
