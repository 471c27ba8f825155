// lockstep verify: the proof that every start runs: for one configuration, for a whole lattice of them, or
// for a plan from a file.
#include <atomic>
#include <cstdio>
#include <mutex>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/report.h"
#include "lockstep/planning/lattice.h"
#include "lockstep/planning/verifier.h"
#include "lockstep/runtime/measure_machine.h"

namespace lockstep::cli {
namespace {

struct Tally {
  int64_t proven = 0, refused = 0, proofs = 0;
  std::vector<std::string> failures;
};

// Two threads take the next case in turn; the one that finishes it counts.
// For the machine that was measured, if any, else for a GPU and a CPU in turn.
Tally prove_cases(const std::vector<planning::LatticeCase>& cases,
                  const std::optional<planning::MeasuredMachine>& measured) {
  Tally tally;
  ProgressLine progress;
  std::mutex counting;
  std::atomic<size_t> next = 0;
  size_t done = 0;
  const auto work = [&] {
    planning::ProvenPlans proven;  // by this thread
    for (size_t at = next++; at < cases.size() && interrupted().load() == 0; at = next++) {
      const int ranks = cases[at].flags.tp_size.value_or(1);
      const planning::Machine machine = measured      ? planning::machine_of_ranks(*measured, ranks)
                                        : at % 2 == 0 ? planning::h200_machine()
                                                      : planning::cpu_ranks_machine(ranks, 2);
      const planning::CaseResult result = planning::prove_case(cases[at], machine, proven);
      const std::lock_guard lock(counting);
      tally.proofs += result.num_proofs;
      if (!result.failure.empty()) {
        tally.failures.push_back(result.failure);
      } else {
        ++(result.is_refused ? tally.refused : tally.proven);
      }
      progress.show(fmt::format("verify: {} of {} configurations, {} proofs, {} refused, {} failed", ++done,
                                cases.size(), tally.proofs, tally.refused, tally.failures.size()));
    }
  };
  {
    std::jthread other(work);
    work();
  }
  return tally;
}

void print(const Tally& tally, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    fmt::print("{}\n", to_text(Json{{"proven", tally.proven},
                                    {"refused", tally.refused},
                                    {"proofs", tally.proofs},
                                    {"failures", tally.failures}}));
    return;
  }
  for (const std::string& failure : tally.failures) fmt::print("FAILED {}\n", failure);
  fmt::print("{} configurations proven with {} proofs, {} refused, {} failed\n", tally.proven, tally.proofs,
             tally.refused, tally.failures.size());
}

int check_file(const VerifyCommand& command) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  const auto text = read_file(command.plan_file, kMostBytes);
  if (!text) return report(text.error());
  const auto json = parse_json(*text);
  if (!json) return report(invalid_argument("--plan", "{}: {}", command.plan_file, json.error().message));
  const auto checked = planning::check_plan_file(*json);
  if (!checked)
    return report(invalid_argument("--plan", "{}: {}", command.plan_file, checked.error().message));
  if (command.format == OutputFormat::kJson) {
    Json violations = Json::array();
    for (const planning::FoundInFile& found : checked->found) {
      Json one = planning::to_json(found.violation);
      one["plan"] = found.plan;
      violations.push_back(std::move(one));
    }
    fmt::print("{}\n", to_text(Json{{"edges", checked->num_edges},
                                    {"proofs", checked->num_proofs},
                                    {"violations", std::move(violations)}}));
  } else {
    for (const planning::FoundInFile& found : checked->found)
      fmt::print("VIOLATION in {}: {}\n", found.plan, planning::to_text(found.violation));
    fmt::print("{} edges, {} proofs, {} violations\n", checked->num_edges, checked->num_proofs,
               checked->found.size());
  }
  return checked->found.empty() ? kOk : kFailed;
}

int prove_one(const VerifyCommand& command) {
  if (command.engine.model_directory.empty())
    return report(
        invalid_argument("--model", "--model is needed where neither --plan nor --worlds is given"));
  const auto planned = runtime::plan_engine(command.engine);
  if (!planned) return report(planned.error());
  Tally tally;
  // Made anew, so that what every pass made is proven before the next one sees it.
  const auto plans = planning::make_plans(planned->configuration, planned->shape, planned->machine,
                                          planning::Proofs::kAfterEveryPass);
  const Status proof =
      plans ? planning::prove(*plans, planned->configuration.capacity) : Status(plans.error());
  if (proof) {
    tally.proven = 1;
  } else {
    tally.failures.push_back(proof.error().message);
  }
  print(tally, command.format);
  return tally.failures.empty() ? kOk : kFailed;
}

}  // namespace

int run(const VerifyCommand& command) {
  if (!command.plan_file.empty()) return check_file(command);
  if (command.worlds == 0 && command.sample == 0) return prove_one(command);
  constexpr int kMostSampled = 512;
  std::optional<planning::MeasuredMachine> measured;
  if (!command.engine.machine_file.empty()) {
    auto read = runtime::read_machine_file(command.engine.machine_file);
    if (!read) return report(read.error());
    measured = *std::move(read);
  }
  interrupted();
  auto cases = planning::small_worlds(command.worlds);
  for (auto& drawn : planning::sampled_worlds(command.seed, command.sample, kMostSampled))
    cases.push_back(std::move(drawn));
  const Tally tally = prove_cases(cases, measured);
  print(tally, command.format);
  if (interrupted().load() != 0) return kInterrupted;
  return tally.failures.empty() ? kOk : kFailed;
}

}  // namespace lockstep::cli
