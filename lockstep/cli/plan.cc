// lockstep plan: what the flags solve to and the plan, without a weight read.
#include <cstdio>

#include "lockstep/cli/commands.h"
#include "lockstep/cli/report.h"
#include "lockstep/planning/cost_model.h"

namespace lockstep::cli {
namespace {

void print_explained(const runtime::PlannedEngine& planned, const planning::Machine& machine) {
  const planning::Plans& plans = planned.plans;
  fmt::print("{}\ndecode plan\n{}\nprefill plan\n{}", planning::to_text(planned.configuration.settings),
             planning::explain(plans.decode, plans.grid, machine, plans.decode_load),
             planning::explain(plans.prefill, plans.grid, machine, plans.prefill_load));
}

}  // namespace

int run(const PlanCommand& command) {
  runtime::EngineConfig config = command.engine;
  if (!command.machine.empty())
    config.device = command.machine == "h200" ? runtime::Device::kCuda : runtime::Device::kCpu;
  const auto planned = runtime::plan_engine(config);
  if (!planned) return report(planned.error());
  if (command.format == OutputFormat::kJson) {
    fmt::print("{}\n", to_text(runtime::plan_json(*planned)));
  } else if (command.show == PlanCommand::Show::kExplained) {
    print_explained(*planned, planned->machine);
  } else {
    fmt::print("{}", runtime::plan_text(*planned));
  }
  return kOk;
}

}  // namespace lockstep::cli
