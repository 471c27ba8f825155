#pragma once
// Dense products by cuBLASLt: bf16 in, float32 sums and results. The algorithm of a shape is asked for once.
#include <cublasLt.h>

#include <map>

#include "lockstep/kernels/cuda/gpu.h"

namespace lockstep::kernels::cuda {

enum class Weight : uint8_t { kOutIn, kInOut };  // [out, in], as a Linear is stored, or [in, out]
enum class Onto : uint8_t { kNothing, kSum };    // out = …, or out += …

struct DenseShape {
  Weight weight = Weight::kOutIn;
  int64_t rows = 0, in = 0, out = 0;
  int64_t x_stride = 0, w_stride = 0, out_stride = 0;
  uint32_t x_alignment = 0, w_alignment = 0, out_alignment = 0;  // bytes
  auto operator<=>(const DenseShape&) const = default;
};

// The largest power of two, up to 256, that divides an address.
uint32_t alignment_of(const void* data);

class Dense {
 public:
  explicit Dense(const Gpu& gpu);
  ~Dense();
  Dense(const Dense&) = delete;
  Dense& operator=(const Dense&) = delete;

  // x [rows, in] and w bf16, out [rows, out] f32. False: the library has no algorithm for this shape.
  [[nodiscard]] bool product(const DenseShape& shape, Onto onto, const void* x, const void* w, float* out);

 private:
  struct Made;
  const Made& made_for(const DenseShape& shape);

  const Gpu& gpu_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<DenseShape, Made> made_;
};

}  // namespace lockstep::kernels::cuda
