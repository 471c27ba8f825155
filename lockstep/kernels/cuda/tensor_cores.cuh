#pragma once
// The instructions of tensor cores and of copies into shared memory that nobody waits for, one function each.
#include <cuda_bf16.h>

#include <cstdint>

namespace lockstep::kernels::cuda {

// c += a · b for 16 rows, 8 columns and 16 of depth, as the warp's threads hold them.
__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four matrices of 8 by 8 from shared memory; each thread says where one row begins.
template <bool kTransposed>
__device__ inline void load_matrices(uint32_t (&r)[4], const __nv_bfloat16* from) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(from));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
  }
}

// 16 bytes into shared memory without waiting.
__device__ inline void copy16(__nv_bfloat16* to, const __nv_bfloat16* from) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from));
}
// The same for what is read once and in a row: memory is asked for 256 bytes at a time.
__device__ inline void copy16_ahead(__nv_bfloat16* to, const __nv_bfloat16* from, int bytes) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes));
}
// Zeros where `bytes` is 0 and not 16, so that nothing left there is multiplied.
__device__ inline void copy16_or_zeros(__nv_bfloat16* to, const __nv_bfloat16* from, int bytes) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes));
}
// Brings the line of memory nearer that will be read.
__device__ inline void ask_for(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;"); }
// Until all but the last kPending commits have arrived.
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending));
}

}  // namespace lockstep::kernels::cuda
