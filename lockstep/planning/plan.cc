#include "lockstep/planning/plan.h"

#include <array>
#include <charconv>
#include <optional>

#include "lockstep/base/hash.h"

namespace lockstep::planning {
namespace {

struct KindName {
  StepKind kind;
  std::string_view name;
};
constexpr KindName kKinds[] = {{StepKind::kAllReduce, "all_reduce"},
                               {StepKind::kReduceScatter, "reduce_scatter"},
                               {StepKind::kAllGather, "all_gather"},
                               {StepKind::kSlice, "slice"},
                               {StepKind::kSeed, "seed"},
                               {StepKind::kAdd, "add"},
                               {StepKind::kNorm, "norm"},
                               {StepKind::kSelect, "select"},
                               {StepKind::kDispatch, "dispatch"},
                               {StepKind::kCombine, "combine"},
                               {StepKind::kColumnsToRows, "columns_to_rows"},
                               {StepKind::kFusedAllReduceAddNorm, "fused_all_reduce_add_norm"},
                               {StepKind::kFusedScatterAddNormGather, "fused_scatter_add_norm_gather"},
                               {StepKind::kFusedCombineAdd, "fused_combine_add"}};
constexpr StageKind kStages[] = {StageKind::kEmbedding, StageKind::kAttention, StageKind::kDense,
                                 StageKind::kExperts,   StageKind::kTap,       StageKind::kJoin,
                                 StageKind::kLatents,   StageKind::kHead,      StageKind::kSampler};

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + separator.size());
  }
}

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<StageRef> parse_stage(std::string_view text) {
  const auto dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto layer = parse_int(text.substr(dot + 1));
  for (const StageKind kind : kStages)
    if (layer && name_of(kind) == text.substr(0, dot)) return StageRef{kind, *layer};
  return std::nullopt;
}

// Lines have their fields separated by " | ".
class PlanReader {
 public:
  explicit PlanReader(const RankGrid& grid) : grid_(grid) {}

  Result<Plan> read(std::string_view text) {
    int number = 0;
    for (std::string_view line : split(text, "\n")) {
      ++number;
      while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
      if (line.empty()) continue;
      const Status status = read_line(split(line, " | "));
      if (!status) return invalid_argument("", "line {}: {}", number, status.error().message);
    }
    return std::move(plan_);
  }

 private:
  Status read_line(const std::vector<std::string_view>& fields) {
    if (fields.size() == 4 && fields[0] == "edge") return read_edge(fields);
    if (fields.size() == 5 && !plan_.edges.empty()) return read_step(fields);
    return invalid_argument("", "neither an edge (4 fields) nor a step (5 fields) but {} fields",
                            fields.size());
  }

  Status read_edge(const std::vector<std::string_view>& fields) {
    const auto ends = split(fields[1], " -> ");
    if (ends.size() != 2) return invalid_argument("", "not \"stage -> stage\": \"{}\"", fields[1]);
    const auto from = parse_stage(ends[0]), to = parse_stage(ends[1]);
    if (!from || !to) return invalid_argument("", "unknown stage in \"{}\"", fields[1]);
    const auto given = layout_from_text(fields[2], grid_), needed = layout_from_text(fields[3], grid_);
    if (!given) return given.error();
    if (!needed) return needed.error();
    plan_.edges.push_back({.from = *from, .to = *to, .given = *given, .needed = *needed, .steps = {}});
    return Done{};
  }

  Status read_step(const std::vector<std::string_view>& fields) {
    const auto id = parse_int(fields[0]);
    if (!id) return invalid_argument("", "not a step's number: \"{}\"", fields[0]);
    const auto words = split(fields[1], " ");
    const KindName* found = nullptr;
    for (const KindName& kind : kKinds)
      if (kind.name == words[0]) found = &kind;
    if (found == nullptr || words.size() != 2) return invalid_argument("", "unknown step \"{}\"", fields[1]);
    if (words[1] != "hidden" && words[1] != "residual")
      return invalid_argument("", "unknown value \"{}\"", words[1]);
    const auto over = grid_.axes_named(fields[2]);
    if (!over) return over.error();
    const auto before = layout_from_text(fields[3], grid_), after = layout_from_text(fields[4], grid_);
    if (!before) return before.error();
    if (!after) return after.error();
    plan_.edges.back().steps.push_back({.id = static_cast<uint32_t>(*id),
                                        .kind = found->kind,
                                        .value = words[1] == "hidden" ? Value::kHidden : Value::kResidual,
                                        .over = *over,
                                        .before = *before,
                                        .after = *after});
    return Done{};
  }

  const RankGrid& grid_;
  Plan plan_;
};

}  // namespace

std::string_view name_of(StepKind kind) {
  for (const KindName& entry : kKinds)
    if (entry.kind == kind) return entry.name;
  return "?";
}

std::string_view name_of(Value value) { return value == Value::kHidden ? "hidden" : "residual"; }

size_t edge_into(const Plan& plan, StageRef stage) {
  for (size_t at = 0; at < plan.edges.size(); ++at)
    if (plan.edges[at].to == stage) return at;
  fail_check(__FILE__, __LINE__,
             fmt::format("no edge leads into {} ({} edges)", to_text(stage), plan.edges.size()));
}

std::string to_text(StageRef stage) { return fmt::format("{}.{}", name_of(stage.kind), stage.layer); }

