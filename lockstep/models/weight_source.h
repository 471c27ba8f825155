#pragma once
// Where a model's weights come from and what a load is for. Made by whoever starts the ranks, passed through
// a family's load() to the WeightReader.
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/tensors/safetensors.h"
#include "lockstep/tensors/weight_encode.h"

namespace lockstep::models {

// A tensor or, of a quantized weight, the group of tensors "name*" that a model reads.
struct WeightUse {
  enum class As : uint8_t {
    kNumbers,  // norms, routers, embeddings: only plain numbers will do
    kWeight,   // any number format
  } as = As::kNumbers;
  std::string name;
  int64_t count = 0;           // matrices in one tensor; 0: it is one matrix or a vector
  int64_t rows = 0, cols = 0;  // of kWeight: of a matrix
};

// Embeddings and heads, which layouts of quantized checkpoints leave alone.
inline bool is_table(std::string_view name) {
  return name.ends_with("embed_tokens.weight") || name.ends_with("lm_head.weight");
}

struct WeightSource {
  // NOLINTNEXTLINE(google-explicit-constructor): a checkpoint alone is a source to run from.
  WeightSource(const Checkpoint& weights) : checkpoint(weights) {}

  const Checkpoint& checkpoint;
  enum class Purpose : uint8_t {
    kRun,      // read what the shards keep
    kInspect,  // check every tensor of the file, touch none; the model that comes out cannot run
  } purpose = Purpose::kRun;
  std::optional<QuantFormat> encode_as;  // plain weights become this while they are read (--quantization)
  int threads = 1;                       // that work on it together
  std::atomic<uint64_t>* bytes_read = nullptr;     // counts up meanwhile
  std::vector<std::string>* left_aside = nullptr;  // out, to inspect: what is known and not run, for people
  std::vector<WeightUse>* uses = nullptr;          // out: what the model reads
};

}  // namespace lockstep::models
