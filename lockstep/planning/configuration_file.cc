#include "lockstep/planning/configuration_file.h"

#include <algorithm>

#include "lockstep/planning/json_fields.h"

namespace lockstep::planning {
namespace {

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

// What is said of each field once, for both directions.
struct WidthField {
  const char* key;
  int GridShape::* field;
  int least;
};
constexpr WidthField kWidths[] = {{"num_ranks", &GridShape::num_ranks, 1},
                                  {"attention_tp", &GridShape::attention_tp, 1},
                                  {"expert_tp", &GridShape::expert_tp, 1},
                                  {"dense_tp", &GridShape::dense_tp, 1},
                                  {"moe_dp", &GridShape::moe_dp, 1},
                                  {"head_tp", &GridShape::head_tp, 0},
                                  {"embedding_tp", &GridShape::embedding_tp, 1},
                                  {"attn_cp", &GridShape::attn_cp, 1}};

struct CountField {
  const char* key;
  int32_t Capacity::* field;
};
constexpr CountField kCounts[] = {{"max_requests", &Capacity::max_requests},
                                  {"max_rows", &Capacity::max_rows},
                                  {"max_decode_rows", &Capacity::max_decode_rows},
                                  {"max_small_decode_rows", &Capacity::max_small_decode_rows},
                                  {"max_logit_rows", &Capacity::max_logit_rows}};

struct NumberFlag {
  const char* key;
  std::optional<int> ParallelFlags::* field;
};
constexpr NumberFlag kNumberFlags[] = {
    {"tp_size", &ParallelFlags::tp_size},
    {"dp_size", &ParallelFlags::dp_size},
    {"ep_size", &ParallelFlags::ep_size},
    {"moe_dense_tp_size", &ParallelFlags::moe_dense_tp_size},
    {"moe_dp_size", &ParallelFlags::moe_dp_size},
    {"lm_head_tp_size", &ParallelFlags::lm_head_tp_size},
    {"embedding_tp_size", &ParallelFlags::embedding_tp_size},
    {"attn_cp_size", &ParallelFlags::attn_cp_size},
    {"pp_size", &ParallelFlags::pp_size},
    {"speculative_num_steps", &ParallelFlags::speculative_num_steps},
    {"speculative_num_draft_tokens", &ParallelFlags::speculative_num_draft_tokens},
    {"speculative_eagle_topk", &ParallelFlags::speculative_eagle_topk},
    {"max_running_requests", &ParallelFlags::max_running_requests},
    {"chunked_prefill_size", &ParallelFlags::chunked_prefill_size}};

struct WordFlag {
  const char* key;
  std::optional<std::string> ParallelFlags::* field;
};
constexpr WordFlag kWordFlags[] = {{"shared_experts", &ParallelFlags::shared_experts},
                                   {"moe_a2a_backend", &ParallelFlags::moe_a2a_backend},
                                   {"cp_strategy", &ParallelFlags::cp_strategy},
                                   {"speculative_algorithm", &ParallelFlags::speculative_algorithm}};

struct SizeField {
  const char* key;
  int ModelShape::* field;
  int least, most;
};
// Of these a proof needs the first three; the others say what weights and cache come to.
constexpr SizeField kSizes[] = {{"hidden", &ModelShape::hidden, 1, 1 << 20},
                                {"vocab", &ModelShape::vocab, 1, 1 << 26},
                                {"top_k", &ModelShape::top_k, 0, 1 << 12},
                                {"num_heads", &ModelShape::num_heads, 0, 1 << 20},
                                {"dense_inter", &ModelShape::dense_inter, 0, 1 << 24},
                                {"num_experts", &ModelShape::num_experts, 0, 1 << 20},
                                {"expert_inter", &ModelShape::expert_inter, 0, 1 << 24},
                                {"shared_inter", &ModelShape::shared_inter, 0, 1 << 24},
                                {"quant_block", &ModelShape::quant_block, 0, 1 << 24},
                                {"latent_width", &ModelShape::latent_width, 0, 1 << 20},
                                {"cache_split", &ModelShape::cache_split, 1, 1 << 20}};
constexpr size_t kNeededSizes = 3;

struct AmountField {
  const char* key;
  double ModelShape::* field;
};
constexpr AmountField kAmounts[] = {{"attention_params", &ModelShape::attention_params},
                                    {"latent_params", &ModelShape::latent_params},
                                    {"bytes_per_weight", &ModelShape::bytes_per_weight},
                                    {"cache_values_per_token", &ModelShape::cache_values_per_token},
                                    {"cache_bytes_per_value", &ModelShape::cache_bytes_per_value}};

struct ConstantField {
  const char* key;
  double Machine::* field;
};
constexpr ConstantField kConstants[] = {
    {"collective_us", &Machine::collective_us}, {"launch_us", &Machine::launch_us},
    {"link_gbs", &Machine::link_gbs},           {"host_collective_us", &Machine::host_collective_us},
    {"host_link_gbs", &Machine::host_link_gbs}, {"memory_gbs", &Machine::memory_gbs},
    {"memory_gb", &Machine::memory_gb},         {"peak_tflops", &Machine::peak_tflops}};

constexpr double kMostAmount = 1e15;

Json flags_json(const ParallelFlags& flags) {
  Json json = Json::object();
  for (const NumberFlag& flag : kNumberFlags)
    if (flags.*flag.field) json[flag.key] = *(flags.*flag.field);
  for (const WordFlag& flag : kWordFlags)
    if (flags.*flag.field) json[flag.key] = *(flags.*flag.field);
  json["enable_dp_attention"] = flags.enable_dp_attention;
  json["enable_dp_lm_head"] = flags.enable_dp_lm_head;
  json["disable_pass"] = flags.skip_passes;
  return json;
}

ParallelFlags flags_of(Fields& fields) {
  ParallelFlags flags;
  constexpr int kMost = Fields::kMostCount;
  for (const NumberFlag& flag : kNumberFlags)
    if (fields.has(flag.key)) flags.*flag.field = static_cast<int>(fields.integer(flag.key, -kMost, kMost));
  for (const WordFlag& flag : kWordFlags)
    if (fields.has(flag.key)) flags.*flag.field = fields.text(flag.key);
  flags.enable_dp_attention = fields.flag("enable_dp_attention");
  flags.enable_dp_lm_head = fields.flag("enable_dp_lm_head");
  flags.skip_passes = fields.texts("disable_pass");
  return flags;
}

Json machine_json(const Machine& machine) {
  Json json = {{"name", machine.name},
               {"ranks_per_host", machine.ranks_per_host},
               {"bytes_per_value", machine.bytes_per_value}};
  for (const ConstantField& constant : kConstants) json[constant.key] = machine.*constant.field;
  json["fused_all_reduce_add_norm"] =
      machine.fused_all_reduce_add_norm == Machine::FusedAllReduceAddNorm::kAdvertised;
  json["fused_scatter_norm_gather"] =
      machine.fused_scatter_norm_gather == Machine::FusedScatterNormGather::kAdvertised;
  json["fused_combine_add"] = machine.fused_combine_add == Machine::FusedCombineAdd::kAdvertised;
  return json;
}

Machine machine_of(Fields& fields) {
  Machine machine{.name = fields.text("name"),
                  .ranks_per_host = static_cast<int>(fields.integer("ranks_per_host", 0, 1 << 16)),
                  .bytes_per_value = static_cast<int>(fields.integer("bytes_per_value", 1, 8))};
  for (const ConstantField& constant : kConstants)
    machine.*constant.field = fields.number(constant.key, 0, kMostAmount);
  if (fields.flag("fused_all_reduce_add_norm"))
    machine.fused_all_reduce_add_norm = Machine::FusedAllReduceAddNorm::kAdvertised;
  if (fields.flag("fused_scatter_norm_gather"))
    machine.fused_scatter_norm_gather = Machine::FusedScatterNormGather::kAdvertised;
  if (fields.flag("fused_combine_add")) machine.fused_combine_add = Machine::FusedCombineAdd::kAdvertised;
  return machine;
}

Json model_json(const ModelShape& model) {
  Json json = {{"layers", layers_text(model.layers)}, {"draft_layers", layers_text(model.draft_layers)}};
  for (const SizeField& size : kSizes) json[size.key] = model.*size.field;
  for (const AmountField& amount : kAmounts) json[amount.key] = model.*amount.field;
  json["no_drafts_because"] = model.no_drafts_because;
  json["rows_in_order_because"] = model.rows_in_order_because;
  return json;
}

ModelShape model_of(Fields& fields) {
  ModelShape model;
  const bool is_whole = fields.has("num_heads");
  for (const SizeField& size : kSizes)
    if (is_whole || &size < kSizes + kNeededSizes)
      model.*size.field = static_cast<int>(fields.integer(size.key, size.least, size.most));
  model.layers = layers_of(fields.text("layers"));
  if (fields.has("draft_layers")) model.draft_layers = layers_of(fields.text("draft_layers"));
  if (!is_whole) return model;
  for (const AmountField& amount : kAmounts) model.*amount.field = fields.number(amount.key, 0, kMostAmount);
  model.no_drafts_because = fields.text("no_drafts_because");
  model.rows_in_order_because = fields.text("rows_in_order_because");
  return model;
}

StageOptions stages_of(Fields& all) {
  return {.exchange = all.one_of("exchange", kExchangeBackends),
          .head = all.one_of("head", {HeadSplit::kAllRanks, HeadSplit::kAttentionTp, HeadSplit::kOwnWidth}),
          .shared = all.one_of("shared_experts",
                               {SharedExpert::kSplit, SharedExpert::kAtHome, SharedExpert::kEveryRank}),
          .drafting = all.has("drafting") ? all.one_of("drafting", {Drafting::kOff, Drafting::kMtp})
                                          : Drafting::kOff};
}

Status check_limits(const RankGrid& grid, const Capacity& capacity, const PlanFileLimits& limits) {
  const int32_t quantum = grid.shape().attention_tp;
  for (const int32_t rows : {capacity.max_rows, capacity.max_decode_rows, capacity.max_small_decode_rows})
    if (rows % quantum != 0)
      return invalid_argument("capacity", "capacity: {} rows are no multiple of the row quantum {}", rows,
                              quantum);
  if (capacity.max_rows < quantum)
    return invalid_argument("capacity", "capacity: {} rows are fewer than the row quantum {}",
                            capacity.max_rows, quantum);
  if (int64_t{quantum} * 8 * grid.num_replicas() > limits.max_rows)
    return invalid_argument("grid", "{} replicas of {} ranks are more than can be proven from a file",
                            grid.num_replicas(), quantum);
  return Done{};
}

// The flags and the machine, of a file that says all of the model too.
Status read_origin(const Json& configuration, DescribedInFile& described) {
  if (!configuration.contains("flags") || !configuration.contains("machine") ||
      !configuration.at("model").contains("num_heads"))
    return Done{};
  Fields flags(configuration, "flags"), machine(configuration, "machine");
  described.flags = flags_of(flags);
  described.machine = machine_of(machine);
  for (const Fields* fields : {&flags, &machine})
    if (auto status = fields->status(); !status) return status.error();
  return Done{};
}

}  // namespace

Json configuration_json(const Configuration& configuration, const ModelShape& model, const Machine& machine) {
  Json grid = Json::object(), capacity = Json::object(), sizes = model_json(model);
  for (const WidthField& width : kWidths) grid[width.key] = configuration.grid.*width.field;
  grid["row_shares"] = name_of(configuration.grid.row_shares);
  for (const CountField& count : kCounts) capacity[count.key] = configuration.capacity.*count.field;
  sizes["bytes_per_value"] = machine.bytes_per_value;
  return {{"grid", std::move(grid)},
          {"exchange", name_of(configuration.stages.exchange)},
          {"head", name_of(configuration.stages.head)},
          {"shared_experts", name_of(configuration.stages.shared)},
          {"drafting", name_of(configuration.stages.drafting)},
          {"capacity", std::move(capacity)},
          {"model", std::move(sizes)},
          {"flags", flags_json(configuration.flags)},
          {"machine", machine_json(machine)}};
}

Result<DescribedInFile> read_configuration(const Json& file, const PlanFileLimits& limits) {
  Fields all(file, "configuration");
  if (auto status = all.status(); !status) return status.error();
  Fields grid_fields(*all.object(), "grid"), capacity_fields(*all.object(), "capacity"),
      model_fields(*all.object(), "model");
  GridShape shape;
  for (const WidthField& width : kWidths)
    shape.*width.field = static_cast<int>(grid_fields.integer(width.key, width.least, limits.max_ranks));
  if (grid_fields.has("row_shares"))
    shape.row_shares = grid_fields.one_of("row_shares", {RowShares::kContiguous, RowShares::kZigzag});
  Capacity capacity;
  for (const CountField& count : kCounts) capacity.*count.field = capacity_fields.count(count.key);
  const StageOptions options = stages_of(all);
  ModelShape model = model_of(model_fields);
  const auto bytes = static_cast<int>(model_fields.integer("bytes_per_value", 1, 8));
  for (const Fields* fields : {&all, &grid_fields, &capacity_fields, &model_fields})
    if (auto status = fields->status(); !status) return status.error();
  auto grid = RankGrid::make(shape);
  if (!grid) return invalid_argument("grid", "\"grid\": {}", grid.error().message);
  if (auto status = check_limits(*grid, capacity, limits); !status) return status.error();
  auto chain = transformer_stages(model, *grid, options);
  std::optional<std::vector<Stage>> draft;
  if (options.drafting == Drafting::kMtp) draft = draft_stages(model, *grid, options);
  const TraceSizes sizes{model.hidden, model.vocab, std::max(1, model.top_k), bytes, model.latent_width};
  DescribedInFile described{.grid = *std::move(grid),
                            .stages = options,
                            .capacity = capacity,
                            .model = std::move(model),
                            .chain = std::move(chain),
                            .draft = std::move(draft),
                            .sizes = sizes,
                            .flags = {},
                            .machine = {}};
  if (auto status = read_origin(*all.object(), described); !status) return status.error();
  return described;
}

}  // namespace lockstep::planning
