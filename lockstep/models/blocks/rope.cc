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

void read_scaling(const Json& scaling, ConfigReader& outer, RopeConfig& config) {
  ConfigReader reader(scaling);
  const std::string type = reader.text_or("rope_type", reader.text_or("type", "default"));
  config.base = reader.number_or("rope_theta", config.base, 1, 1e12);
  if (type == "yarn") {
    config.scaling = RopeConfig::Scaling::kYarn;
    config.factor = reader.number_or("factor", 1, 1, 1e6);
    config.beta_fast = reader.number_or("beta_fast", 32, 1e-6, 1e6);
    config.beta_slow = reader.number_or("beta_slow", 1, 1e-6, 1e6);
    config.original_length =
        static_cast<double>(reader.integer("original_max_position_embeddings", 1, int64_t{1} << 30));
    config.mscale = reader.number_or("mscale", 0, 0, 1e3);
    config.mscale_all_dim = reader.number_or("mscale_all_dim", 0, 0, 1e3);
    config.attention_factor = reader.number_or("attention_factor", 0, 0, 1e3);
    if (!reader.flag_or("truncate", true)) reader.refuse("truncate", "false is not handled");
  } else {
    reader.require("rope_type", type, {"default", "yarn"});
  }
  if (const Status status = reader.status(); !status) outer.refuse("rope scaling:", status.error().message);
}

}  // namespace

RopeConfig read_rope(ConfigReader& reader, int dim) {
  RopeConfig config{.dim = dim};
  config.base = reader.number_or("rope_theta", 10000, 1, 1e12);
  const Json* scaling = reader.object("rope_parameters");
  if (scaling == nullptr) scaling = reader.object("rope_scaling");
  if (scaling != nullptr) read_scaling(*scaling, reader, config);
  return config;
}

std::vector<double> inverse_frequencies(const RopeConfig& config) {
  std::vector<double> frequencies;
  double low = 0, high = 0;
  if (config.scaling == RopeConfig::Scaling::kYarn) {
    low = std::max(std::floor(pair_of_turns(config, config.beta_fast)), 0.0);
    high = std::min(std::ceil(pair_of_turns(config, config.beta_slow)), config.dim - 1.0);
    if (high <= low) high = low + 0.001;
  }
  for (int pair = 0; pair < config.dim / 2; ++pair) {
    const double plain = std::pow(config.base, -2.0 * pair / config.dim);
    if (config.scaling == RopeConfig::Scaling::kNone) {
      frequencies.push_back(plain);
    } else {
      const double ramp = std::clamp((pair - low) / (high - low), 0.0, 1.0);
      frequencies.push_back(plain * (1 - ramp) + plain / config.factor * ramp);
    }
  }
  return frequencies;
}

double cos_sin_factor(const RopeConfig& config) {
  if (config.scaling == RopeConfig::Scaling::kNone) return 1;
  if (config.attention_factor != 0) return config.attention_factor;
  if (config.mscale != 0 && config.mscale_all_dim != 0)
    return magnitude(config.factor, config.mscale) / magnitude(config.factor, config.mscale_all_dim);
  return magnitude(config.factor, 1);
}

double softmax_scale_factor(const RopeConfig& config) {
  if (config.scaling == RopeConfig::Scaling::kNone || config.mscale_all_dim == 0) return 1;
  const double m = magnitude(config.factor, config.mscale_all_dim);
  return m * m;
}

RopeTables::RopeTables(const RopeConfig& config, int length) : length_(length), pairs_(config.dim / 2) {
  const auto frequencies = inverse_frequencies(config);
  const double factor = cos_sin_factor(config);
  cos_.reserve(static_cast<size_t>(length) * pairs_);
  sin_.reserve(static_cast<size_t>(length) * pairs_);
  for (int position = 0; position < length; ++position)
    for (const double frequency : frequencies) {
      cos_.push_back(static_cast<float>(std::cos(position * frequency) * factor));
      sin_.push_back(static_cast<float>(std::sin(position * frequency) * factor));
    }
}

TensorView RopeTables::view(const std::vector<float>& values) const {
  return view_of(const_cast<float*>(values.data()), {length_, pairs_});
}

}  // namespace lockstep::models
