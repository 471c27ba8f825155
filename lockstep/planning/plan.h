#pragma once
// The communication plan: plain data, the same on every rank, printable, readable back, comparable, hashable.
// For every edge between two stages it holds the steps that turn what one gives into what the next needs, the
// residual included.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/planning/layout.h"
#include "lockstep/planning/stage.h"

namespace lockstep::planning {

enum class StepKind : uint8_t {
  kAllReduce,      // value: Partial -> Replicate along `over`
  kReduceScatter,  // value: Partial -> Shard
  kAllGather,      // value: Shard -> Replicate
  kSlice,          // value: Replicate -> Shard; no communication
  kSeed,           // residual := hidden (the first edge has no residual yet)
  kAdd,            // residual += hidden; both in the layout of the step
  kNorm,           // hidden := norm(residual)
  kSelect,         // hidden and residual keep only the rows whose logits are wanted
  kDispatch,       // hidden rows to the ranks of their experts; `over` empty: the rank's own experts, no
                   // communication
  kCombine,        // expert outputs back to the rows, weighted by the routing weights here and nowhere else
  kColumnsToRows,  // hidden: Columns -> Shard (every home gets all features of its rows)
  kFusedAllReduceAddNorm,      // kAllReduce, kAdd, kNorm in one step, bit for bit the same
  kFusedScatterAddNormGather,  // kReduceScatter, kAdd, kNorm, kAllGather of hidden over the same axes; the
                               // residual is in slices before and after
  kFusedCombineAdd,            // kCombine, kAdd
};
std::string_view name_of(StepKind kind);

enum class Value : uint8_t { kHidden, kResidual };

struct Step {
  uint32_t id = 0;  // position in the plan; also the tag by which ranks find each other
  StepKind kind = StepKind::kNorm;
  Value value = Value::kHidden;
  AxisSet over;          // empty for local steps
  Layout before, after;  // of `value`
  bool operator==(const Step&) const = default;
};

struct StageRef {
  StageKind kind = StageKind::kEmbedding;
  int layer = 0;
  bool operator==(const StageRef&) const = default;
};

struct Edge {
  StageRef from, to;
  Layout given, needed;  // of hidden, as the stages declared them
  std::vector<Step> steps;
  bool operator==(const Edge&) const = default;
};

struct Plan {
  std::vector<Edge> edges;  // edge i leads from stage i of the chain to stage i + 1
  bool operator==(const Plan&) const = default;
};

// The index of the edge that enters this stage.
size_t edge_into(const Plan& plan, StageRef stage);
std::string to_text(StageRef stage);  // "attention.3"
std::string to_text(const Edge& edge, const RankGrid& grid);
std::string_view name_of(Value value);

// One line an edge, one line a step. from_text(to_text(p)) == p; errors name the line.
std::string to_text(const Plan& plan, const RankGrid& grid);
Result<Plan> plan_from_text(std::string_view text, const RankGrid& grid);
Json to_json(const Plan& plan, const RankGrid& grid);
// Reads what to_json writes, from a stranger: errors name the edge and the step.
Result<Plan> plan_from_json(const Json& edges, const RankGrid& grid);
uint64_t hash_of(const Plan& plan);

}  // namespace lockstep::planning
