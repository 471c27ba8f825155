// lockstep plan: what the flags solve to and the plan, the trace of one step, or the configurations that suit
// a machine; without a weight read.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "lockstep/cli/commands.h"
#include "lockstep/cli/report.h"
#include "lockstep/planning/cost_model.h"
#include "lockstep/planning/plan_page.h"
#include "lockstep/planning/prior_art.h"
#include "lockstep/runtime/measure_machine.h"

namespace lockstep::cli {
namespace {

void print_explained(const runtime::PlannedEngine& planned) {
  const planning::Plans& plans = planned.plans;
  fmt::print("{}", planning::to_text(planned.configuration.settings));
  const auto explain = [&planned](std::string_view whose, const planning::Plans& of,
                                  planning::Regime regime) {
    fmt::print("\n{}{} plan\n{}", whose, planning::name_of(regime),
               planning::explain(of.of(regime), of.grid, planned.machine, of.load_of(regime)));
  };
  for (const planning::Regime regime : planning::kRegimes) {
    explain("", plans, regime);
    fmt::print(
        "{}", planning::to_text(planning::spent_beside_prior_art(plans, planned.configuration.stages.exchange,
                                                                 planned.shape, planned.machine, regime)));
  }
  if (plans.draft)
    for (const planning::Regime regime : planning::kRegimes) explain("drafts' ", *plans.draft, regime);
}

planning::TraceSizes sizes_of(const runtime::PlannedEngine& planned) {
  return {.hidden = planned.shape.hidden,
          .vocab = planned.shape.vocab,
          .top_k = std::max(1, planned.shape.top_k),
          .bytes_per_value = planned.machine.bytes_per_value,
          .latent = planned.shape.latent_width};
}

void print_trace(const runtime::PlannedEngine& planned, const planning::StepPlan& step_plan) {
  const auto trace = planning::trace_of(planned.plans.of(step_plan.regime), planned.plans.grid, step_plan,
                                        sizes_of(planned));
  fmt::print("\ntrace of a {} step\n", planning::name_of(step_plan.regime));
  for (size_t rank = 0; rank < trace.size(); ++rank) {
    fmt::print("rank {}\n", rank);
    for (const planning::TracedStep& step : trace[rank])
      fmt::print("  {:<44} {:<28} {:<8} ranks {} rows {} -> {}, {} B out\n", step.edge,
                 planning::name_of(step.op), planning::name_of(step.value), fmt::join(step.group, " "),
                 step.rows_in, step.rows_out, step.bytes);
  }
}

Status write_page(const PlanCommand& command, const runtime::PlannedEngine& planned) {
  std::ofstream out(command.html_file);
  out << planning::plan_page(
      {.title = fmt::format("{} on {} ranks", planned.model.name, planned.plans.grid.num_ranks()),
       .configuration = planned.configuration,
       .plans = planned.plans,
       .model = planned.shape,
       .machine = planned.machine});
  if (out.flush()) return Done{};
  return invalid_argument("--html", "--html {}: the page could not be written", command.html_file);
}

Json to_json(const planning::Suggestion& one) {
  return {{"launch", one.launch},
          {"rows_per_replica", one.rows_per_replica},
          {"replicas", one.num_replicas},
          {"step_us", one.step_us},
          {"tokens_per_second", one.tokens_per_second},
          {"tokens_per_second_of_request", one.tokens_per_second_of_request},
          {"weight_gb", one.weight_gb},
          {"cache_gb", one.cache_gb},
          {"total_gb", one.total_gb}};
}

// Of what --suggest looks for itself, the first that was given; empty: nothing was.
std::string_view given_beside_suggest(const planning::ParallelFlags& flags) {
  if (flags.dp_size || flags.enable_dp_attention) return "--dp-size";
  if (flags.ep_size) return "--ep-size";
  if (flags.moe_a2a_backend) return "--moe-a2a-backend";
  if (flags.moe_dense_tp_size) return "--moe-dense-tp-size";
  if (flags.enable_dp_lm_head) return "--enable-dp-lm-head";
  if (flags.lm_head_tp_size) return "--lm-head-tp-size";
  if (flags.embedding_tp_size) return "--embedding-tp-size";
  if (flags.moe_dp_size) return "--moe-dp-size";
  if (flags.attn_cp_size) return "--attn-cp-size";
  if (flags.cp_strategy) return "--cp-strategy";
  if (flags.shared_experts) return "--shared-experts";
  if (flags.speculative_algorithm) return "--speculative-algorithm";
  return flags.max_running_requests ? "--max-running-requests" : "";
}

bool names_file(std::string_view machine) {
  return machine.ends_with(".json") || machine.find('/') != std::string_view::npos;
}

// What suggestions are for, and what a launch line says of it beside the flags.
struct Target {
  planning::MachineOfRanks of;
  std::string name, launch;
};

Result<Target> target_of(const PlanCommand& command) {
  const std::optional<int> ranks = command.engine.parallel.tp_size;
  if (names_file(command.machine)) {
    const auto measured = runtime::read_machine_file(command.machine);
    if (!measured) return measured.error();
    const int num_ranks = ranks.value_or(measured->worlds.back().num_ranks);
    const bool is_gpu = measured->ranks == planning::MeasuredMachine::Ranks::kOwnDevices;
    return Target{{planning::machine_of_ranks(*measured, num_ranks), num_ranks},
                  command.machine,
                  fmt::format("{} --machine {}", is_gpu ? " --device cuda" : "", command.machine)};
  }
  const bool is_gpu = command.engine.device == runtime::Device::kCuda;
  const std::string name = !command.machine.empty()
                               ? command.machine
                               : fmt::format("{}x{}", ranks.value_or(1), is_gpu ? "H200" : "cpu");
  auto machine = planning::machine_named(name);
  if (!machine) return machine.error();
  if (ranks && *ranks != machine->num_ranks)
    return invalid_argument("--tp-size", "--tp-size {} and --machine {} name different numbers of ranks",
                            *ranks, name);
  const bool is_h200 = machine->machine.name == planning::h200_machine().name;
  return Target{*std::move(machine), name, is_h200 ? " --device cuda" : ""};
}

int run_suggest(const PlanCommand& command) {
  if (const std::string_view flag = given_beside_suggest(command.engine.parallel); !flag.empty())
    return report(invalid_argument(std::string(flag),
                                   "{} is among what --suggest looks for: leave it out, or plan without "
                                   "--suggest",
                                   flag));
  const auto sizes = runtime::sizes_of_config(command.engine.model_directory);
  if (!sizes) return report(sizes.error());
  if (command.context > sizes->context_length)
    return report(invalid_argument("--context", "--context {} is more than the {} tokens of the model",
                                   command.context, sizes->context_length));
  const auto target = target_of(command);
  if (!target) return report(target.error());
  auto found = planning::suggest(sizes->shape,
                                 {.machine = target->of.machine,
                                  .num_ranks = target->of.num_ranks,
                                  .objective = command.objective,
                                  .context = command.context,
                                  .state_bytes_per_request = sizes->state_bytes_per_sequence},
                                 3);
  if (!found) return report(found.error());
  for (planning::Suggestion& one : *found) one.launch += target->launch;
  if (command.format == OutputFormat::kJson) {
    Json list = Json::array();
    for (const planning::Suggestion& one : *found) list.push_back(to_json(one));
    fmt::print("{}\n", to_text(Json{{"machine", target->name}, {"suggestions", std::move(list)}}));
    return kOk;
  }
  int place = 0;
  for (const planning::Suggestion& one : *found)
    fmt::print(
        "{}. lockstep serve --model {} {}\n   predicted {:.0f} tokens/s ({:.1f} a request, {} requests, a "
        "step of {:.2f} ms); memory of a rank {:.1f} GB: weights {:.1f}, cache {:.1f}\n",
        ++place, command.engine.model_directory, one.launch, one.tokens_per_second,
        one.tokens_per_second_of_request, one.rows_per_replica * one.num_replicas, one.step_us / 1e3,
        one.total_gb, one.weight_gb, one.cache_gb);
  return kOk;
}

Result<runtime::PlannedEngine> plan_for_machine(const PlanCommand& command) {
  runtime::EngineConfig config = command.engine;
  if (command.machine == "h200") config.device = runtime::Device::kCuda;
  if (command.machine == "cpu") config.device = runtime::Device::kCpu;
  if (names_file(command.machine)) config.machine_file = command.machine;
  auto planned = runtime::plan_engine(config);
  if (!planned || command.machine.empty() || command.machine == "h200" || command.machine == "cpu" ||
      names_file(command.machine))
    return planned;
  auto machine = planning::machine_named(command.machine);
  if (!machine) return machine.error();
  if (const int ranks = planned->plans.grid.num_ranks(); ranks != machine->num_ranks)
    return invalid_argument("--machine", "--machine {} and --tp-size {} name different numbers of ranks",
                            command.machine, ranks);
  planned->machine = machine->machine;
  auto plans = planning::make_plans(planned->configuration, planned->shape, planned->machine);
  if (!plans) return plans.error();
  planned->plans = *std::move(plans);
  return planned;
}

}  // namespace

int run(const PlanCommand& command) {
  if (command.task == PlanCommand::Task::kSuggest) return run_suggest(command);
  auto planned = plan_for_machine(command);
  if (!planned) return report(planned.error());
  std::optional<planning::StepPlan> step_plan;
  if (!command.rows.empty()) {
    auto made =
        planning::step_of_rows(planned->plans, planned->configuration.capacity, command.rows, command.phase);
    if (!made) return report(made.error());
    step_plan = *std::move(made);
  }
  if (!command.html_file.empty())
    if (const Status status = write_page(command, *planned); !status) return report(status.error());
  if (command.format == OutputFormat::kJson) {
    Json json = runtime::plan_json(*planned);
    if (step_plan) planning::add_trace(json, planned->plans, *step_plan, sizes_of(*planned));
    fmt::print("{}\n", to_text(json));
    return kOk;
  }
  if (command.show == PlanCommand::Show::kExplained) {
    print_explained(*planned);
  } else {
    fmt::print("{}", runtime::plan_text(*planned));
  }
  if (step_plan) print_trace(*planned, *step_plan);
  return kOk;
}

}  // namespace lockstep::cli
