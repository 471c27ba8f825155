#include "lockstep/runtime/hosts/fingerprint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "lockstep/base/hash.h"
#include "lockstep/planning/configuration.h"
#include "lockstep/runtime/machine_facts.h"

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = size_t{1} << 20;
// Of a file of weights: its beginning, which names every tensor, and samples over its length, by which files
// of the same shapes are told apart. Reading all would take as long as loading.
constexpr size_t kWeightsHead = size_t{1} << 20, kSample = 4096;
constexpr uint64_t kNumSamples = 64;

void add_bytes(Hasher& hash, const char* bytes, size_t size) {
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= size; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, sizeof(word));
    hash.add(word);
  }
  hash.add(std::string_view(bytes + at, size - at));
}

Status add_part(Hasher& hash, std::ifstream& file, const fs::path& path, uint64_t begin, size_t size) {
  std::string bytes(size, '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(begin));
  file.read(bytes.data(), static_cast<std::streamsize>(size));
  if (file.gcount() != static_cast<std::streamsize>(size))
    return Error{ErrorCode::kNotFound, fmt::format("{}: byte {} could not be read", path.string(), begin),
                 ""};
  add_bytes(hash, bytes.data(), size);
  return Done{};
}

enum class Amount : uint8_t { kAll, kSamples };

Status add_file(Hasher& hash, const fs::path& path, Amount amount) {
  std::error_code failure;
  const uint64_t size = fs::file_size(path, failure);
  std::ifstream file(path, std::ios::binary);
  if (failure || !file)
    return Error{ErrorCode::kNotFound, fmt::format("{} cannot be read: {}", path.string(), failure.message()),
                 ""};
  hash.add(size);
  const uint64_t head = amount == Amount::kAll ? size : std::min<uint64_t>(size, kWeightsHead);
  for (uint64_t at = 0; at < head; at += kBlock)
    if (Status status = add_part(hash, file, path, at, std::min<uint64_t>(kBlock, head - at)); !status)
      return status;
  if (amount == Amount::kAll || size <= head + kSample) return Done{};
  for (uint64_t sample = 0; sample < kNumSamples; ++sample) {
    const uint64_t at = head + (size - head - kSample) / (kNumSamples - 1) * sample;
    if (Status status = add_part(hash, file, path, at, kSample); !status) return status;
  }
  return Done{};
}

Result<std::string> hash_of_build() {
  Hasher hash;
  if (Status status = add_file(hash, "/proc/self/exe", Amount::kAll); !status) return status.error();
  return fmt::format("{:016x}", hash.value());
}

Result<std::string> hash_of_model(const EngineConfig& config) {
  std::vector<fs::path> files;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(config.model_directory, failure)) {
    const fs::path& path = entry.path();
    const std::string name = path.filename().string();
    const bool is_weights = path.extension() == ".safetensors";
    if (is_weights && config.weights == EngineConfig::Weights::kRandom) continue;
    if (is_weights || name == "config.json" || name == "hf_quant_config.json" ||
        name.ends_with(".safetensors.index.json"))
      files.push_back(path);
  }
  if (failure)
    return Error{ErrorCode::kNotFound, fmt::format("{}: {}", config.model_directory, failure.message()), ""};
  std::sort(files.begin(), files.end());
  Hasher hash;
  for (const fs::path& path : files) {
    hash.add(path.filename().string());
    const bool is_weights = path.extension() == ".safetensors";
    if (Status status = add_file(hash, path, is_weights ? Amount::kSamples : Amount::kAll); !status)
      return status.error();
  }
  return fmt::format("{:016x}", hash.value());
}

}  // namespace

Result<collectives::Passport> passport_of(const EngineConfig& config, const DescribedEngine& described) {
  const auto build = hash_of_build();
  if (!build) return build.error();
  const auto model = hash_of_model(config);
  if (!model) return model.error();
  const planning::Plans& plans = described.planned.plans;
  collectives::Passport passport{
      .num_ranks = plans.grid.num_ranks(),
      .capacities = {described.limits.pages_per_replica, described.limits.num_snapshots}};
  auto& same = passport.same;
  same.emplace_back("the build's hash", *build);
  same.emplace_back("the set of vector instructions", machine_facts().instruction_set);
  same.emplace_back("the model's hash", *model);
  for (const planning::Setting& setting : described.planned.configuration.settings)
    same.emplace_back(setting.flag, setting.value);
  same.emplace_back("--context-length", std::to_string(described.planned.model.context_length));
  same.emplace_back("--page-size", std::to_string(config.page_size));
  same.emplace_back("--max-total-tokens",
                    config.max_total_tokens ? std::to_string(*config.max_total_tokens) : "not given");
  same.emplace_back("--kv-cache-dtype", config.cache_type == CacheType::kF32 ? "f32" : "bf16");
  same.emplace_back("--quantization", config.quantization
                                          ? std::to_string(static_cast<int>(*config.quantization))
                                          : "not given");
  // Whoever waits for an engine that has given up waits in vain.
  same.emplace_back("--max-engine-restarts",
                    config.hosts.after_failure == HostsConfig::AfterFailure::kJoinAgain
                        ? std::to_string(config.faults.max_restarts)
                        : "not of this command");
  // Whoever is more patient than the others would go on alone.
  same.emplace_back("--host-timeout", fmt::format("{:g}", config.hosts.silence_seconds));
  same.emplace_back("the plan's hash", fmt::format("{:016x}", planning::hash_of(plans)));
  return passport;
}

}  // namespace lockstep::runtime
