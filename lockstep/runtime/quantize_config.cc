#include "lockstep/runtime/quantize_config.h"

namespace lockstep::runtime {
namespace {

struct Layout {
  const char* format;
  Json weights;
  Json activations;
};

// As compressed-tensors names its layouts.
Layout layout_of(const WeightEncoding& encoding) {
  Json weights = {{"num_bits", 4}, {"type", "float"}, {"symmetric", true}, {"dynamic", false}};
  switch (encoding.format) {
    case QuantFormat::kNvfp4:
      weights["strategy"] = "tensor_group";
      weights["group_size"] = 16;
      return {"nvfp4-pack-quantized", weights, nullptr};
    case QuantFormat::kMxfp4:
      weights["strategy"] = "group";
      weights["group_size"] = 32;
      weights["scale_dtype"] = "torch.uint8";
      return {"mxfp4-pack-quantized", weights, nullptr};
    case QuantFormat::kInt8:
      weights["num_bits"] = 8;
      weights["type"] = "int";
      weights["strategy"] = "channel";
      return {
          "int-quantized",
          weights,
          {{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"dynamic", true}, {"strategy", "token"}}};
    case QuantFormat::kInt4:
      weights["type"] = "int";
      weights["strategy"] = "group";
      weights["group_size"] = encoding.group_size;
      return {"pack-quantized", weights, nullptr};
    case QuantFormat::kFp8:
      break;
  }
  return {};
}

}  // namespace

Json quantization_config(const WeightEncoding& encoding, const std::vector<std::string>& ignored) {
  if (encoding.format == QuantFormat::kFp8)
    return {{"quant_method", "fp8"},
            {"fmt", "e4m3"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size", {128, 128}},
            {"modules_to_not_convert", ignored}};
  const Layout layout = layout_of(encoding);
  const Json group = {{"targets", {"Linear"}},
                      {"weights", layout.weights},
                      {"input_activations", layout.activations},
                      {"output_activations", nullptr},
                      {"format", layout.format}};
  return {{"quant_method", "compressed-tensors"},
          {"format", layout.format},
          {"quantization_status", "compressed"},
          {"config_groups", {{"group_0", group}}},
          {"ignore", ignored},
          {"kv_cache_scheme", nullptr}};
}

Json together_config(const std::vector<std::string>& ignored) {
  return {{"quant_method", "mxfp4"}, {"modules_to_not_convert", ignored}};
}

}  // namespace lockstep::runtime
