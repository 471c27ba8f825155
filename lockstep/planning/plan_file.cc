#include "lockstep/planning/plan_file.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace lockstep::planning {
namespace {

constexpr int kMostLayers = 2000;
constexpr int32_t kMostCount = 1 << 20;

std::string_view name_of(SharedExpert shared) {
  switch (shared) {
    case SharedExpert::kSplit:
      return "split";
    case SharedExpert::kAtHome:
      return "whole";
    case SharedExpert::kEveryRank:
      return "every_rank";
  }
  return "?";
}
std::string_view name_of(HeadSplit split) {
  switch (split) {
    case HeadSplit::kAllRanks:
      return "all_ranks";
    case HeadSplit::kAttentionTp:
      return "attention_tp";
    case HeadSplit::kOwnWidth:
      return "own_width";
  }
  return "?";
}

// Fields of one object, each bounded; the first that is wrong is kept as the error.
class Fields {
 public:
  Fields(const Json& parent, const char* key) : name_(key) {
    const auto at = parent.is_object() ? parent.find(key) : parent.end();
    if (at == parent.end() || !at->is_object()) {
      fail(fmt::format("there is no object \"{}\"", key));
    } else {
      object_ = &*at;
    }
  }

  // Of what files did not always say.
  bool has(const char* key) const { return object_ != nullptr && object_->contains(key); }

  int64_t integer(const char* key, int64_t least, int64_t most) {
    const Json* value = find(key);
    if (value == nullptr) return least;
    const bool fits = value->is_number_integer() && value->get<int64_t>() >= least &&
                      value->get<int64_t>() <= most &&
                      !(value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(most));
    if (fits) return value->get<int64_t>();
    fail(fmt::format("\"{}\" of \"{}\" is not a number from {} to {}", key, name_, least, most));
    return least;
  }
  int32_t count(const char* key) { return static_cast<int32_t>(integer(key, 0, kMostCount)); }

  std::string text(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return "";
    if (value->is_string() && value->get_ref<const std::string&>().size() <= kMostLayers)
      return value->get<std::string>();
    fail(fmt::format("\"{}\" of \"{}\" is not a short text", key, name_));
    return "";
  }

  // One of the values of an enumeration, by its name.
  template <class Enum, size_t n>
  Enum one_of(const char* key, const Enum (&values)[n]) {
    const std::string word = text(key);
    for (const Enum value : values)
      if (name_of(value) == word) return value;
    fail(fmt::format("\"{}\" of \"{}\" is \"{}\", which it cannot be", key, name_, word));
    return values[0];
  }

  std::vector<int32_t> numbers(const char* key) {
    std::vector<int32_t> found;
    const Json* value = find(key);
    if (value == nullptr) return found;
    if (!value->is_array() || value->size() > kMostCount) {
      fail(fmt::format("\"{}\" of \"{}\" is not a list of numbers", key, name_));
      return found;
    }
    for (const Json& number : *value) {
      if (!number.is_number_integer() || number.get<int64_t>() < 0 || number.get<int64_t>() > kMostCount ||
          (number.is_number_unsigned() && number.get<uint64_t>() > kMostCount)) {
        fail(fmt::format("\"{}\" of \"{}\" holds what is not a number from 0 to {}", key, name_, kMostCount));
        return found;
      }
      found.push_back(number.get<int32_t>());
    }
    return found;
  }

  const Json* object() const { return object_; }
  Status status() const { return error_.empty() ? Status(Done{}) : invalid_argument(name_, "{}", error_); }

 private:
  const Json* find(const char* key) {
    if (object_ == nullptr) return nullptr;
    const auto at = object_->find(key);
    if (at != object_->end()) return &*at;
    fail(fmt::format("there is no \"{}\" in \"{}\"", key, name_));
    return nullptr;
  }
  void fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
  }

  std::string name_, error_;
  const Json* object_ = nullptr;
};

std::string layers_text(const std::vector<ModelShape::Ffn>& layers) {
  std::string text;
  for (const ModelShape::Ffn layer : layers) text += layer == ModelShape::Ffn::kDense ? 'd' : 'e';
  return text;
}

std::vector<ModelShape::Ffn> layers_of(std::string_view text) {
  std::vector<ModelShape::Ffn> layers;
  for (const char layer : text)
    layers.push_back(layer == 'd' ? ModelShape::Ffn::kDense : ModelShape::Ffn::kExperts);
  return layers;
}

// What a file's configuration comes to.
struct Described {
  RankGrid grid;
  std::vector<Stage> chain;
  std::optional<std::vector<Stage>> draft;  // its chain, where the configuration drafts
  Capacity capacity;
  TraceSizes sizes;
};

