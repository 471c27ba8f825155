#include "lockstep/planning/plan_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "lockstep/planning/configuration_file.h"
#include "lockstep/planning/json_fields.h"
#include "lockstep/planning/plan_page.h"

namespace lockstep::planning {
namespace {

// Adds a violation once, however many step plans find it.
class Report {
 public:
  explicit Report(PlanFileReport& report) : report_(report) {}
  void add(const std::string& plan, const std::vector<Violation>& found) {
    for (const Violation& violation : found)
      if (seen_.insert(plan + violation.edge + std::to_string(violation.step)).second)
        report_.found.push_back({plan, violation});
  }

 private:
  PlanFileReport& report_;
  std::set<std::string> seen_;
};

Violation difference(const std::string& edge, uint32_t step, std::string says) {
  return {edge, step, std::move(says)};
}

// Where a file's trace says something else than the plan and the step plan do.
std::vector<Violation> compare_traces(const Json& written, const Json& made) {
  if (!written.is_array() || written.size() != made.size())
    return {difference("trace", 0, fmt::format("it is not a list of {} ranks", made.size()))};
  std::vector<Violation> found;
  for (size_t rank = 0; rank < made.size() && found.empty(); ++rank) {
    const Json &is = written[rank], &should = made[rank];
    if (!is.is_array() || is.size() != should.size()) {
      found.push_back(difference("trace", 0,
                                 fmt::format("rank {} does {} steps, the plan has {}", rank,
                                             is.is_array() ? is.size() : 0, should.size())));
      continue;
    }
    for (size_t at = 0; at < should.size() && found.empty(); ++at)
      for (const auto& [key, value] : should[at].items()) {
        const auto field = is[at].is_object() ? is[at].find(key) : is[at].end();
        if (is[at].is_object() && field != is[at].end() && *field == value) continue;
        const bool is_there = is[at].is_object() && field != is[at].end();
        Violation violation = difference(
            should[at].at("edge"), should[at].at("step"),
            fmt::format("rank {}: \"{}\" is {}, the plan and the counts say {}", rank, key,
                        is_there ? lockstep::to_text(*field) : "missing", lockstep::to_text(value)));
        violation.op = should[at].at("op");
        violation.ranks = should[at].at("group").get<std::vector<int>>();
        found.push_back(std::move(violation));
        break;
      }
  }
  return found;
}

Result<Plan> read_plan(const Json& file, Regime regime, const RankGrid& grid) {
  const std::string name(name_of(regime));
  const auto at = file.find(name);
  if (at == file.end() || !at->is_object() || at->find("edges") == at->end())
    return invalid_argument(name, "there is no plan \"{}\" with edges", name);
  auto plan = plan_from_json(at->at("edges"), grid);
  if (!plan) return invalid_argument(name, "{}: {}", name, plan.error().message);
  return plan;
}

// The step plan that the file brings along, if any, and its trace.
Status check_step(const Json& file, const DescribedInFile& described, const std::vector<Plan>& plans,
                  const PlanFileLimits& limits, PlanFileReport& report, Report& add) {
  const auto at = file.find("step_plan");
  if (at == file.end()) return Done{};
  const auto step_plan = step_plan_from_json(file);
  if (!step_plan) return step_plan.error();
  int64_t rows = 0;
  for (const int32_t home : step_plan->rows_per_home) rows += home;
  if (rows > limits.max_rows)
    return invalid_argument("step_plan", "its {} rows are more than the {} that a file may bring", rows,
                            limits.max_rows);
  add.add("step plan", check_capacity(*step_plan, step_shape(described.grid, described.capacity)));
  const Plan& plan = plans[static_cast<size_t>(step_plan->regime)];
  const auto found = verify(plan, described.chain, described.grid, *step_plan);
  ++report.num_proofs;
  add.add(
      found.empty() || found[0].edge != "step plan" ? std::string(name_of(step_plan->regime)) : "step plan",
      found);
  const auto trace = file.find("trace");
  if (trace != file.end() && report.found.empty())
    add.add("trace",
            compare_traces(*trace, to_json(trace_of(plan, described.grid, *step_plan, described.sizes))));
  return Done{};
}

}  // namespace

Json to_json(const StepPlan& step_plan) {
  Json counts = Json::array();
  for (const ReplicaCounts& replica : step_plan.counts)
    counts.push_back({{"requests", replica.num_requests},
                      {"target_rows", replica.num_target_rows},
                      {"draft_rows", replica.num_draft_rows},
                      {"logit_rows", replica.logit_rows},
                      {"prompt_rows", replica.prompt_rows}});
  return {{"step", step_plan.step},
          {"regime", name_of(step_plan.regime)},
          {"protocol", step_plan.protocol == Protocol::kNormal ? "normal" : "low_latency"},
          {"bucket", step_plan.bucket},
          {"forward", name_of(step_plan.forward)},
          {"counts", std::move(counts)},
          {"padded_rows", step_plan.padded_rows},
          {"rows_per_home", step_plan.rows_per_home},
          {"logit_rows_per_home", step_plan.logit_rows_per_home},
          {"max_rows_of_any_home", step_plan.max_rows_of_any_home},
          {"places", step_plan.places},
          {"hash", fmt::format("{:016x}", step_plan.hash)}};
}

// `json` is the file that holds a "step_plan".
Result<StepPlan> step_plan_from_json(const Json& json) {
  Fields fields(json, "step_plan");
  StepPlan plan;
  plan.step = static_cast<uint64_t>(fields.integer("step", 0, INT32_MAX));
  plan.regime = fields.one_of("regime", {Regime::kDecodeSmall, Regime::kDecode, Regime::kPrefill});
  const std::string protocol = fields.text("protocol");
  plan.protocol = protocol == "normal" ? Protocol::kNormal : Protocol::kLowLatency;
  plan.bucket = fields.count("bucket");
  if (fields.has("forward")) plan.forward = fields.one_of("forward", {Forward::kTarget, Forward::kDraft});
  plan.padded_rows = fields.numbers("padded_rows");
  plan.rows_per_home = fields.numbers("rows_per_home");
  plan.logit_rows_per_home = fields.numbers("logit_rows_per_home");
  plan.max_rows_of_any_home = fields.count("max_rows_of_any_home");
  const std::string hash = fields.text("hash");
  const auto [end, failure] = std::from_chars(hash.data(), hash.data() + hash.size(), plan.hash, 16);
  if (auto status = fields.status(); !status) return status.error();
  if (failure != std::errc() || end != hash.data() + hash.size())
    return invalid_argument("step_plan", "its hash \"{}\" is not a number in hexadecimal", hash);
  if (const auto places = fields.object()->find("places"); places != fields.object()->end()) {
    if (!places->is_array() || places->size() > 1024)
      return invalid_argument("step_plan", "its places are not lists of at most 1024 replicas");
    for (const Json& replica : *places) {
      const Json wrapped = {{"step_plan", {{"places", replica}}}};
      Fields one(wrapped, "step_plan");
      plan.places.push_back(one.numbers("places"));
      if (auto status = one.status(); !status) return status.error();
    }
  }
  const auto counts = fields.object()->find("counts");
  if (counts == fields.object()->end() || !counts->is_array() || counts->size() > 1024)
    return invalid_argument("step_plan", "its counts are not a list of at most 1024 replicas");
  for (const Json& replica : *counts) {
    const Json wrapped = {{"counts", replica}};
    Fields one(wrapped, "counts");
    plan.counts.push_back(
        {.num_requests = one.count("requests"),
         .num_target_rows = one.count("target_rows"),
         .num_draft_rows = one.count("draft_rows"),
         .logit_rows = one.numbers("logit_rows"),
         .prompt_rows = one.has("prompt_rows") ? one.numbers("prompt_rows") : std::vector<int32_t>()});
    if (auto status = one.status(); !status) return status.error();
  }
  return plan;
}

Result<StepPlan> step_of_rows(const Plans& plans, const Capacity& capacity, const std::vector<int>& rows,
                              Phase phase) {
  const StepShape shape = step_shape(plans.grid, capacity);
  if (static_cast<int>(rows.size()) != shape.num_replicas)
    return invalid_argument("--rows", "--rows names {} replicas, the configuration has {}", rows.size(),
                            shape.num_replicas);
  std::vector<ReplicaCounts> counts;
  for (const int count : rows) {
    const int most = phase == Phase::kDecode ? capacity.max_requests : capacity.max_rows;
    if (count < 0 || count > most)
      return invalid_argument(
          "--rows", "--rows: {} is not between 0 and the {} rows that a replica may bring", count, most);
    ReplicaCounts replica{.num_requests = phase == Phase::kDecode ? count : count > 0,
                          .num_target_rows = count};
    for (int row = phase == Phase::kDecode ? 0 : count - 1; row >= 0 && row < count; ++row)
      replica.logit_rows.push_back(row);
    if (phase == Phase::kPrefill && count > 0) replica.prompt_rows = {count};
    counts.push_back(std::move(replica));
  }
  StepPlan plan = make_step_plan(0, shape, std::move(counts));
  // Asked for, though so few rows would run the plan for decode.
  if (phase == Phase::kPrefill) set_regime(plan, shape, Regime::kPrefill);
  return plan;
}

void add_trace(Json& file, const Plans& plans, const StepPlan& step_plan, const TraceSizes& sizes) {
  file["step_plan"] = to_json(step_plan);
  file["trace"] = to_json(trace_of(plans.of(step_plan.regime), plans.grid, step_plan, sizes));
}

namespace {

// Reads one plan a regime and proves them; `prefix` names them in the report.
Result<std::vector<Plan>> check_plans(const Json& file, const DescribedInFile& described,
                                      const std::vector<Stage>& chain, Forward forward,
                                      const std::string& prefix, PlanFileReport& report, Report& add) {
  std::vector<Plan> plans;
  for (const Regime regime : kRegimes) {
    auto plan = read_plan(file, regime, described.grid);
    if (!plan) return plan.error();
    report.num_edges += static_cast<int>(plan->edges.size());
    const std::string name = prefix + std::string(name_of(regime));
    if (auto found = check_structure(*plan, chain, described.grid); !found.empty()) {
      add.add(name, found);
    } else {
      const ShortenedPlan shortened = without_repeats(*plan, chain, described.grid);
      const StepShape shape = step_shape(described.grid, described.capacity);
      for (const StepPlan& step_plan : probing_step_plans(shape, forward)) {
        add.add(name, verify(shortened.plan, shortened.chain, described.grid, step_plan));
        ++report.num_proofs;
      }
    }
    plans.push_back(*std::move(plan));
  }
  return plans;
}

// Whether numbers are the same but for the last bits of a sum, and everything else exactly.
bool is_same(const Json& is, const Json& should) {
  if (!is.is_number() || !should.is_number()) return is == should;
  const double a = is.get<double>(), b = should.get<double>();
  return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

// The first thing in `is` that is not what `should` says there, `at` that place. What only `is` has is no
// difference.
std::optional<Violation> first_difference(const Json& is, const Json& should, const std::string& at) {
  const auto differs = [&](const std::string& where, const std::string& value, const Json& expected) {
    return difference(
        where, 0,
        fmt::format("it is {}, the plans and the configuration say {}", value, lockstep::to_text(expected)));
  };
  if (should.is_object() && is.is_object()) {
    for (const auto& [key, value] : should.items()) {
      const std::string where = fmt::format("{} {}", at, key);
      const auto field = is.find(key);
      if (field == is.end()) return differs(where, "missing", value);
      if (auto found = first_difference(*field, value, where)) return found;
    }
    return std::nullopt;
  }
  if (should.is_array() && is.is_array() && should.size() == is.size()) {
    for (size_t i = 0; i < should.size(); ++i)
      if (auto found = first_difference(is[i], should[i], fmt::format("{}[{}]", at, i))) return found;
    return std::nullopt;
  }
  if (is_same(is, should)) return std::nullopt;
  return differs(at, lockstep::to_text(is).substr(0, 200), should);
}

// What a file says beside its plans, where it does: the grid, the settings, memory, costs and the hash.
class WholeFile {
 public:
  explicit WholeFile(const Json& file) : file_(file) {}

  void expect(const std::string& key, const Json& should) { compare(file_, key, should, ""); }
  // Of an object, the fields that the file has.
  void expect_fields(const std::string& key, const Json& should, const std::string& prefix = "") {
    const auto is = file_.find(key);
    if (is == file_.end()) return;
    for (const auto& [field, value] : should.items()) compare(*is, field, value, prefix + key + " ");
  }
  std::vector<Violation> take() { return std::move(found_); }

 private:
  void compare(const Json& of, const std::string& key, const Json& should, const std::string& prefix) {
    const auto is = of.is_object() ? of.find(key) : of.end();
    if (!of.is_object() || is == of.end()) return;
    if (auto found = first_difference(*is, should, prefix + key)) found_.push_back(*std::move(found));
  }

  const Json& file_;
  std::vector<Violation> found_;
};

Json grid_json(const RankGrid& grid) {
  Json axes = Json::array();
  for (const AtomicAxis& axis : grid.axes())
    axes.push_back({{"name", axis.name}, {"size", axis.size}, {"stride", axis.stride}});
  return {{"num_ranks", grid.num_ranks()}, {"num_replicas", grid.num_replicas()}, {"axes", std::move(axes)}};
}

// The settings that the file's flags solve to, and that its grid, stages and limits are theirs.
std::vector<Violation> compare_settings(const Json& file, const DescribedInFile& described) {
  const ParallelFlags& flags = *described.flags;
  if (!works(flags, described.model))
    return {difference("configuration", 0, "its flags contradict each other: no engine starts with them")};
  const auto solved = solve(flags, described.model, *described.machine);
  WholeFile whole(file);
  whole.expect("configuration", configuration_json(*solved, described.model, *described.machine));
  whole.expect("settings", to_json(solved->settings));
  whole.expect("memory", memory_json(described.model, described.grid, described.stages, described.capacity));
  whole.expect("machine", described.machine->name);
  return whole.take();
}

Plans plans_of(const DescribedInFile& described, const std::vector<Stage>& chain,
               const std::vector<Plan>& plans) {
  const auto of = [&](Regime regime) { return plans[static_cast<size_t>(regime)]; };
  const auto load_of = [&](Regime regime) {
    return planning::load_of(regime, described.capacity, described.model);
  };
  return {.grid = described.grid,
          .chain = chain,
          .decode_load = load_of(Regime::kDecode),
          .prefill_load = load_of(Regime::kPrefill),
          .decode = of(Regime::kDecode),
          .prefill = of(Regime::kPrefill),
          .decode_small_load = load_of(Regime::kDecodeSmall),
          .decode_small = of(Regime::kDecodeSmall)};
}

// Whatever was edited has another hash: it is looked at only where nothing else tells.
std::vector<Violation> compare_whole(const Json& file, const DescribedInFile& described, const Plans& plans) {
  std::vector<Violation> found;
  WholeFile whole(file);
  whole.expect_fields("grid", grid_json(plans.grid));
  if (described.flags && described.machine) {
    found = compare_settings(file, described);
    const auto expect_costs = [&](WholeFile& in, const Plans& of, const std::string& prefix) {
      const Json costs = plans_json(of, described.stages.exchange, described.model, *described.machine);
      for (const auto& [regime, should] : costs.items()) in.expect_fields(regime, should, prefix);
    };
    expect_costs(whole, plans, "");
    if (plans.draft) {
      WholeFile drafts(file.at("draft"));
      expect_costs(drafts, *plans.draft, "draft ");
      for (Violation& violation : drafts.take()) found.push_back(std::move(violation));
    }
  }
  for (Violation& violation : whole.take()) found.push_back(std::move(violation));
  if (found.empty()) {
    whole.expect("hash", fmt::format("{:016x}", hash_of(plans)));
    found = whole.take();
  }
  return found;
}

}  // namespace

Result<PlanFileReport> check_plan_file(const Json& file, const PlanFileLimits& limits) {
  const auto described = read_configuration(file, limits);
  if (!described) return described.error();
  PlanFileReport report;
  Report add(report);
  const auto plans = check_plans(file, *described, described->chain, Forward::kTarget, "", report, add);
  if (!plans) return plans.error();
  Plans whole = plans_of(*described, described->chain, *plans);
  if (described->draft) {
    const auto draft = file.find("draft");
    if (draft == file.end() || !draft->is_object())
      return invalid_argument("draft", "the configuration drafts, and there are no plans under \"draft\"");
    const auto drafts =
        check_plans(*draft, *described, *described->draft, Forward::kDraft, "draft ", report, add);
    if (!drafts) return drafts.error();
    whole.draft = std::make_shared<const Plans>(plans_of(*described, *described->draft, *drafts));
  }
  if (auto status = check_step(file, *described, *plans, limits, report, add); !status) return status.error();
  // Where plans were edited they no longer are what the rest was said of.
  if (report.found.empty()) add.add("file", compare_whole(file, *described, whole));
  return report;
}

}  // namespace lockstep::planning