std::string to_text(const Edge& edge, const RankGrid& grid) {
  std::string text = fmt::format("edge | {} -> {} | {} | {}\n", to_text(edge.from), to_text(edge.to),
                                 to_text(edge.given, grid), to_text(edge.needed, grid));
  for (const Step& step : edge.steps)
    text += fmt::format("  {} | {} {} | {} | {} | {}\n", step.id, name_of(step.kind), name_of(step.value),
                        grid.name_of(step.over), to_text(step.before, grid), to_text(step.after, grid));
  return text;
}

std::string to_text(const Plan& plan, const RankGrid& grid) {
  std::string text;
  for (const Edge& edge : plan.edges) text += to_text(edge, grid);
  return text;
}

Result<Plan> plan_from_text(std::string_view text, const RankGrid& grid) {
  return PlanReader(grid).read(text);
}

Json to_json(const Plan& plan, const RankGrid& grid) {
  Json edges = Json::array();
  for (const Edge& edge : plan.edges) {
    Json steps = Json::array();
    for (const Step& step : edge.steps)
      steps.push_back({{"id", step.id},
                       {"kind", name_of(step.kind)},
                       {"value", name_of(step.value)},
                       {"over", grid.name_of(step.over)},
                       {"before", to_text(step.before, grid)},
                       {"after", to_text(step.after, grid)}});
    edges.push_back({{"from", to_text(edge.from)},
                     {"to", to_text(edge.to)},
                     {"given", to_text(edge.given, grid)},
                     {"needed", to_text(edge.needed, grid)},
                     {"steps", std::move(steps)}});
  }
  return edges;
}

namespace {

// One field of an object; a stranger's JSON may lack it or hold something else.
Result<std::string> text_field(const Json& object, const char* key) {
  const auto at = object.is_object() ? object.find(key) : object.end();
  if (at == object.end() || !at->is_string()) return invalid_argument(key, "there is no text \"{}\"", key);
  return at->get<std::string>();
}

// As one line of the text form, whose reader checks the words.
Result<std::string> step_line(const Json& step) {
  std::string line;
  const auto id = step.is_object() ? step.find("id") : step.end();
  if (id == step.end() || !id->is_number_integer() || id->get<int64_t>() < 0)
    return invalid_argument("id", "there is no number \"id\"");
  line = fmt::format("{}", id->get<int64_t>());
  for (const char* key : {"kind", "value", "over", "before", "after"}) {
    const auto field = text_field(step, key);
    if (!field) return field.error();
    if (field->find_first_of("|\n") != std::string::npos)
      return invalid_argument(key, "\"{}\" of a step is not a word of a plan", key);
    line += (std::string_view(key) == "value" ? " " : " | ") + *field;
  }
  return line;
}

}  // namespace

Result<Plan> plan_from_json(const Json& edges, const RankGrid& grid) {
  constexpr size_t kMostEdges = 4096, kMostSteps = 64;
  if (!edges.is_array() || edges.size() > kMostEdges)
    return invalid_argument("edges", "edges are not a list of at most {}", kMostEdges);
  Plan plan;
  for (size_t at = 0; at < edges.size(); ++at) {
    const Json& edge = edges[at];
    std::array<std::string, 4> ends;
    constexpr std::array<const char*, 4> kKeys = {"from", "to", "given", "needed"};
    for (size_t i = 0; i < ends.size(); ++i) {
      const auto field = text_field(edge, kKeys[i]);
      if (!field) return invalid_argument("edges", "edge {}: {}", at, field.error().message);
      if (field->find_first_of("|\n") != std::string::npos)
        return invalid_argument("edges", "edge {}: \"{}\" is not a word of a plan", at, kKeys[i]);
      ends[i] = *field;
    }
    std::string text = fmt::format("edge | {} -> {} | {} | {}\n", ends[0], ends[1], ends[2], ends[3]);
    const auto steps = edge.find("steps");
    if (steps == edge.end() || !steps->is_array() || steps->size() > kMostSteps)
      return invalid_argument("edges", "edge {}: steps are not a list of at most {}", at, kMostSteps);
    for (size_t s = 0; s < steps->size(); ++s) {
      const auto line = step_line((*steps)[s]);
      if (!line) return invalid_argument("edges", "edge {}, step {}: {}", at, s, line.error().message);
      text += *line + "\n";
    }
    auto read = plan_from_text(text, grid);
    if (!read) return invalid_argument("edges", "edge {}, {}", at, read.error().message);
    if (read->edges.size() != 1) return invalid_argument("edges", "edge {} is not one edge", at);
    plan.edges.push_back(std::move(read->edges.front()));
  }
  return plan;
}

uint64_t hash_of(const Plan& plan) {
  Hasher hasher;
  const auto add_layout = [&](const Layout& layout) {
    for (int axis = 0; axis < kMaxAxes; ++axis) hasher.add(static_cast<uint64_t>(layout.at(axis)));
  };
  const auto add_stage = [&](StageRef stage) {
    hasher.add(static_cast<uint64_t>(stage.kind)).add(static_cast<uint64_t>(stage.layer));
  };
  for (const Edge& edge : plan.edges) {
    add_stage(edge.from);
    add_stage(edge.to);
    add_layout(edge.given);
    add_layout(edge.needed);
    hasher.add(edge.steps.size());
    for (const Step& step : edge.steps) {
      hasher.add(step.id).add(static_cast<uint64_t>(step.kind)).add(static_cast<uint64_t>(step.value));
      hasher.add(step.over.bits());
      add_layout(step.before);
      add_layout(step.after);
    }
  }
  return hasher.value();
}

}  // namespace lockstep::planning
