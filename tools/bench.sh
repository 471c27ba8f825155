#!/usr/bin/env bash
# Builds and runs the benchmarks, and keeps what each measured as JSON in build/bench/results.
# usage: tools/bench.sh [NAME...]      (tools/bench.sh planning runs benchmarks/planning/planning_bench.cc)
set -euo pipefail
cd "$(dirname "$0")/.."
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for source in benchmarks/*/*_bench.cc; do
    name=$(basename "$source" .cc)
    names+=("${name%_bench}")
  done
fi
tools/build.sh bench benchmarks
results=build/bench/results
mkdir -p "$results"
for name in "${names[@]}"; do
  program=build/bench/benchmarks/${name}_bench
  [ -x "$program" ] || { echo "there is no benchmark called '$name' (benchmarks/*/${name}_bench.cc)" >&2; exit 2; }
  echo "== $name"
  "$program" --benchmark_out="$results/$name.json" --benchmark_out_format=json 2>&1 | grep -v '^\*\*\*WARNING\*\*\*'
done
echo "results: $results/*.json"
