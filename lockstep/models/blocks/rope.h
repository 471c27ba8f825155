#pragma once
// Rotary embedding tables: plain, or scaled to a longer context. linear divides all frequencies, llama3
// (Llama 3.1 model card) the slow ones, yarn (Peng et al. 2023, as DeepSeek's model card parametrises it)
// blends.
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/models/config_reader.h"
#include "lockstep/tensors/memory.h"

namespace lockstep::models {

struct RopeConfig {
  int dim = 0;  // rotated values of a head, even
  double base = 10000;
  enum class Scaling : uint8_t { kNone, kLinear, kLlama3, kYarn } scaling = Scaling::kNone;
  double factor = 1;
  double beta_fast = 32, beta_slow = 1;   // yarn: turns over the original length
  double low_freq = 1, high_freq = 4;     // llama3: the same
  double original_length = 0;             // tokens that the model was trained on before scaling
  double mscale = 0, mscale_all_dim = 0;  // 0: not given
  double attention_factor = 0;            // 0: not given
  enum class Bounds : uint8_t { kWholePairs, kExact } yarn_bounds = Bounds::kWholePairs;  // truncate
};

// Accepts both spellings: the dict rope_parameters, or rope_theta with rope_scaling. base: where rope_theta
// is absent.
RopeConfig read_rope(ConfigReader& reader, int dim, double base = 10000);
// The same where partial_rotary_factor says which part of a head is rotated; `absent` when it does not.
RopeConfig read_partial_rope(ConfigReader& reader, int head_dim, double absent, double base = 10000);

std::vector<double> inverse_frequencies(const RopeConfig& config);  // [dim / 2]
double cos_sin_factor(const RopeConfig& config);                    // on both tables; 1 without yarn
// What DeepSeek multiplies its softmax scale by: m(factor, mscale_all_dim)², 1 without yarn or without
// mscale_all_dim.
double softmax_scale_factor(const RopeConfig& config);

// cos and sin of every position in [0, length), float32 from float64.
class RopeTables {
 public:
  RopeTables(const RopeConfig& config, int length, const Memory& memory = host_memory());
  TensorView cos() const { return cos_; }
  TensorView sin() const { return sin_; }

 private:
  Buffer cos_buffer_, sin_buffer_;
  TensorView cos_, sin_;  // [length, dim / 2]
};

// The tables of one model, made for the first rank that asks and shared by all of the same memory: a long
// context's take tens of megabytes. May be asked from many threads; gone with the last who holds them.
class SharedRopeTables {
 public:
  SharedRopeTables(RopeConfig config, int length) : config_(config), length_(length) {}
  std::shared_ptr<const RopeTables> get(const Memory& memory = host_memory()) const;

 private:
  const RopeConfig config_;
  const int length_;
  mutable std::mutex mutex_;
  mutable std::map<const Memory*, std::weak_ptr<const RopeTables>> made_;
};

}  // namespace lockstep::models
