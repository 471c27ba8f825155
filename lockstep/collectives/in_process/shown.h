#pragma once
// What the members of a group show each other: the arguments of the verb that they are in, by address. What
// ranks of other processes show stands here as a copy. Private to collectives.
#include <memory>
#include <string>

#include "lockstep/collectives/communicator.h"

namespace lockstep::collectives {

enum class Verb : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kColumnsToRows,
  kFusedAllReduceAddNorm,
  kDispatch,
  kCombine
};
inline constexpr int kNumVerbs = 7;

template <class Args>
constexpr Verb verb_of();
template <>
constexpr Verb verb_of<AllReduceArgs>() {
  return Verb::kAllReduce;
}
template <>
constexpr Verb verb_of<ReduceScatterArgs>() {
  return Verb::kReduceScatter;
}
template <>
constexpr Verb verb_of<AllGatherArgs>() {
  return Verb::kAllGather;
}
template <>
constexpr Verb verb_of<ColumnsToRowsArgs>() {
  return Verb::kColumnsToRows;
}
template <>
constexpr Verb verb_of<FusedAllReduceAddNormArgs>() {
  return Verb::kFusedAllReduceAddNorm;
}
template <>
constexpr Verb verb_of<DispatchArgs>() {
  return Verb::kDispatch;
}
template <>
constexpr Verb verb_of<CombineArgs>() {
  return Verb::kCombine;
}

struct ShownVerb {
  Verb verb = Verb::kAllReduce;
};

template <class Args>
struct Shown : ShownVerb {
  Shown() = default;
  Shown(const Args& its, const kernels::Fence* its_arrived, const kernels::Fence* its_done)
      : ShownVerb{verb_of<Args>()}, args(its), arrived(its_arrived), done(its_done) {}
  Args args;
  const kernels::Fence *arrived = nullptr, *done = nullptr;  // null where kernels need none
};

// What a rank of another process shows, on this side.
struct ShownFromAfar {
  std::shared_ptr<const ShownVerb> shown;
  uint64_t engine_step = 0;
  uint32_t plan_step = 0;
  std::string what;
};

}  // namespace lockstep::collectives
