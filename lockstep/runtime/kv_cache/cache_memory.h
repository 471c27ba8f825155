#pragma once
// The bytes of one rank's cache: for every token of every page, and once for every slot. Which page and which
// slot is whose is the scheduler's to say (page_pool.h, slot_pool.h). For the executor; start.cc asks for
// sizes.
#include <memory>
#include <span>
#include <vector>

#include "lockstep/models/model.h"

namespace lockstep::runtime {

struct CacheShape {
  int64_t tokens = 0;               // places for tokens: pages * page size
  int64_t slots = 0;                // places for what is kept once a sequence, always float32
  DType token_dtype = DType::kF32;  // or kBF16
};

struct CacheBytes {
  int64_t per_token = 0, per_sequence = 0;
};
CacheBytes cache_bytes(std::span<const models::CacheNeed> needs, DType token_dtype);

class CacheMemory {
 public:
  // All zero. On the host, memory that no sequence has touched costs nothing; a GPU gives all of it at once.
  static Result<CacheMemory> allocate(std::span<const models::CacheNeed> needs, const CacheShape& shape,
                                      const Memory& memory = host_memory());

  // One a need, in their order: [tokens, values per token] or [slots, values per sequence].
  std::span<const TensorView> views() const { return views_; }
  // Of these, what is kept once a sequence.
  std::span<const TensorView> sequence_views() const { return sequence_views_; }

 private:
  struct Release {
    const Memory* of;
    void operator()(void* memory) const { of->release(memory); }
  };
  std::vector<std::unique_ptr<void, Release>> memory_;
  std::vector<TensorView> views_, sequence_views_;
};

}  // namespace lockstep::runtime
