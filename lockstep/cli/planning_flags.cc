#include "lockstep/cli/planning_flags.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "lockstep/cli/choice_flags.h"

namespace lockstep::cli {
namespace {

// `option` is refused beside every flag that `app` has so far but these: it would change nothing.
void stands_alone(CLI::App& app, CLI::Option* option, std::initializer_list<std::string_view> beside) {
  for (CLI::Option* other : app.get_options()) {
    const std::string name = other->get_name();
    if (other != option && name != "--help" && std::find(beside.begin(), beside.end(), name) == beside.end())
      option->excludes(other);
  }
}

}  // namespace

void add_plan_flags(CLI::App& app, PlanCommand& command) {
  app.add_option("--machine", command.machine,
                 "Machine to plan for: cpu, h200, or a file that `lockstep doctor --measure` wrote; default: "
                 "that of --device; with --suggest how many, like 8xH200, or a file");
  CLI::Option* rows = app.add_option("--rows", command.rows,
                                     "Rows of each replica: adds what every rank does in a step of so many")
                          ->delimiter(',')
                          ->check(CLI::Range(0, 1 << 20));
  add_choice(
      app, "--phase", command.phase, "With --rows: what the step does",
      Choices<planning::Phase>{{"decode", planning::Phase::kDecode}, {"prefill", planning::Phase::kPrefill}})
      ->needs(rows);
  app.add_option("--html", command.html_file, "Write a page for people to this file");
  app.add_flag_function(
      "--explain", [&command](int64_t) { command.show = PlanCommand::Show::kExplained; },
      "Print the cost of every step and what binds it");
  add_json(app, command.format);
  CLI::Option* suggest = app.add_flag_function(
      "--suggest", [&command](int64_t) { command.task = PlanCommand::Task::kSuggest; },
      "Rank configurations for the model's config.json on --machine");
  // What it looks for itself run_suggest() refuses, and says so.
  stands_alone(
      app, suggest,
      {"--model", "--machine", "--device", "--json", "--tp-size", "--dp-size", "--enable-dp-attention",
       "--ep-size", "--moe-a2a-backend", "--moe-dense-tp-size", "--enable-dp-lm-head", "--lm-head-tp-size",
       "--embedding-tp-size", "--moe-dp-size", "--attn-cp-size", "--cp-strategy", "--shared-experts",
       "--speculative-algorithm", "--max-running-requests"});
  add_choice(app, "--objective", command.objective, "With --suggest: what to rank by",
             Choices<planning::Objective>{{"throughput", planning::Objective::kThroughput},
                                          {"latency", planning::Objective::kLatency}})
      ->needs(suggest);
  app.add_option("--context", command.context, "With --suggest: cached tokens of a request; default: 4096")
      ->check(CLI::Range(1, 1 << 24))
      ->needs(suggest);
}

void add_verify_flags(CLI::App& app, VerifyCommand& command) {
  app.get_option("--model")->required(false);  // a file says all that a proof needs
  add_json(app, command.format);
  CLI::Option* worlds =
      app.add_option("--worlds", command.worlds, "Prove every configuration of 1 to so many ranks instead")
          ->check(CLI::Range(1, 16));
  stands_alone(app, worlds, {"--json", "--machine"});
  CLI::Option* sample =
      app.add_option("--sample", command.sample,
                     "Prove so many configurations of up to 512 ranks, drawn from --seed, instead")
          ->check(CLI::Range(1, 1 << 20));
  stands_alone(app, sample, {"--json", "--machine"});
  app.add_option("--seed", command.seed, "Of --sample")->capture_default_str()->needs(sample);
  CLI::Option* plan = app.add_option("--plan", command.plan_file,
                                     "Check a plan from a file, as lockstep plan --json writes it, instead");
  stands_alone(app, plan, {"--json"});
}

void add_doctor_flags(CLI::App& app, DoctorCommand& command) {
  add_json(app, command.format);
  CLI::Option* measure = app.add_flag_function(
      "--measure", [&command](int64_t) { command.task = DoctorCommand::Task::kMeasure; },
      "Measure the constants that plans are priced with, for worlds of 1, 2, 4, … up to --tp-size ranks "
      "(default: 8) on --device");
  stands_alone(app, measure, {"--json", "--device", "--threads", "--tp-size", "--instruction-set"});
  app.add_option("--output,-o", command.machine_file, "With --measure: the file for --machine to write")
      ->needs(measure);
}

}  // namespace lockstep::cli