Result<Described> read_configuration(const Json& file, const PlanFileLimits& limits) {
  Fields all(file, "configuration");
  if (auto status = all.status(); !status) return status.error();
  Fields grid_fields(*all.object(), "grid"), capacity_fields(*all.object(), "capacity"),
      model_fields(*all.object(), "model");
  const auto width = [&](const char* key, int least) {
    return static_cast<int>(grid_fields.integer(key, least, limits.max_ranks));
  };
  const GridShape shape{.num_ranks = width("num_ranks", 1),
                        .attention_tp = width("attention_tp", 1),
                        .expert_tp = width("expert_tp", 1),
                        .dense_tp = width("dense_tp", 1),
                        .moe_dp = width("moe_dp", 1),
                        .head_tp = width("head_tp", 0),
                        .embedding_tp = width("embedding_tp", 1),
                        .attn_cp = width("attn_cp", 1)};
  const Capacity capacity{.max_requests = capacity_fields.count("max_requests"),
                          .max_rows = capacity_fields.count("max_rows"),
                          .max_decode_rows = capacity_fields.count("max_decode_rows"),
                          .max_logit_rows = capacity_fields.count("max_logit_rows"),
                          .max_small_decode_rows = capacity_fields.count("max_small_decode_rows")};
  const StageOptions options{
      .exchange = all.one_of("exchange", kExchangeBackends),
      .head = all.one_of("head", {HeadSplit::kAllRanks, HeadSplit::kAttentionTp, HeadSplit::kOwnWidth}),
      .shared = all.one_of("shared_experts",
                           {SharedExpert::kSplit, SharedExpert::kAtHome, SharedExpert::kEveryRank}),
      .drafting =
          all.has("drafting") ? all.one_of("drafting", {Drafting::kOff, Drafting::kMtp}) : Drafting::kOff};
  ModelShape model{.hidden = static_cast<int>(model_fields.integer("hidden", 1, 1 << 20)),
                   .vocab = static_cast<int>(model_fields.integer("vocab", 1, 1 << 26)),
                   .top_k = static_cast<int>(model_fields.integer("top_k", 0, 1 << 12))};
  model.layers = layers_of(model_fields.text("layers"));
  if (model_fields.has("draft_layers")) model.draft_layers = layers_of(model_fields.text("draft_layers"));
  const auto bytes = static_cast<int>(model_fields.integer("bytes_per_value", 1, 8));
  for (const Fields* fields : {&all, &grid_fields, &capacity_fields, &model_fields})
    if (auto status = fields->status(); !status) return status.error();
  auto grid = RankGrid::make(shape);
  if (!grid) return invalid_argument("grid", "\"grid\": {}", grid.error().message);
  auto chain = transformer_stages(model, *grid, options);
  std::optional<std::vector<Stage>> draft;
  if (options.drafting == Drafting::kMtp) draft = draft_stages(model, *grid, options);
  return Described{*std::move(grid), std::move(chain), std::move(draft), capacity,
                   TraceSizes{model.hidden, model.vocab, std::max(1, model.top_k), bytes}};
}

