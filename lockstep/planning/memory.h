#pragma once
// Where weights live and what a rank's memory holds, from sizes alone: nothing is allocated or read here.
#include <string>
#include <vector>

#include "lockstep/planning/stage.h"
#include "lockstep/planning/step_plan.h"

namespace lockstep::planning {

// One kind of weights: how it is cut, and what the fullest rank has of it.
struct WeightPlace {
  std::string what;   // "experts"
  std::string split;  // "8 parts over dp,tp; 1 copy"
  int parts = 1, copies = 1;
  double bytes = 0;  // on one rank
};

struct RankMemory {
  std::vector<WeightPlace> weights;
  double weight_bytes = 0;
  double cache_bytes_per_token = 0;  // of one token of the rank's replica
  double work_bytes = 0;             // rows that a rank holds at once between stages
};

RankMemory memory_of(const ModelShape& model, const RankGrid& grid, const StageOptions& options,
                     const Capacity& capacity);

}  // namespace lockstep::planning
