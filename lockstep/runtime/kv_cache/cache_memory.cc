#include "lockstep/runtime/kv_cache/cache_memory.h"

#include <algorithm>

namespace lockstep::runtime {

CacheBytes cache_bytes(std::span<const models::CacheNeed> needs, DType token_dtype) {
  CacheBytes bytes;
  for (const models::CacheNeed& need : needs) {
    bytes.per_token += need.values_per_token * static_cast<int64_t>(size_of(token_dtype));
    bytes.per_sequence += need.values_per_sequence * static_cast<int64_t>(size_of(DType::kF32));
  }
  return bytes;
}

Result<CacheMemory> CacheMemory::allocate(std::span<const models::CacheNeed> needs, const CacheShape& shape,
                                          const Memory& memory) {
  CacheMemory cache;
  for (const models::CacheNeed& need : needs) {
    LOCKSTEP_CHECK(need.values_per_token == 0 || need.values_per_sequence == 0,
                   "\"{}\" of layer {} has {} values a token and {} a sequence", need.what, need.layer,
                   need.values_per_token, need.values_per_sequence);
    const bool is_once = need.values_per_sequence > 0;
    const DType dtype = is_once ? DType::kF32 : shape.token_dtype;
    const int64_t rows = is_once ? shape.slots : shape.tokens;
    const int64_t values = is_once ? need.values_per_sequence : need.values_per_token;
    // A rank without heads keeps nothing, in memory of its own all the same.
    cache.memory_.emplace_back(
        memory.allocate_zeroed(std::max<size_t>(static_cast<size_t>(rows * values), 1) * size_of(dtype)),
        Release{&memory});
    if (cache.memory_.back() == nullptr)
      return Error{ErrorCode::kUnavailable,
                   fmt::format("no memory for \"{}\" of layer {}, {} values for each of {} {}: lower {}",
                               need.what, need.layer, values, rows, is_once ? "sequences" : "cached tokens",
                               is_once ? "--max-running-requests" : "--max-total-tokens"),
                   is_once ? "--max-running-requests" : "--max-total-tokens"};
    cache.views_.push_back(view_of(cache.memory_.back().get(), dtype, {rows, values}));
    if (is_once) cache.sequence_views_.push_back(cache.views_.back());
  }
  return cache;
}

}  // namespace lockstep::runtime
