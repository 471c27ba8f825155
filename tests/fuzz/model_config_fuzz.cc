// Any bytes as config.json: a description that keeps its own promises, or a refusal with a message.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lockstep/base/json.h"
#include "lockstep/models/registry.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config =
      lockstep::parse_json({reinterpret_cast<const char*>(data), size}, {.max_bytes = 1 << 16});
  if (!config || !config->is_object()) return 0;
  const auto description = lockstep::models::describe_config(*config);
  if (!description) {
    if (description.error().message.empty()) std::abort();
    return 0;
  }
  const lockstep::planning::ModelShape shape = (*description)->shape();
  if (shape.hidden < 1 || shape.vocab < 1 || shape.layers.empty() || !(shape.bytes_per_weight > 0))
    std::abort();
  for (const auto& need : (*description)->cache_needs({}))
    if (need.values_per_token < 0 || need.values_per_sequence < 0) std::abort();
  return 0;
}