Status check_limits(const Described& described, const PlanFileLimits& limits) {
  const int32_t quantum = described.grid.shape().attention_tp;
  const Capacity& capacity = described.capacity;
  for (const int32_t rows : {capacity.max_rows, capacity.max_decode_rows, capacity.max_small_decode_rows})
    if (rows % quantum != 0)
      return invalid_argument("capacity", "capacity: {} rows are no multiple of the row quantum {}", rows,
                              quantum);
  if (capacity.max_rows < quantum)
    return invalid_argument("capacity", "capacity: {} rows are fewer than the row quantum {}",
                            capacity.max_rows, quantum);
  if (int64_t{quantum} * 8 * described.grid.num_replicas() > limits.max_rows)
    return invalid_argument("grid", "{} replicas of {} ranks are more than can be proven from a file",
                            described.grid.num_replicas(), quantum);
  return Done{};
}

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
Status check_step(const Json& file, const Described& described, const std::vector<Plan>& plans,
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

Json configuration_json(const Configuration& configuration, const ModelShape& model, const Machine& machine) {
  const GridShape& grid = configuration.grid;
  const Capacity& capacity = configuration.capacity;
  return {{"grid",
           {{"num_ranks", grid.num_ranks},
            {"attention_tp", grid.attention_tp},
            {"expert_tp", grid.expert_tp},
            {"dense_tp", grid.dense_tp},
            {"moe_dp", grid.moe_dp},
            {"head_tp", grid.head_tp},
            {"embedding_tp", grid.embedding_tp},
            {"attn_cp", grid.attn_cp}}},
          {"exchange", name_of(configuration.stages.exchange)},
          {"head", name_of(configuration.stages.head)},
          {"shared_experts", name_of(configuration.stages.shared)},
          {"drafting", name_of(configuration.stages.drafting)},
          {"capacity",
           {{"max_requests", capacity.max_requests},
            {"max_rows", capacity.max_rows},
            {"max_decode_rows", capacity.max_decode_rows},
            {"max_small_decode_rows", capacity.max_small_decode_rows},
            {"max_logit_rows", capacity.max_logit_rows}}},
          {"model",
           {{"layers", layers_text(model.layers)},
            {"draft_layers", layers_text(model.draft_layers)},
            {"hidden", model.hidden},
            {"vocab", model.vocab},
            {"top_k", model.top_k},
            {"bytes_per_value", machine.bytes_per_value}}}};
}

Json to_json(const StepPlan& step_plan) {
  Json counts = Json::array();
  for (const ReplicaCounts& replica : step_plan.counts)
    counts.push_back({{"requests", replica.num_requests},
                      {"target_rows", replica.num_target_rows},
                      {"draft_rows", replica.num_draft_rows},
                      {"logit_rows", replica.logit_rows}});
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
  const auto counts = fields.object()->find("counts");
  if (counts == fields.object()->end() || !counts->is_array() || counts->size() > 1024)
    return invalid_argument("step_plan", "its counts are not a list of at most 1024 replicas");
  for (const Json& replica : *counts) {
    const Json wrapped = {{"counts", replica}};
    Fields one(wrapped, "counts");
    plan.counts.push_back({.num_requests = one.count("requests"),
                           .num_target_rows = one.count("target_rows"),
                           .num_draft_rows = one.count("draft_rows"),
                           .logit_rows = one.numbers("logit_rows")});
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
    counts.push_back(std::move(replica));
  }
  StepPlan plan = make_step_plan(0, shape, std::move(counts));
  if (phase == Phase::kPrefill && plan.regime != Regime::kPrefill) {
    plan.regime = Regime::kPrefill;  // asked for, though so few rows would run the plan for decode
    plan.protocol = protocol_of(plan.regime);
    plan.hash = hash_of(plan);
  }
  return plan;
}

void add_trace(Json& file, const Plans& plans, const StepPlan& step_plan, const TraceSizes& sizes) {
  file["step_plan"] = to_json(step_plan);
  file["trace"] = to_json(trace_of(plans.of(step_plan.regime), plans.grid, step_plan, sizes));
}

namespace {

// Reads one plan a regime and proves them; `prefix` names them in the report.
Result<std::vector<Plan>> check_plans(const Json& file, const Described& described,
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

// What a file says of its plans as a whole, where it does: the grid and the hash.
std::vector<Violation> compare_whole(const Json& file, const Plans& plans) {
  std::vector<Violation> found;
  const auto expect = [&](const std::string& what, const Json* is, const Json& should) {
    if (is != nullptr && *is != should)
      found.push_back(difference(what, 0,
                                 fmt::format("it is {}, the plans and the configuration say {}",
                                             lockstep::to_text(*is), lockstep::to_text(should))));
  };
  const auto field = [](const Json& of, const char* key) -> const Json* {
    const auto at = of.is_object() ? of.find(key) : of.end();
    return at != of.end() ? &*at : nullptr;
  };
  if (const Json* grid = field(file, "grid")) {
    Json axes = Json::array();
    for (const AtomicAxis& axis : plans.grid.axes())
      axes.push_back({{"name", axis.name}, {"size", axis.size}, {"stride", axis.stride}});
    expect("grid num_ranks", field(*grid, "num_ranks"), plans.grid.num_ranks());
    expect("grid num_replicas", field(*grid, "num_replicas"), plans.grid.num_replicas());
    expect("grid axes", field(*grid, "axes"), axes);
  }
  expect("hash", field(file, "hash"), fmt::format("{:016x}", hash_of(plans)));
  return found;
}

Plans plans_of(const Described& described, const std::vector<Stage>& chain, const std::vector<Plan>& plans) {
  const auto of = [&](Regime regime) { return plans[static_cast<size_t>(regime)]; };
  return {.grid = described.grid,
          .chain = chain,
          .decode_load = {},
          .prefill_load = {},
          .decode = of(Regime::kDecode),
          .prefill = of(Regime::kPrefill),
          .decode_small = of(Regime::kDecodeSmall)};
}

}  // namespace

Result<PlanFileReport> check_plan_file(const Json& file, const PlanFileLimits& limits) {
  const auto described = read_configuration(file, limits);
  if (!described) return described.error();
  if (auto status = check_limits(*described, limits); !status) return status.error();
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
  // Whatever was edited has another hash: it is looked at only where nothing else tells.
  if (report.found.empty()) add.add("file", compare_whole(file, whole));
  return report;
}

}  // namespace lockstep::planning
