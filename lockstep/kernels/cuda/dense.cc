#include "lockstep/kernels/cuda/dense.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

void expect(cublasStatus_t status, std::string_view call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Fatal(fmt::format("{} failed with cuBLAS status {}", call, static_cast<int>(status)));
}

cublasLtMatrixLayout_t layout(cudaDataType type, int64_t rows, int64_t cols, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  expect(cublasLtMatrixLayoutCreate(&made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols),
                                    stride),
         "cublasLtMatrixLayoutCreate");
  return made;
}

void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what,
            uint32_t bytes) {
  expect(cublasLtMatmulPreferenceSetAttribute(preference, what, &bytes, sizeof(bytes)),
         "cublasLtMatmulPreferenceSetAttribute");
}

}  // namespace

uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  uint32_t alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

// The library counts columns first: our out [rows, out] is its [out × rows], the weight comes first.
struct Dense::Made {
  cublasLtMatmulDesc_t what = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
  bool found = false;
};

Dense::Dense(const Gpu& gpu) : gpu_(gpu) {
  gpu_.use();
  expect(cublasLtCreate(&handle_), "cublasLtCreate");
  expect_success(cudaMalloc(&workspace_, kWorkspaceBytes), "cudaMalloc");
}

Dense::~Dense() {
  for (auto& [shape, made] : made_) {
    cublasLtMatrixLayoutDestroy(made.w);
    cublasLtMatrixLayoutDestroy(made.x);
    cublasLtMatrixLayoutDestroy(made.out);
    cublasLtMatmulDescDestroy(made.what);
  }
  cudaFree(workspace_);
  cublasLtDestroy(handle_);
}

const Dense::Made& Dense::made_for(const DenseShape& shape) {
  const auto [at, is_new] = made_.try_emplace(shape);
  Made& made = at->second;
  if (!is_new) return made;
  expect(cublasLtMatmulDescCreate(&made.what, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const cublasOperation_t turn = shape.weight == Weight::kOutIn ? CUBLAS_OP_T : CUBLAS_OP_N;
  expect(cublasLtMatmulDescSetAttribute(made.what, CUBLASLT_MATMUL_DESC_TRANSA, &turn, sizeof(turn)),
         "cublasLtMatmulDescSetAttribute");
  const bool out_in = shape.weight == Weight::kOutIn;
  made.w = layout(CUDA_R_16BF, out_in ? shape.in : shape.out, out_in ? shape.out : shape.in, shape.w_stride);
  made.x = layout(CUDA_R_16BF, shape.in, shape.rows, shape.x_stride);
  made.out = layout(CUDA_R_32F, shape.out, shape.rows, shape.out_stride);
  cublasLtMatmulPreference_t preference = nullptr;
  expect(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const size_t bytes = kWorkspaceBytes;
  expect(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                              sizeof(bytes)),
         "cublasLtMatmulPreferenceSetAttribute");
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.w_alignment);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.x_alignment);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.out_alignment);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.out_alignment);
  cublasLtMatmulHeuristicResult_t result = {};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, made.what, made.w, made.x, made.out,
                                                               made.out, preference, 1, &result, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  made.found = status == CUBLAS_STATUS_SUCCESS && count > 0 && result.state == CUBLAS_STATUS_SUCCESS;
  if (made.found) made.algorithm = result.algo;
  return made;
}

bool Dense::product(const DenseShape& shape, Onto onto, const void* x, const void* w, float* out) {
  const Made& made = made_for(shape);
  if (!made.found) return false;
  const float one = 1, sum = onto == Onto::kSum ? 1 : 0;
  expect(cublasLtMatmul(handle_, made.what, &one, w, made.w, x, made.x, &sum, out, made.out, out, made.out,
                        &made.algorithm, workspace_, kWorkspaceBytes, gpu_.stream()),
         "cublasLtMatmul");
  return true;
}

}  // namespace lockstep::kernels::cuda
