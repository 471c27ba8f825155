#pragma once
// A model's weights in the memory of a device: each slice copied once. For the host nothing is copied. It
// lives as long as the model does.
#include <map>
#include <tuple>
#include <vector>

#include "lockstep/tensors/memory.h"
#include "lockstep/tensors/weight_view.h"

namespace lockstep::models {

class PlacedWeights {
 public:
  explicit PlacedWeights(const Memory& memory) : memory_(memory) {}
  bool is_on_host() const { return memory_.access() == Memory::Access::kByHost; }
  // The same numbers in the memory. A view that was asked for before is not copied again.
  TensorView place(const TensorView& weight);
  // Kernels of devices read plain numbers only: codes become bf16.
  WeightView place(const WeightView& weight);

 private:
  TensorView copy(const TensorView& weight);
  std::byte* room_for(size_t bytes);

  const Memory& memory_;
  std::vector<Buffer> buffers_;
  std::byte* next_ = nullptr;  // in the last buffer
  size_t left_ = 0;
  std::map<std::tuple<const void*, int64_t, int64_t, int64_t>, TensorView>
      placed_;  // by place, shape, stride
};

}  // namespace lockstep::models
