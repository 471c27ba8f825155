#include "lockstep/runtime/inspect.h"
#include "lockstep/planning/memory.h"

#include <filesystem>

#include "lockstep/base/file.h"
#include "lockstep/models/registry.h"
#include "lockstep/runtime/described_engine.h"
#include "lockstep/tensors/safetensors.h"

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;

std::string architecture_of(const fs::path& config_file) {
  const auto text = read_file(config_file, size_t{16} << 20);
  if (!text) return "";
  const auto json = parse_json(*text);
  if (!json || !json->is_object()) return "";
  const auto at = json->find("architectures");
  const bool named = at != json->end() && at->is_array() && !at->empty() && at->front().is_string();
  return named ? at->front().get<std::string>() : "";
}

bool has_weights(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "model.safetensors.index.json", ignored)) return true;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".safetensors") return true;
  return false;
}

WeightFiles files_of(const Checkpoint& checkpoint) {
  WeightFiles files{.bytes = checkpoint.total_bytes()};
  for (const std::string& name : checkpoint.names()) {
    ++files.num_tensors;
    const auto tensor = checkpoint.find(name);
    if (!tensor) continue;
    files.num_elements += tensor->num_elements();
    files.bytes_by_type[std::string(name_of(tensor->dtype))] +=
        static_cast<uint64_t>(tensor->num_elements()) * size_of(tensor->dtype);
  }
  return files;
}

Needs needs_of(const DescribedEngine& described) {
  const PlannedEngine& planned = described.planned;
  const planning::RankGrid& grid = planned.plans.grid;
  const SchedulerLimits& limits = described.limits;
  Needs needs{.num_ranks = grid.num_ranks(),
              .num_replicas = grid.num_replicas(),
              .weight_bytes_per_rank = planning::memory_of(planned.shape, grid, planned.configuration.stages,
                                                           planned.configuration.capacity)
                                           .weight_bytes,
              .cache_bytes_per_token = described.cache_bytes.per_token,
              .cache_bytes_per_sequence = described.cache_bytes.per_sequence,
              .cached_tokens = int64_t{limits.pages_per_replica} * limits.page_size,
              .max_running_requests = limits.max_running()};
  const auto slots = static_cast<double>(planned.configuration.capacity.max_requests + limits.num_snapshots);
  needs.cache_bytes =
      (static_cast<double>(needs.cached_tokens) * static_cast<double>(needs.cache_bytes_per_token) +
       slots * static_cast<double>(needs.cache_bytes_per_sequence)) *
      needs.num_ranks;
  return needs;
}

class Doctor {
 public:
  Doctor(const EngineConfig& config, const MachineFacts& machine)
      : config_(config), machine_(machine), folder_(config.model_directory) {}

  Inspection run() {
    found_.architecture = architecture_of(folder_ / "config.json");
    look_at_config();
    look_at_weights();
    return std::move(found_);
  }

 private:
  void fault(const Error& error) { found_.faults.push_back(error.message); }

  void look_at_config() {
    auto checkpoint = models::describe(folder_);
    if (!checkpoint) return fault(checkpoint.error());
    const models::ParameterCounts parameters = checkpoint->description->parameters();
    found_.model = {.family = std::string(checkpoint->description->family()),
                    .shape = checkpoint->description->shape(),
                    .context_length = checkpoint->description->context_length(),
                    .total_parameters = parameters.total,
                    .active_parameters = parameters.active,
                    .eos_token_ids = checkpoint->eos_token_ids};
    if (checkpoint->eos_token_ids.empty())
      found_.notes.push_back(
          "neither config.json nor generation_config.json names an eos_token_id: only limits "
          "and stop strings end a reply");
    description_ = checkpoint->description;
    const auto described = describe_engine(config_, *std::move(checkpoint));
    if (!described) return fault(described.error());
    if (!described->device) return fault(described->device.error());
    for (const std::string& note : described->notes) found_.notes.push_back(note);
    if (const Status proof =
            planning::prove(described->planned.plans, described->planned.configuration.capacity);
        !proof)
      return fault(proof.error());
    found_.needs = needs_of(*described);
  }

  void look_at_weights() {
    if (!has_weights(folder_)) {
      found_.notes.push_back("there are no weights in the folder: this is what its config says");
      return;
    }
    const auto checkpoint = Checkpoint::open(folder_);
    if (!checkpoint) return fault(checkpoint.error());
    found_.weights = files_of(*checkpoint);
    if (found_.weights->bytes > machine_.usable_memory_bytes())
      found_.notes.push_back(fmt::format(
          "the weights take {:.1f} GB and this process may use {:.1f} GB of memory: they would be read "
          "from disk again and again",
          static_cast<double>(found_.weights->bytes) / 1e9,
          static_cast<double>(machine_.usable_memory_bytes()) / 1e9));
    if (found_.needs && found_.weights->num_elements > 0) {  // the files know what a weight takes
      const planning::RankGrid alone = planning::RankGrid::make({}).value();
      found_.needs->weight_bytes_per_rank *=
          static_cast<double>(found_.weights->bytes) /
          planning::memory_of(found_.model->shape, alone, {}, {}).weight_bytes;
    }
    if (description_ == nullptr) return;
    models::WeightSource source(*checkpoint);
    source.purpose = models::WeightSource::Purpose::kInspect;
    source.left_aside = &found_.notes;
    source.encode_as = config_.quantization;
    if (const auto model = description_->load(source, {}); !model) fault(model.error());
  }

  const EngineConfig& config_;
  const MachineFacts& machine_;
  const fs::path folder_;
  std::shared_ptr<const models::ModelDescription> description_;
  Inspection found_;
};

}  // namespace

Inspection inspect(const EngineConfig& config, const MachineFacts& machine) {
  return Doctor(config, machine).run();
}

}  // namespace lockstep::runtime
