#pragma once
// The instruction sets that vector/ is compiled for; to be included before any header of Highway, which reads
// the macro. AVX-512, AVX2 and SSE4 on x86, NEON on Arm, and portable code below them. The kernels keep
// vectors in arrays, which the scalable vectors of SVE forbid; SSSE3 would be compiled for processors of 2006
// only.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
