#!/usr/bin/env bash
# Builds the CUDA backend with its tests and runs them. What needs a GPU is skipped, with the reason, where there is none.
# usage: tools/test_gpu.sh [build]     (build: compile everything, run only what needs no GPU)
# The last line counts test cases; without nvcc nothing is compiled and the stage says "gpu: skipped".
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v nvcc >/dev/null && ! [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]; then
  echo "there is no nvcc on the PATH or in \${CUDA_HOME:-/usr/local/cuda}/bin: the CUDA backend was not compiled"
  echo "gpu: skipped"
  echo "0 passed, 0 failed"
  exit 0
fi
tools/build.sh cuda lockstep test_kernels_cuda test_gpu
tests='^(kernels_cuda|gpu|gpu_eval)$'
[ "${1:-}" != build ] || tests='^kernels_cuda$'
status=0
ctest --preset cuda --no-tests=error -R "$tests" || status=$?
log=build/cuda/Testing/Temporary/LastTest.log
read -r passed skipped failed < <(awk '
  /^\[  PASSED  \] [0-9]+ test/ { passed += $4 }
  /^\[  SKIPPED \] [0-9]+ test/ { skipped += $4 }
  /^\[  FAILED  \] [0-9]+ test/ { failed += $4 }
  /^[0-9]+ passed, [0-9]+ failed$/ { passed += $1; failed += $3 }
  END { print passed + 0, skipped + 0, failed + 0 }' "$log")
[ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
[ "$skipped" -eq 0 ] || grep -m1 -o -- '--device cuda: no GPU.*' "$log" || true
echo "gpu: $skipped skipped"
echo "$passed passed, $failed failed"
exit "$status"
