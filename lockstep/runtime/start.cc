#include "lockstep/runtime/start.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/base/log.h"
#include "lockstep/models/registry.h"
#include "lockstep/planning/plan_file.h"
#include "lockstep/planning/plan_page.h"
#include "lockstep/runtime/described_engine.h"
#include "lockstep/runtime/engine_loop.h"
#include "lockstep/runtime/hosts/head_executor.h"
#include "lockstep/runtime/kv_cache/cache_memory.h"
#include "lockstep/runtime/loaded_engine.h"

namespace lockstep::runtime {
namespace {

// Prompts that fill a step, as many as it takes.
std::vector<WarmUpSequence> prompts_of_a_full_step(const planning::Capacity& capacity, int32_t longest) {
  std::vector<WarmUpSequence> prompts;
  int32_t left = capacity.max_rows;
  while (left > 0 && std::ssize(prompts) < std::min(capacity.max_requests, capacity.max_logit_rows)) {
    const int32_t rows = std::min(left, longest);
    prompts.push_back({.kind = RowKind::kPrompt, .rows = rows, .context = rows});
    left -= rows;
  }
  return prompts;
}

// The smallest and the largest steps of both kinds, so that what they need is there before a request comes
// and memory that does not suffice is found now. A CPU has nothing to record or to choose, gets its scratch a
// page at a time, and would be about as long with a full step as with a request that fills it: there the
// largest steps are of a few rows.
void warm_up(Executor& executor, const SchedulerLimits& limits, Device device, planning::Drafting drafting) {
  // A GPU's scratch for attention grows with the context up to so many tokens.
  constexpr int32_t kContextOfMostScratch = 4096;
  constexpr int32_t kRowsOnCpu = 16;
  planning::Capacity capacity = limits.shape.capacity;
  if (device == Device::kCpu) {
    capacity.max_rows = std::min(capacity.max_rows, kRowsOnCpu);
    capacity.max_decode_rows = std::min(capacity.max_decode_rows, kRowsOnCpu);
  }
  const int32_t longest = limits.max_sequence_tokens();
  const WarmUpPages pages{.page_size = limits.page_size, .per_replica = limits.pages_per_replica};
  const WarmUpSequence decode{
      .kind = RowKind::kDecode,
      .context = device == Device::kCuda ? std::min(longest, kContextOfMostScratch) : 1};
  const auto decodes = std::min({capacity.max_requests, capacity.max_decode_rows, capacity.max_logit_rows});
  for (const auto& sequences : {std::vector<WarmUpSequence>{{}}, prompts_of_a_full_step(capacity, longest),
                                std::vector<WarmUpSequence>(static_cast<size_t>(decodes), decode)})
    for (const auto forward : {planning::Forward::kTarget, planning::Forward::kDraft})
      if (forward == planning::Forward::kTarget || drafting == planning::Drafting::kMtp)
        executor.run(warm_up_step(limits.shape, sequences, pages, forward), [](const LogitRow&) {});
  executor.take_spans();  // nobody asked for these steps
}

struct LoadedEngine {
  std::unique_ptr<Executor> executor;
  HeadExecutor* head = nullptr;  // the same one, where there are other processes
};

Status warmed_up(const LoadedEngine& loaded, const SchedulerLimits& limits, Device device,
                 planning::Drafting drafting) {
  try {
    warm_up(*loaded.executor, limits, device, drafting);
  } catch (const Fatal& failure) {
    return Error{ErrorCode::kInternal, fmt::format("warm-up failed: {}", failure.what()), ""};
  }
  return Done{};
}

// Why no beginning is kept although nobody asked for that; empty where some are.
std::string why_nothing_is_kept(const EngineConfig& config, const SchedulerLimits& limits) {
  if (limits.prefix_cache == PrefixCache::kOff || limits.sequence_state == SequenceState::kNone ||
      limits.num_snapshots > 0)
    return {};
  if (config.max_mamba_cache_size)
    return fmt::format(
        "--max-mamba-cache-size {} is what running requests need, and this model's beginnings are kept with "
        "a "
        "copy of their state: raise it, or lower --max-running-requests",
        *config.max_mamba_cache_size);
  return fmt::format(
      "--mem-fraction-static {} leaves no memory for copies of states, without which this model's beginnings "
      "cannot be kept: raise it, or lower --max-running-requests",
      config.mem_fraction_static);
}

// Of the ranks of this process and, where there are others, of theirs. The budget is that of an engine which
// has started before: others are told at once.
Result<LoadedEngine> loaded_engine(const JoinedEngine& joined, const Result<RankExecutorParts>& parts,
                                   const RestartBudget* started) {
  std::unique_ptr<HeadExecutor> head;  // before the weights: others may be faster with theirs
  if (parts && joined.links != nullptr)
    head = std::make_unique<HeadExecutor>(HeadExecutor::Parts{.links = joined.links,
                                                              .shape = joined.described.limits.shape,
                                                              .vocab = joined.described.planned.model.vocab,
                                                              .deadline = parts->options.deadline});
  if (head != nullptr && started != nullptr)
    if (const Status told = head->tell_started(*started); !told) return told.error();
  auto ranks = parts ? make_rank_executor(*parts) : parts.error();
  if (!ranks) {
    if (joined.links != nullptr) joined.links->fail(ranks.error().message);
    return ranks.error();
  }
  if (head == nullptr) return LoadedEngine{.executor = *std::move(ranks)};
  if (const Status status = head->take_ranks(*std::move(ranks)); !status) return status.error();
  HeadExecutor* const same = head.get();
  return LoadedEngine{.executor = std::move(head), .head = same};
}

// What makes another executor after a failure: the same plan over the weights that are mapped already, with
// other processes once all are there again. Null where an engine that failed ends.
MakeExecutor maker_of(const EngineConfig& config, JoinedEngine joined, RankExecutorParts ranks,
                      const Progress& progress) {
  const bool has_others = joined.links != nullptr;
  if (has_others && config.hosts.after_failure == HostsConfig::AfterFailure::kEnd) return nullptr;
  joined.links = ranks.links = nullptr;  // they end with the executor that failed
  return [joined = std::make_shared<JoinedEngine>(std::move(joined)), ranks = std::move(ranks), has_others,
          device = config.device,
          progress](const RestartBudget& budget) mutable -> Result<std::unique_ptr<Executor>> {
    joined->place.waits_again = [budget] { return budget.has_any(std::chrono::steady_clock::now()); };
    if (has_others)
      if (const Status status = join_again(*joined, progress); !status) return status.error();
    RankExecutorParts parts = ranks;
    parts.links = joined->links;
    auto again = loaded_engine(*joined, Result<RankExecutorParts>(std::move(parts)), &budget);
    joined->links = nullptr;
    if (!again) return again.error();
    const planning::Drafting drafting = joined->described.planned.configuration.stages.drafting;
    if (const Status warm = warmed_up(*again, joined->described.limits, device, drafting); !warm)
      return warm.error();
    return std::move(again->executor);
  };
}

// Starting again takes about as long as starting did, and waits for other processes as long as a start may;
// the step timeout bounds what may hang in between.
std::chrono::milliseconds restart_timeout(const EngineConfig& config, std::chrono::milliseconds start) {
  const std::chrono::milliseconds join(
      config.hosts.num > 1 ? static_cast<int64_t>(config.hosts.join_seconds * 1000) : 0);
  return 3 * start + join + config.faults.step_timeout;
}

}  // namespace

Result<PlannedEngine> plan_engine(const EngineConfig& config) {
  auto described = describe_engine(config);
  if (!described) return described.error();
  return std::move(described->planned);
}

Result<ModelSizes> sizes_of_config(const std::string& model_directory) {
  const std::filesystem::path path = std::filesystem::path(model_directory) / "config.json";
  const auto text = read_file(path, size_t{16} << 20);
  if (!text) return text.error();
  const auto config = parse_json(*text);
  if (!config) return invalid_argument(path.string(), "{}: {}", path.string(), config.error().message);
  if (!config->is_object()) return invalid_argument(path.string(), "{} is not a JSON object", path.string());
  const auto description = models::describe_config(*config);
  if (!description) return description.error();
  planning::ModelShape shape = (*description)->shape();
  add_cache_shape(**description, shape);
  double state = 0;
  for (const models::CacheNeed& need : (*description)->cache_needs({}))
    state += 4.0 * static_cast<double>(need.values_per_sequence);  // kept in float32
  return ModelSizes{std::move(shape), state, (*description)->context_length()};
}

std::string plan_text(const PlannedEngine& planned) {
  const planning::Plans& plans = planned.plans;
  std::string text =
      fmt::format("model {} ({})\n\n{}\nplan hash {:016x}\n", planned.model.name, planned.model.family,
                  planning::to_text(planned.configuration.settings), planning::hash_of(plans));
  const auto add_plans = [&text](std::string_view whose, const planning::Plans& of) {
    for (const planning::Regime regime : planning::kRegimes)
      text += fmt::format("\n{}{} plan, made for {} rows a replica\n{}", whose, planning::name_of(regime),
                          of.load_of(regime).rows_per_replica, planning::to_text(of.of(regime), of.grid));
  };
  add_plans("", plans);
  if (plans.draft) add_plans("drafts' ", *plans.draft);
  return text;
}

Json plan_json(const PlannedEngine& planned) {
  const planning::Plans& plans = planned.plans;
  Json axes = Json::array();
  for (const planning::AtomicAxis& axis : plans.grid.axes())
    axes.push_back({{"name", axis.name}, {"size", axis.size}, {"stride", axis.stride}});
  Json json = {
      {"model", planned.model.name},
      {"family", planned.model.family},
      {"machine", planned.machine.name},
      {"settings", planning::to_json(planned.configuration.settings)},
      {"configuration", planning::configuration_json(planned.configuration, planned.shape, planned.machine)},
      {"grid",
       {{"num_ranks", plans.grid.num_ranks()},
        {"num_replicas", plans.grid.num_replicas()},
        {"axes", std::move(axes)}}},
      {"memory", planning::memory_json(planned.shape, plans.grid, planned.configuration.stages,
                                       planned.configuration.capacity)},
      {"hash", fmt::format("{:016x}", planning::hash_of(plans))}};
  const auto plans_of = [&planned](const planning::Plans& of) {
    return planning::plans_json(of, planned.configuration.stages.exchange, planned.shape, planned.machine);
  };
  json.update(plans_of(plans));
  if (plans.draft) json["draft"] = plans_of(*plans.draft);
  return json;
}

Result<std::unique_ptr<Engine>> start_engine(const EngineConfig& config, const Progress& progress) {
  const auto say = [&](const std::string& line) {
    if (progress) progress(line);
  };
  const auto begin = std::chrono::steady_clock::now();
  auto joined = join_engine(config, progress);
  if (!joined) return joined.error();
  const PlannedEngine& planned = joined->described.planned;
  const SchedulerLimits& limits = joined->described.limits;
  EngineParts parts{.model = planned.model,
                    .limits = limits,
                    .num_drafts = planned.configuration.num_drafts,
                    .plan_text = plan_text(planned),
                    .plan_json = plan_json(planned),
                    .num_valid_tokens = config.num_valid_tokens,
                    .overlap = config.overlap,
                    .faults = config.faults};
  if (config.queue_timeout_seconds)
    parts.queue_timeout = std::chrono::duration<double>(*config.queue_timeout_seconds);
  if (!config.trace_file.empty()) {
    auto trace = StepTrace::open(config.trace_file, config.trace_steps);
    if (!trace) return trace.error();
    parts.trace = *std::move(trace);
  }
  auto ranks = rank_parts(config, *joined, progress);
  auto loaded = loaded_engine(*joined, ranks, nullptr);
  if (!loaded) return loaded.error();
  say(fmt::format("loaded; {} pages of {} tokens a replica", limits.pages_per_replica, limits.page_size));
  if (const int64_t bytes = joined->described.cache_bytes.per_sequence; bytes > 0)
    say(fmt::format(
        "{} slots a replica for what sequences keep once, {} for copies of it; {:.2f} MB each on a rank",
        planned.configuration.capacity.max_requests, limits.num_snapshots, static_cast<double>(bytes) / 1e6));
  if (const std::string why = why_nothing_is_kept(config, limits); !why.empty())
    say(fmt::format("note: the prefix cache is off: {}", why));
  const planning::Drafting drafting = planned.configuration.stages.drafting;
  if (const Status warm = warmed_up(*loaded, limits, config.device, drafting); !warm) return warm.error();
  if (loaded->head != nullptr)
    if (const Status told = loaded->head->tell_started(RestartBudget(config.faults)); !told)
      return told.error();
  say("warmed up");
  parts.executor = std::move(loaded->executor);
  parts.faults.restart_timeout = restart_timeout(
      config,
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin));
  parts.make_executor = maker_of(config, *std::move(joined), *std::move(ranks), progress);
  return make_engine(std::move(parts));
}

}  // namespace lockstep::runtime
