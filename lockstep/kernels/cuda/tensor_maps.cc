#include "lockstep/kernels/cuda/tensor_maps.h"

#include <cuda.h>

#include <cstring>

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

}  // namespace

TensorMap make_tensor_map(const MappedMatrix& matrix) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  static const Encode encode_map = encode();
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(matrix.cols), static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.stride) * 2};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(kMapCols), static_cast<cuuint32_t>(matrix.box_rows)};
  const cuuint32_t steps[] = {1, 1};
  CUtensorMap made;
  const CUresult error =
      encode_map(&made, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(matrix.data), sizes, strides,
                 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != CUDA_SUCCESS)
    throw Fatal(fmt::format("cuTensorMapEncodeTiled of {} x {} numbers, {} apart, failed with {}",
                            matrix.rows, matrix.cols, matrix.stride, static_cast<int>(error)));
  TensorMap map;
  std::memcpy(&map, &made, sizeof(map));
  return map;
}

const TensorMap& TensorMaps::of(const MappedMatrix& matrix) {
  const auto found = made_.find(matrix);
  return found != made_.end() ? found->second : made_.emplace(matrix, make_tensor_map(matrix)).first->second;
}

}  // namespace lockstep::kernels::cuda
