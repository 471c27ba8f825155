#include "lockstep/runtime/loaded_engine.h"

#include <chrono>

#include "lockstep/runtime/hosts/fingerprint.h"
#include "lockstep/runtime/hosts/launch.h"

namespace lockstep::runtime {
namespace {

void say(const Progress& progress, const std::string& line) {
  if (progress) progress(line);
}

// The cache is what every process can afford.
Status join_others(JoinedEngine& joined, const Progress& progress) {
  auto found = collectives::join(joined.place, joined.passport, progress);
  if (!found) return found.error();
  joined.links = found->links;
  joined.described.limits.pages_per_replica = static_cast<int32_t>(found->capacities.at(0));
  joined.described.limits.num_snapshots = static_cast<int32_t>(found->capacities.at(1));
  if (const Status status = check_limits(joined.described.limits); !status) return status.error();
  const Range here = joined.links->ranks_of(joined.place.index);
  say(progress, fmt::format("all {} processes are here; this is process {} with ranks {} to {}",
                            joined.place.num, joined.place.index, here.begin, here.end - 1));
  return Done{};
}

Status find_others(const EngineConfig& config, const Progress& progress, JoinedEngine& joined) {
  auto place = place_of(config.hosts, process_environment());
  if (!place) return place.error();
  auto passport = passport_of(config, joined.described);
  if (!passport) return passport.error();
  joined.place = *std::move(place);
  joined.passport = *std::move(passport);
  return join_others(joined, progress);
}

}  // namespace

Result<JoinedEngine> join_engine(const EngineConfig& config, const Progress& progress) {
  if (!config.instruction_set.empty())  // before anything computes, be it to say what there is
    if (const Status status = kernels::use_instruction_set(config.instruction_set); !status)
      return status.error();
  auto described = describe_engine(config);
  if (!described) return described.error();
  if (!described->device) return described->device.error();
  JoinedEngine joined{.described = *std::move(described)};
  const PlannedEngine& planned = joined.described.planned;
  joined.plans = std::make_shared<planning::Plans>(planned.plans);
  say(progress, fmt::format("planned {} ranks in {} replicas, plan {:016x}", planned.plans.grid.num_ranks(),
                            planned.plans.grid.num_replicas(), planning::hash_of(planned.plans)));
  if (const Status proof = planning::prove(planned.plans, planned.configuration.capacity); !proof)
    return proof.error();
  say(progress, "proved the plan on symbolic rows");
  for (const std::string& note : joined.described.notes) say(progress, fmt::format("note: {}", note));
  if (config.hosts.num > 1)
    if (const Status status = find_others(config, progress, joined); !status) return status.error();
  return joined;
}

Status join_again(JoinedEngine& joined, const Progress& progress) {
  const SchedulerLimits before = joined.described.limits;
  joined.links = nullptr;
  if (joined.place.index == 0)  // the engine goes on with the cache that it was started with
    joined.passport.capacities = {before.pages_per_replica, before.num_snapshots};
  if (Status status = join_others(joined, progress); !status) return status;
  const SchedulerLimits& now = joined.described.limits;
  if (joined.place.index != 0 ||
      (now.pages_per_replica == before.pages_per_replica && now.num_snapshots == before.num_snapshots))
    return Done{};
  const std::string less = fmt::format(
      "the processes that are here now have memory for {} pages and {} copies of states a replica, and the "
      "engine was started with {} and {}: start all of them again",
      now.pages_per_replica, now.num_snapshots, before.pages_per_replica, before.num_snapshots);
  joined.described.limits = before;
  joined.links->fail(less);
  joined.links = nullptr;
  return Error{ErrorCode::kUnavailable, less, "--hosts"};
}

Result<RankExecutorParts> rank_parts(const EngineConfig& config, const JoinedEngine& joined,
                                     const Progress& progress) {
  const DescribedEngine& described = joined.described;
  auto checkpoint = config.weights == EngineConfig::Weights::kRandom
                        ? Result<Checkpoint>(Checkpoint::random())
                        : Checkpoint::open(config.model_directory);
  if (!checkpoint) return checkpoint.error();
  if (config.weights == EngineConfig::Weights::kRandom) {
    say(progress, "takes random numbers for weights");
  } else {
    say(progress,
        fmt::format("mapped {:.1f} MB of weights", static_cast<double>(checkpoint->total_bytes()) / 1e6));
  }
  return RankExecutorParts{
      .plans = joined.plans,
      .stages = described.planned.configuration.stages,
      .shape = described.limits.shape,
      .checkpoint = std::make_shared<Checkpoint>(*std::move(checkpoint)),
      .description = described.description,
      .options = {.vocab = described.planned.model.vocab,
                  .hidden = described.planned.shape.hidden,
                  .page_size = described.limits.page_size,
                  .pages_per_replica = described.limits.pages_per_replica,
                  .num_snapshots = described.limits.num_snapshots,
                  .cache_dtype = dtype_of(config.cache_type),
                  .quantization = config.quantization,
                  .device = {.device = config.device,
                             .product_inputs = config.product_inputs,
                             .steps = config.steps,
                             .cpu = kernels::cpu_threads_of_a_rank(
                                 config.threads,
                                 ranks_of_this_machine(config.hosts, joined.plans->grid.num_ranks()))},
                  .deadline = std::chrono::milliseconds(static_cast<int64_t>(config.deadline_seconds * 1000)),
                  .spans = config.trace_file.empty() || (joined.links != nullptr && joined.links->own() != 0)
                               ? SpanRecording::kOff
                               : SpanRecording::kOn},
      .links = joined.links};
}

}  // namespace lockstep::runtime
