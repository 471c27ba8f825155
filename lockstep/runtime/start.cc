#include "lockstep/runtime/start.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/base/log.h"
#include "lockstep/collectives/in_process/world.h"
#include "lockstep/models/registry.h"
#include "lockstep/planning/plan_file.h"
#include "lockstep/planning/plan_page.h"
#include "lockstep/runtime/engine_loop.h"
#include "lockstep/runtime/executor/rank_executor.h"
#include "lockstep/runtime/kv_cache/cache_memory.h"

namespace lockstep::runtime {
namespace {

struct Described {
  PlannedEngine planned;
  std::shared_ptr<const models::ModelDescription> description;
};

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

// The machine as the backend that will run the plan advertises it.
planning::Machine machine_of(Device device, int ranks) {
  using collectives::Contract;
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  planning::Machine machine =
      device == Device::kCuda ? planning::h200_machine() : planning::cpu_ranks_machine(ranks, cores);
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
  machine.fused_combine_add = combines && device == Device::kCpu
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

// What a token costs in the cache, and over how many ranks attention can split it.
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

// Bytes of a weight as a published config.json tells them.
double bytes_per_weight(const Json& config) {
  const auto text = [](const Json& object, const char* key) {
    const auto at = object.find(key);
    return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const auto quantization = config.find("quantization_config");
  if (quantization != config.end() && quantization->is_object()) {
    if (text(*quantization, "quant_method") == "fp8") return 1.0 + 4.0 / (128 * 128);  // a scale a block
    const auto bits = quantization->find("bits");
    if (bits != quantization->end() && bits->is_number_integer() && bits->get<int64_t>() == 4)
      return 0.5 + 4.0 / 128;
    return 1.0;
  }
  return text(config, "torch_dtype") == "float32" || text(config, "dtype") == "float32" ? 4.0 : 2.0;
}

Result<Described> describe_engine(const EngineConfig& config) {
  auto checkpoint = models::describe(config.model_directory);
  if (!checkpoint) return checkpoint.error();
  ModelInfo info = model_info(config, *checkpoint);
  if (const Status status = apply_context_length(config, info); !status) return status.error();
  planning::ModelShape shape = checkpoint->description->shape();
  if (config.quantization) apply_quantization(*config.quantization, shape);
  add_cache_shape(*checkpoint->description, shape);
  shape.cache_bytes_per_value = config.cache_type == CacheType::kF32 ? 4 : 2;
  const int ranks = std::max(1, config.parallel.tp_size.value_or(1));
  const planning::Machine machine = machine_of(config.device, ranks);
  auto solved = planning::solve(config.parallel, shape, machine);
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
  auto plans = planning::make_plans(*solved, shape, machine);
  if (!plans) return plans.error();
  return Described{{std::move(info), shape, machine, *std::move(solved), *std::move(plans)},
                   std::move(checkpoint->description)};
}

DType dtype_of(CacheType type) { return type == CacheType::kF32 ? DType::kF32 : DType::kBF16; }

// Of the rank that caches most: where ranks do not divide the heads, some have more than others.
CacheBytes most_cache_bytes(const Described& described, CacheType type) {
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

// How many tokens of a replica fit into the memory's share beside what every sequence keeps once.
Result<int64_t> affordable_tokens(const EngineConfig& config, const Described& described) {
  const planning::Configuration& configuration = described.planned.configuration;
  const auto facts = kernels::device_facts(config.device);
  if (!facts) return facts.error();
  const CacheBytes bytes = most_cache_bytes(described, config.cache_type);
  const double share =
      kernels::memory_of_a_rank(*facts, configuration.grid.num_ranks) * config.mem_fraction_static;
  const double states =
      static_cast<double>(bytes.per_sequence) * static_cast<double>(configuration.capacity.max_requests);
  if (states >= share)
    return invalid_argument(
        "--max-running-requests",
        "{} sequences of a replica keep {:.1f} MB each on a rank, which leaves nothing of "
        "the {:.1f} MB a rank that --mem-fraction-static {} allows: lower "
        "--max-running-requests",
        configuration.capacity.max_requests, static_cast<double>(bytes.per_sequence) / 1e6, share / 1e6,
        config.mem_fraction_static);
  // A model without attention caches nothing for a token.
  return static_cast<int64_t>((share - states) / static_cast<double>(std::max<int64_t>(bytes.per_token, 1)));
}

// Pages of one replica: what was asked for, else what every running request could need, within the memory's
// share. All replicas get the same number.
Result<int64_t> pages_per_replica(const EngineConfig& config, const Described& described) {
  const PlannedEngine& planned = described.planned;
  if (config.page_size < 1 || config.page_size > 4096)
    return invalid_argument("--page-size", "--page-size {} is not between 1 and 4096", config.page_size);
  if (!(config.mem_fraction_static > 0 && config.mem_fraction_static < 1))
    return invalid_argument("--mem-fraction-static", "--mem-fraction-static {} is not between 0 and 1",
                            config.mem_fraction_static);
  const auto affordable = affordable_tokens(config, described);
  if (!affordable) return affordable.error();
  const int64_t useful =
      static_cast<int64_t>(planned.configuration.capacity.max_requests) * planned.model.context_length;
  const int64_t tokens = config.max_total_tokens.value_or(std::min(*affordable, useful));
  if (config.max_total_tokens && (tokens < 1 || tokens > *affordable))
    return invalid_argument("--max-total-tokens",
                            "--max-total-tokens {} is not between 1 and the {} that fit into "
                            "--mem-fraction-static {} of the memory",
                            tokens, *affordable, config.mem_fraction_static);
  const int64_t pages = (tokens + config.page_size - 1) / config.page_size;
  return std::clamp<int64_t>(pages, 1, INT32_MAX / config.page_size);
}

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
// and memory that does not suffice is found now.
void warm_up(Executor& executor, const SchedulerLimits& limits, Device device) {
  // A GPU's scratch for attention grows with the context up to so many tokens.
  constexpr int32_t kContextOfMostScratch = 4096;
  const planning::Capacity& capacity = limits.shape.capacity;
  const int32_t longest = limits.max_sequence_tokens();
  const WarmUpPages pages{.page_size = limits.page_size, .per_replica = limits.pages_per_replica};
  const WarmUpSequence decode{
      .kind = RowKind::kDecode,
      .context = device == Device::kCuda ? std::min(longest, kContextOfMostScratch) : 1};
  const auto decodes = std::min({capacity.max_requests, capacity.max_decode_rows, capacity.max_logit_rows});
  for (const auto& sequences : {std::vector<WarmUpSequence>{{}}, prompts_of_a_full_step(capacity, longest),
                                std::vector<WarmUpSequence>(static_cast<size_t>(decodes), decode)})
    executor.run(warm_up_step(limits.shape, sequences, pages), [](const LogitRow&) {});
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
  auto config = parse_json(*text);
  if (!config) return invalid_argument(path.string(), "{}: {}", path.string(), config.error().message);
  if (!config->is_object()) return invalid_argument(path.string(), "{} is not a JSON object", path.string());
  const double bytes = bytes_per_weight(*config);
  config->erase("quantization_config");  // sizes are the same in every format
  const auto description = models::describe_config(*config);
  if (!description) return description.error();
  planning::ModelShape shape = (*description)->shape();
  add_cache_shape(**description, shape);
  shape.bytes_per_weight = bytes;
  double state = 0;
  for (const models::CacheNeed& need : (*description)->cache_needs({}))
    state += 4.0 * static_cast<double>(need.values_per_sequence);  // kept in float32
  return ModelSizes{std::move(shape), state};
}

std::string plan_text(const PlannedEngine& planned) {
  const planning::Plans& plans = planned.plans;
  std::string text =
      fmt::format("model {} ({})\n\n{}\nplan hash {:016x}\n", planned.model.name, planned.model.family,
                  planning::to_text(planned.configuration.settings), planning::hash_of(plans));
  for (const planning::Regime regime : planning::kRegimes)
    text +=
        fmt::format("\n{} plan, made for {} rows a replica\n{}", planning::name_of(regime),
                    plans.load_of(regime).rows_per_replica, planning::to_text(plans.of(regime), plans.grid));
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
      {"memory", planning::memory_json(planned.shape, plans, planned.configuration)},
      {"hash", fmt::format("{:016x}", planning::hash_of(plans))}};
  for (const planning::Regime regime : planning::kRegimes) {
    const planning::Load& load = plans.load_of(regime);
    json[std::string(planning::name_of(regime))] = {
        {"rows_per_replica", load.rows_per_replica},
        {"us", planning::total_us(plans.of(regime), plans.grid, planned.machine, load)},
        {"edges", planning::explained_json(plans.of(regime), plans.grid, planned.machine, load)}};
  }
  return json;
}

Result<std::unique_ptr<Engine>> start_engine(const EngineConfig& config, const Progress& progress) {
  const auto say = [&](const std::string& line) {
    if (progress) progress(line);
  };
  auto described = describe_engine(config);
  if (!described) return described.error();
  PlannedEngine& planned = described->planned;
  const planning::Capacity& capacity = planned.configuration.capacity;
  say(fmt::format("planned {} ranks in {} replicas, plan {:016x}", planned.plans.grid.num_ranks(),
                  planned.plans.grid.num_replicas(), planning::hash_of(planned.plans)));
  if (const Status proof = planning::prove(planned.plans, capacity); !proof) return proof.error();
  say("proved the plan on symbolic rows");

  if (const Status status = kernels::check_ranks(config.device, planned.plans.grid.num_ranks()); !status)
    return status.error();
  const auto pages = pages_per_replica(config, *described);
  if (!pages) return pages.error();
  SchedulerLimits limits{.shape = planning::step_shape(planned.plans.grid, capacity),
                         .max_running_requests = planned.configuration.max_running_requests,
                         .max_queued_requests = config.max_queued_requests,
                         .chunked_prefill_size = planned.configuration.chunked_prefill_size,
                         .page_size = config.page_size,
                         .pages_per_replica = static_cast<int32_t>(*pages),
                         .context_length = planned.model.context_length};
  if (const Status status = check_limits(limits); !status) return status.error();

  auto checkpoint = config.weights == EngineConfig::Weights::kRandom
                        ? Result<Checkpoint>(Checkpoint::random())
                        : Checkpoint::open(config.model_directory);
  if (!checkpoint) return checkpoint.error();
  if (config.weights == EngineConfig::Weights::kRandom) {
    say("takes random numbers for weights");
  } else {
    say(fmt::format("mapped {:.1f} MB of weights", static_cast<double>(checkpoint->total_bytes()) / 1e6));
  }
  EngineParts parts{.model = planned.model,
                    .limits = limits,
                    .plan_text = plan_text(planned),
                    .plan_json = plan_json(planned),
                    .num_valid_tokens = config.num_valid_tokens};
  auto executor = make_rank_executor(
      {.plans = std::make_shared<planning::Plans>(planned.plans),
       .stages = planned.configuration.stages,
       .shape = limits.shape,
       .checkpoint = std::make_shared<Checkpoint>(*std::move(checkpoint)),
       .description = described->description,
       .options = {
           .vocab = planned.model.vocab,
           .hidden = planned.shape.hidden,
           .page_size = limits.page_size,
           .pages_per_replica = limits.pages_per_replica,
           .cache_dtype = dtype_of(config.cache_type),
           .quantization = config.quantization,
           .device = {config.device, config.product_inputs, config.steps},
           .deadline = std::chrono::milliseconds(static_cast<int64_t>(config.deadline_seconds * 1000))}});
  if (!executor) return executor.error();
  say(fmt::format("loaded; {} pages of {} tokens a replica", limits.pages_per_replica, limits.page_size));
  if (const int64_t bytes = most_cache_bytes(*described, config.cache_type).per_sequence; bytes > 0)
    say(fmt::format("{} slots a replica for what sequences keep once, {:.2f} MB each on a rank",
                    capacity.max_requests, static_cast<double>(bytes) / 1e6));
  try {
    warm_up(**executor, limits, config.device);
  } catch (const Fatal& failure) {
    return Error{ErrorCode::kInternal, fmt::format("warm-up failed: {}", failure.what()), ""};
  }
  say("warmed up");
  parts.executor = std::move(executor).value();
  return make_engine(std::move(parts));
}

}  // namespace lockstep::runtime
