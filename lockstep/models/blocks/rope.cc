#include "lockstep/models/blocks/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::models {
namespace {

double magnitude(double factor, double mscale) {
  return factor > 1 ? 0.1 * mscale * std::log(factor) + 1 : 1;
}

// The pair that makes `turns` turns over the original length.
double pair_of_turns(const RopeConfig& config, double turns) {
  return config.dim * std::log(config.original_length / (2 * std::numbers::pi * turns)) /
         (2 * std::log(config.base));
}

double read_original_length(ConfigReader& reader) {
  return static_cast<double>(reader.integer("original_max_position_embeddings", 1, int64_t{1} << 30));
}

void read_llama3(ConfigReader& reader, RopeConfig& config) {
  config.scaling = RopeConfig::Scaling::kLlama3;
  config.low_freq = reader.number_or("low_freq_factor", 1, 1e-6, 1e6);
  config.high_freq = reader.number_or("high_freq_factor", 4, 1e-6, 1e6);
  if (config.high_freq <= config.low_freq) reader.refuse("high_freq_factor", "is not above low_freq_factor");
  config.original_length = read_original_length(reader);
}

void read_yarn(ConfigReader& reader, RopeConfig& config) {
  config.scaling = RopeConfig::Scaling::kYarn;
  config.beta_fast = reader.number_or("beta_fast", 32, 1e-6, 1e6);
  config.beta_slow = reader.number_or("beta_slow", 1, 1e-6, 1e6);
  config.original_length = read_original_length(reader);
  config.mscale = reader.number_or("mscale", 0, 0, 1e3);
  config.mscale_all_dim = reader.number_or("mscale_all_dim", 0, 0, 1e3);
  config.attention_factor = reader.number_or("attention_factor", 0, 0, 1e3);
  if (!reader.flag_or("truncate", true)) config.yarn_bounds = RopeConfig::Bounds::kExact;
}

void read_scaling(const Json& scaling, ConfigReader& outer, RopeConfig& config) {
  ConfigReader reader(scaling);
  for (const auto& [key, value] : scaling.items())
    if (value.is_object()) reader.refuse(key.c_str(), "is an object: rope by kind of layer is not handled");
  const std::string type = reader.text_or("rope_type", reader.text_or("type", "default"));
  config.base = reader.number_or("rope_theta", config.base, 1, 1e12);
  if (type != "default") config.factor = reader.number_or("factor", 1, 1, 1e6);
  if (type == "linear") config.scaling = RopeConfig::Scaling::kLinear;
  if (type == "llama3") read_llama3(reader, config);
  if (type == "yarn") read_yarn(reader, config);
  reader.require("rope_type", type, {"default", "linear", "llama3", "yarn"});
  if (const Status status = reader.status(); !status) outer.refuse("rope scaling:", status.error().message);
}

}  // namespace

RopeConfig read_rope(ConfigReader& reader, int dim, double base) {
  RopeConfig config{.dim = dim};
  config.base = reader.number_or("rope_theta", base, 1, 1e12);
  const Json* scaling = reader.object("rope_parameters");
  if (scaling == nullptr) scaling = reader.object("rope_scaling");
  if (scaling != nullptr) read_scaling(*scaling, reader, config);
  return config;
}

RopeConfig read_partial_rope(ConfigReader& reader, int head_dim, double absent, double base) {
  double part = reader.number_or("partial_rotary_factor", absent, 0, 1);
  if (const Json* parameters = reader.object("rope_parameters"); parameters != nullptr) {
    ConfigReader inner(*parameters);
    part = inner.number_or("partial_rotary_factor", part, 0, 1);
    if (const Status status = inner.status(); !status)
      reader.refuse("rope_parameters:", status.error().message);
  }
  const int dim = static_cast<int>(head_dim * part);
  if (dim < 2 || dim % 2 != 0)
    reader.refuse(
        "partial_rotary_factor",
        fmt::format("{} of a head of {} rotates {} values, not an even number", part, head_dim, dim));
  return read_rope(reader, dim, base);
}

namespace {

// How much of a frequency is divided by the factor, from 0 to 1.
double divided_part_yarn(const RopeConfig& config, int pair) {
  double low = pair_of_turns(config, config.beta_fast), high = pair_of_turns(config, config.beta_slow);
  if (config.yarn_bounds == RopeConfig::Bounds::kWholePairs) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, config.dim - 1.0);
  if (high <= low) high = low + 0.001;
  return std::clamp((pair - low) / (high - low), 0.0, 1.0);
}

double divided_part_llama3(const RopeConfig& config, double frequency) {
  const double turns = config.original_length * frequency / (2 * std::numbers::pi);
  return 1 - std::clamp((turns - config.low_freq) / (config.high_freq - config.low_freq), 0.0, 1.0);
}

double divided_part(const RopeConfig& config, int pair, double frequency) {
  switch (config.scaling) {
    case RopeConfig::Scaling::kNone:
      return 0;
    case RopeConfig::Scaling::kLinear:
      return 1;
    case RopeConfig::Scaling::kLlama3:
      return divided_part_llama3(config, frequency);
    case RopeConfig::Scaling::kYarn:
      return divided_part_yarn(config, pair);
  }
  return 0;
}

}  // namespace

std::vector<double> inverse_frequencies(const RopeConfig& config) {
  std::vector<double> frequencies;
  for (int pair = 0; pair < config.dim / 2; ++pair) {
    const double plain = std::pow(config.base, -2.0 * pair / config.dim);
    const double part = divided_part(config, pair, plain);
    frequencies.push_back(plain * (1 - part) + plain / config.factor * part);
  }
  return frequencies;
}

double cos_sin_factor(const RopeConfig& config) {
  if (config.scaling != RopeConfig::Scaling::kYarn) return 1;
  if (config.attention_factor != 0) return config.attention_factor;
  if (config.mscale != 0 && config.mscale_all_dim != 0)
    return magnitude(config.factor, config.mscale) / magnitude(config.factor, config.mscale_all_dim);
  return magnitude(config.factor, 1);
}

double softmax_scale_factor(const RopeConfig& config) {
  if (config.scaling != RopeConfig::Scaling::kYarn || config.mscale_all_dim == 0) return 1;
  const double m = magnitude(config.factor, config.mscale_all_dim);
  return m * m;
}

RopeTables::RopeTables(const RopeConfig& config, int length, const Memory& memory)
    : cos_buffer_(memory), sin_buffer_(memory) {
  const auto frequencies = inverse_frequencies(config);
  const double factor = cos_sin_factor(config);
  std::vector<float> cos, sin;
  cos.reserve(static_cast<size_t>(length) * frequencies.size());
  sin.reserve(static_cast<size_t>(length) * frequencies.size());
  for (int position = 0; position < length; ++position)
    for (const double frequency : frequencies) {
      cos.push_back(static_cast<float>(std::cos(position * frequency) * factor));
      sin.push_back(static_cast<float>(std::sin(position * frequency) * factor));
    }
  cos_ = cos_buffer_.view({length, config.dim / 2});
  sin_ = sin_buffer_.view({length, config.dim / 2});
  memory.upload(cos_.data, cos.data(), cos.size() * sizeof(float));
  memory.upload(sin_.data, sin.data(), sin.size() * sizeof(float));
}

std::shared_ptr<const RopeTables> SharedRopeTables::get(const Memory& memory) const {
  const std::lock_guard lock(mutex_);
  auto tables = made_[&memory].lock();
  if (tables == nullptr) {
    tables = std::make_shared<const RopeTables>(config_, length_, memory);
    made_[&memory] = tables;
  }
  return tables;
}

}  // namespace lockstep::models
