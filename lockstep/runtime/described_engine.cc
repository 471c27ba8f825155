#include "lockstep/runtime/described_engine.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

#include "lockstep/base/control_groups.h"
#include "lockstep/collectives/in_process/world.h"
#include "lockstep/runtime/executor/rank_executor.h"
#include "lockstep/runtime/machine_facts.h"
#include "lockstep/runtime/measure_machine.h"

namespace lockstep::runtime {
namespace {

constexpr int kMostPageTokens = 4096;
// Rows of the cache are numbered in 32 bits, whole pages of them.
constexpr int64_t kMostCachedTokens = std::numeric_limits<int32_t>::max() - kMostPageTokens;

ModelInfo model_info(const EngineConfig& config, const models::CheckpointInfo& checkpoint) {
  const std::filesystem::path folder = std::filesystem::path(config.model_directory).lexically_normal();
  const std::string name =
      folder.has_filename() ? folder.filename().string() : folder.parent_path().filename().string();
  const models::SamplingDefaults& sampling = checkpoint.sampling;
  ModelInfo info{.name = config.served_name.empty() ? name : config.served_name,
                 .directory = config.model_directory,
                 .family = std::string(checkpoint.description->family()),
                 .vocab = checkpoint.description->shape().vocab,
                 .context_length = checkpoint.description->context_length(),
                 .eos_token_ids = checkpoint.eos_token_ids};
  // A note says which of them the vocabulary lacks: no token that is drawn can be one.
  std::erase_if(info.eos_token_ids, [&](int32_t id) { return id < 0 || id >= info.vocab; });
  info.default_sampling = {.temperature = sampling.temperature,
                           .top_k = sampling.top_k,
                           .top_p = sampling.top_p,
                           .min_p = sampling.min_p,
                           .repetition_penalty = sampling.repetition_penalty};
  return info;
}

Status apply_context_length(const EngineConfig& config, ModelInfo& info) {
  if (!config.context_length) return Done{};
  if (*config.context_length < 2 || *config.context_length > info.context_length)
    return invalid_argument("--context-length", "--context-length {} is not between 2 and the model's {}",
                            *config.context_length, info.context_length);
  info.context_length = *config.context_length;
  return Done{};
}

// What hardware and links are taken to do: as measured, where a file says so.
Result<planning::Machine> constants_of(const EngineConfig& config, int ranks) {
  const int hosts = config.hosts.num;
  planning::Machine machine;
  if (!config.machine_file.empty()) {
    const auto measured = read_machine_file(config.machine_file);
    if (!measured) return measured.error();
    machine = planning::machine_of_ranks(*measured, ranks);
  } else if (config.device == Device::kCuda) {
    machine = planning::h200_machine();
  } else {
    // The plan must not depend on how many cores the host has that makes it: with several, a core a rank.
    machine = planning::cpu_ranks_machine(ranks, hosts > 1 ? ranks : usable_cores());
  }
  if (hosts > 1 && machine.host_link_gbs == 0) {
    // Between hosts: messages over TCP and ten gigabits a second, shared by a host's ranks.
    machine.ranks_per_host = ranks / hosts;
    machine.host_collective_us = 60;
    machine.host_link_gbs = 1.2 / machine.ranks_per_host;
  }
  return machine;
}

// The machine as the backend that will run the plan advertises it.
Result<planning::Machine> machine_of(const EngineConfig& config, int ranks) {
  using collectives::Contract;
  auto constants = constants_of(config, ranks);
  if (!constants) return constants;
  planning::Machine machine = *std::move(constants);
  const Contract contract = collectives::InProcessWorld::contract();
  machine.fused_all_reduce_add_norm =
      contract.fused_all_reduce_add_norm == Contract::FusedAllReduceAddNorm::kYes
          ? planning::Machine::FusedAllReduceAddNorm::kAdvertised
          : planning::Machine::FusedAllReduceAddNorm::kNone;
  machine.fused_scatter_norm_gather =
      contract.fused_scatter_norm_gather == Contract::FusedScatterNormGather::kYes
          ? planning::Machine::FusedScatterNormGather::kAdvertised
          : planning::Machine::FusedScatterNormGather::kNone;
  // A GPU adds and norms in one kernel, which the fused step would take apart.
  const bool combines = contract.fused_combine_add == Contract::FusedCombineAdd::kYes;
  machine.fused_combine_add = combines && config.device == Device::kCpu
                                  ? planning::Machine::FusedCombineAdd::kAdvertised
                                  : planning::Machine::FusedCombineAdd::kNone;
  return machine;
}

// What planning must know of weights that are quantized while they are read.
void apply_quantization(QuantFormat format, planning::ModelShape& shape) {
  const WeightEncoding encoding{.format = format};
  constexpr int64_t kWidth = 1024;
  double bytes = 0;
  const auto tensors = encoded_tensors(encoding, kWidth, kWidth);
  for (const EncodedTensor& tensor : tensors) bytes += static_cast<double>(tensor.bytes.size());
  const QuantScheme scheme = view_of(encoding, tensors, kWidth, kWidth).scheme;
  shape.bytes_per_weight = bytes / (kWidth * kWidth);
  shape.quant_block =
      static_cast<int>(scheme.block_cols == kWidth ? 1 : std::max(scheme.block_rows, scheme.block_cols));
}

// Of the rank that caches most: where ranks do not divide the heads, some have more than others.
CacheBytes most_cache_bytes(const DescribedEngine& described, CacheType type) {
  const planning::RankGrid& grid = described.planned.plans.grid;
  CacheBytes most;
  for (int rank = 0; rank < grid.num_ranks(); ++rank) {
    const models::Shards shards = shards_of(grid, described.planned.configuration.stages, rank);
    const CacheBytes bytes = cache_bytes(described.description->cache_needs(shards), dtype_of(type));
    most.per_token = std::max(most.per_token, bytes.per_token);
    most.per_sequence = std::max(most.per_sequence, bytes.per_sequence);
  }
  return most;
}

// What the caches of a rank may take; none where the device is not here (described.device says so).
std::optional<double> share_of_memory(const EngineConfig& config, const DescribedEngine& described) {
  auto facts = kernels::device_facts(config.device);
  if (!facts) return std::nullopt;
  // What a container may use of the host's memory is less than there is.
  if (config.device == Device::kCpu)
    facts->memory_bytes = {static_cast<double>(machine_facts().usable_memory_bytes())};
  return kernels::memory_of_a_rank(
             *facts, ranks_of_this_machine(config.hosts, described.planned.configuration.grid.num_ranks)) *
         config.mem_fraction_static;
}

// Places for copies of what a sequence keeps once: as many as were asked for, else four for each sequence
// that can run, as far as they take no more than a quarter of what running sequences leave of the share.
Result<int32_t> num_snapshots(const EngineConfig& config, const DescribedEngine& described) {
  const int32_t num_running = described.planned.configuration.capacity.max_requests;
  if (config.max_mamba_cache_size && *config.max_mamba_cache_size < num_running)
    return invalid_argument(
        "--max-mamba-cache-size",
        "--max-mamba-cache-size {} is fewer than the {} requests of a replica that can run: raise it, or "
        "lower --max-running-requests",
        *config.max_mamba_cache_size, num_running);
  const auto bytes = static_cast<double>(described.cache_bytes.per_sequence);
  if (bytes == 0 || config.prefix_cache == PrefixCache::kOff) return 0;
  if (config.max_mamba_cache_size) return *config.max_mamba_cache_size - num_running;
  const int32_t most = 4 * num_running;
  const auto share = share_of_memory(config, described);
  if (!share) return most;
  const double quarter = std::max(0.0, (*share - bytes * num_running) / 4);
  return static_cast<int32_t>(std::min(quarter / bytes, 1.0 * most));
}

// How many tokens of a replica fit into the memory's share beside what every sequence keeps once.
Result<int64_t> affordable_tokens(const EngineConfig& config, const DescribedEngine& described,
                                  int32_t num_snapshots) {
  const int32_t num_states = described.planned.configuration.capacity.max_requests + num_snapshots;
  const auto share = share_of_memory(config, described);
  if (!share) return kMostCachedTokens;
  const CacheBytes& bytes = described.cache_bytes;
  const double states = static_cast<double>(bytes.per_sequence) * num_states;
  if (states >= *share) {
    const char* flag = config.max_mamba_cache_size ? "--max-mamba-cache-size" : "--max-running-requests";
    return invalid_argument(
        flag,
        "{} sequences of a replica keep {:.1f} MB each on a rank, which leaves nothing of "
        "the {:.1f} MB a rank that --mem-fraction-static {} allows: lower {}",
        num_states, static_cast<double>(bytes.per_sequence) / 1e6, *share / 1e6, config.mem_fraction_static,
        flag);
  }
  // A model without attention caches nothing for a token.
  const double tokens = (*share - states) / static_cast<double>(std::max<int64_t>(bytes.per_token, 1));
  return static_cast<int64_t>(std::min(tokens, 1.0 * kMostCachedTokens));
}

// Pages of one replica: what was asked for, else what every running request could need, within the memory's
// share. All replicas get the same number.
Result<int64_t> pages_per_replica(const EngineConfig& config, const DescribedEngine& described,
                                  int32_t num_snapshots) {
  const PlannedEngine& planned = described.planned;
  if (config.page_size < 1 || config.page_size > kMostPageTokens)
    return invalid_argument("--page-size", "--page-size {} is not between 1 and {}", config.page_size,
                            kMostPageTokens);
  if (!(config.mem_fraction_static > 0 && config.mem_fraction_static < 1))
    return invalid_argument("--mem-fraction-static", "--mem-fraction-static {} is not between 0 and 1",
                            config.mem_fraction_static);
  const auto affordable = affordable_tokens(config, described, num_snapshots);
  if (!affordable) return affordable.error();
  const int64_t useful =
      static_cast<int64_t>(planned.configuration.capacity.max_requests) * planned.model.context_length;
  const int64_t tokens = config.max_total_tokens.value_or(std::min(*affordable, useful));
  if (config.max_total_tokens && (tokens < 1 || tokens > *affordable))
    return invalid_argument("--max-total-tokens", "--max-total-tokens {} is not between 1 and {}: {}", tokens,
                            *affordable,
                            *affordable == kMostCachedTokens
                                ? std::string("the most tokens that a replica can number")
                                : fmt::format("those fit into --mem-fraction-static {} of the memory",
                                              config.mem_fraction_static));
  return std::max<int64_t>(1, (tokens + config.page_size - 1) / config.page_size);
}

Status check_device(Device device, int num_ranks) {
  if (const auto facts = kernels::device_facts(device); !facts) return facts.error();
  return kernels::check_ranks(device, num_ranks);
}

Result<SchedulerLimits> limits_of(const EngineConfig& config, const DescribedEngine& described) {
  const PlannedEngine& planned = described.planned;
  const auto snapshots = num_snapshots(config, described);
  if (!snapshots) return snapshots.error();
  const auto pages = pages_per_replica(config, described, *snapshots);
  if (!pages) return pages.error();
  const SchedulerLimits limits{
      .shape = planning::step_shape(planned.plans.grid, planned.configuration.capacity),
      .max_running_requests = planned.configuration.max_running_requests,
      .max_queued_requests = config.max_queued_requests,
      .chunked_prefill_size = planned.configuration.chunked_prefill_size,
      .page_size = config.page_size,
      .pages_per_replica = static_cast<int32_t>(*pages),
      .context_length = planned.model.context_length,
      .prefix_cache = config.prefix_cache,
      .sequence_state = described.cache_bytes.per_sequence > 0 ? SequenceState::kKept : SequenceState::kNone,
      .num_snapshots = *snapshots};
  if (const Status status = check_limits(limits); !status) return status.error();
  return limits;
}

}  // namespace

void add_cache_shape(const models::ModelDescription& description, planning::ModelShape& shape) {
  const auto values = [&](int parts) {
    int64_t sum = 0;
    for (const models::CacheNeed& need : description.cache_needs({.attention = {.index = 0, .parts = parts}}))
      sum += need.values_per_token;
    return static_cast<double>(sum);
  };
  shape.cache_values_per_token = values(1);
  const double least = values(std::max(1, shape.num_heads));
  shape.cache_split = least > 0 ? static_cast<int>(shape.cache_values_per_token / least + 0.5) : 1;
}

DType dtype_of(CacheType type) { return type == CacheType::kF32 ? DType::kF32 : DType::kBF16; }

Result<DescribedEngine> describe_engine(const EngineConfig& config) {
  auto checkpoint = models::describe(config.model_directory);
  if (!checkpoint) return checkpoint.error();
  return describe_engine(config, *std::move(checkpoint));
}

Result<DescribedEngine> describe_engine(const EngineConfig& config, models::CheckpointInfo checkpoint) {
  ModelInfo info = model_info(config, checkpoint);
  if (const Status status = apply_context_length(config, info); !status) return status.error();
  planning::ModelShape shape = checkpoint.description->shape();
  if (config.quantization) apply_quantization(*config.quantization, shape);
  add_cache_shape(*checkpoint.description, shape);
  shape.cache_bytes_per_value = config.cache_type == CacheType::kF32 ? 4 : 2;
  const int ranks = std::max(1, config.parallel.tp_size.value_or(1));
  if (const Status status = check_hosts(config.hosts, ranks); !status) return status.error();
  if (config.hosts.num > 1 && config.device != Device::kCpu)
    return invalid_argument(
        "--hosts", "--hosts {}: ranks of several processes compute with --device cpu only", config.hosts.num);
  const auto machine = machine_of(config, ranks);
  if (!machine) return machine.error();
  auto solved = planning::solve(config.parallel, shape, *machine);
  if (!solved) return solved.error();
  const planning::ExchangeBackend exchange = solved->stages.exchange;
  const bool has_holes = exchange == planning::ExchangeBackend::kInProcessExpertMajor ||
                         exchange == planning::ExchangeBackend::kInProcessTokenMajor;
  if (has_holes && config.device != Device::kCpu)
    return invalid_argument(
        "--moe-a2a-backend",
        "--moe-a2a-backend {} lays out its slots in the host's memory: with --device cuda "
        "use --moe-a2a-backend in_process",
        planning::name_of(exchange));
  auto plans = planning::make_plans(*solved, shape, *machine);
  if (!plans) return plans.error();
  DescribedEngine described{
      .planned = {std::move(info), shape, *machine, *std::move(solved), *std::move(plans)},
      .description = std::move(checkpoint.description),
      .notes = std::move(checkpoint.notes)};
  for (const std::string& note : described.description->notes()) described.notes.push_back(note);
  described.cache_bytes = most_cache_bytes(described, config.cache_type);
  described.device = check_device(config.device, described.planned.plans.grid.num_ranks());
  auto limits = limits_of(config, described);
  if (!limits) return limits.error();
  described.limits = *limits;
  return described;
}

}  // namespace lockstep::runtime
