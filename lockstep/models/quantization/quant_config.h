#pragma once
// What a checkpoint's config.json says of its number formats (quantization_config), checked: methods and
// settings that are not handled are refused by name. How a tensor is stored is read from the file
// (stored_weight.h); this says what the file does not: block shapes, bits, and modules that are left alone.
#include <string>
#include <vector>

#include "lockstep/models/config_reader.h"
#include "lockstep/models/quantization/name_pattern.h"

namespace lockstep::models {

struct QuantConfig {
  enum class Method : uint8_t { kNone, kFp8, kModelOpt, kCompressedTensors, kMxfp4, kGptq, kAwq };
  Method method = Method::kNone;
  int64_t block_rows = 0, block_cols = 0;  // kFp8, kModelOpt: of a factor; 0: one factor for a tensor
  int bits = 4;                            // kModelOpt, kGptq, kAwq
  int64_t group_size = 0;                  // kGptq, kAwq: inputs that share a factor; 0: all
  // Older GPTQ files hold zero points less one.
  enum class Zeros : uint8_t { kLessOne, kAsStored } zeros = Zeros::kLessOne;

  // kCompressedTensors: how the modules that a target names are stored.
  struct Group {
    std::vector<NamePattern> targets;
    bool targets_all = false;  // "Linear"
    int bits = 8;
    enum class Type : uint8_t { kInt, kFloat } type = Type::kInt;
    enum class Strategy : uint8_t { kTensor, kChannel, kGroup, kBlock } strategy = Strategy::kChannel;
    int64_t group_size = 0;                  // kGroup
    int64_t block_rows = 0, block_cols = 0;  // kBlock
  };
  std::vector<Group> groups;
  std::vector<NamePattern> ignored;
  double plain_bytes = 2;  // kNone: of a number, as the config's dtype says

  // module: "model.layers.0.mlp.up_proj"
  bool ignores(const std::string& module) const;
  const Group* group_of(const std::string& module) const;  // null: none
};

std::string_view name_of(QuantConfig::Method method);  // as in quant_method

// Problems go to the reader. No quantization_config: kNone.
QuantConfig read_quantization(ConfigReader& reader);

// Bytes that a weight of the quantized modules takes, factors included; what planning predicts times with.
double bytes_per_weight(const QuantConfig& config);
// Inputs or outputs that share a factor, the larger of both; 0: any split is between blocks.
int block_width(const QuantConfig& config);

}  // namespace lockstep::models
