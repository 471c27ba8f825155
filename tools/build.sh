#!/usr/bin/env bash
# Configures one preset where that has not been done, and builds targets of it (all when none is named).
# usage: tools/build.sh PRESET [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
folder=build/$preset
if [ ! -f "$folder/build.ninja" ]; then
  log=$folder-configure.log
  mkdir -p build
  cmake --preset "$preset" >"$log" 2>&1 || {
    tail -n 25 "$log" >&2
    echo "CMake could not configure the preset '$preset'; its words are above and in $log" >&2
    exit 1
  }
fi
targets=()
[ $# -eq 0 ] || targets=(--target "$@")
# One compiler process wants up to about 1.5 GB.
jobs=${JOBS:-$(awk -v cores="$(nproc)" '/^MemAvailable/ {n = int($2 / 1500000); print n < 1 ? 1 : n < cores ? n : cores}' /proc/meminfo)}
cmake --build "$folder" --parallel "$jobs" "${targets[@]}" || {
  echo "The build of '$preset' failed; the compiler's words are above." >&2
  exit 1
}
