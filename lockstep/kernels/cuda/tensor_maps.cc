#include "lockstep/kernels/cuda/tensor_maps.h"

#include <cuda.h>

#include <cstring>
#include <span>

namespace lockstep::kernels::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, found without linking the driver.
Encode encode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  expect_success(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result),
      "cudaGetDriverEntryPoint");
  if (result != cudaDriverEntryPointSuccess || found == nullptr)
    throw Fatal(fmt::format("the driver has no cuTensorMapEncodeTiled ({})", static_cast<int>(result)));
  return reinterpret_cast<Encode>(found);
}

// Innermost dimension first; `strides` are those of all further dimensions, in bytes.
TensorMap encoded(const void* data, std::span<const cuuint64_t> sizes, std::span<const cuuint64_t> strides,
                  std::span<const cuuint32_t> box) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  static const Encode encode_map = encode();
  constexpr cuuint32_t kSteps[] = {1, 1, 1};
  CUtensorMap made;
  const CUresult error = encode_map(
      &made, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<cuuint32_t>(sizes.size()), const_cast<void*>(data),
      sizes.data(), strides.data(), box.data(), kSteps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != CUDA_SUCCESS)
    throw Fatal(fmt::format("cuTensorMapEncodeTiled of {} x {} numbers, {} bytes apart, failed with {}",
                            sizes.back(), sizes.front(), strides.back(), static_cast<int>(error)));
  TensorMap map;
  std::memcpy(&map, &made, sizeof(map));
  return map;
}

}  // namespace

TensorMap make_tensor_map(const MappedMatrix& matrix) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(matrix.cols), static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.stride) * 2};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(kMapCols), static_cast<cuuint32_t>(matrix.box_rows)};
  return encoded(matrix.data, sizes, strides, box);
}

TensorMap make_tensor_map(const MappedHeads& heads) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(heads.width), static_cast<cuuint64_t>(heads.heads),
                              static_cast<cuuint64_t>(heads.rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(heads.width) * 2,
                                static_cast<cuuint64_t>(heads.width * heads.heads) * 2};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(kMapCols), static_cast<cuuint32_t>(heads.box_heads),
                            static_cast<cuuint32_t>(heads.box_rows)};
  return encoded(heads.data, sizes, strides, box);
}

const TensorMap& TensorMaps::of(const MappedMatrix& matrix) {
  const auto found = made_.find(matrix);
  return found != made_.end() ? found->second : made_.emplace(matrix, make_tensor_map(matrix)).first->second;
}

}  // namespace lockstep::kernels::cuda
