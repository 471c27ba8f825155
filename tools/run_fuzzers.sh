#!/usr/bin/env bash
# Runs every built fuzz target for FUZZ_SECONDS (60), FUZZ_JOBS (2) of them at a time, from the seeds in
# tests/fuzz/corpus/NAME. New inputs are kept in build/asan/fuzz/corpus, inputs that break something in build/asan/fuzz/found.
# NAME=SECONDS gives one target a time of its own.
# usage: tools/run_fuzzers.sh [NAME=SECONDS...] [NAME...]      (build first: tools/build.sh asan fuzzers)
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}
jobs=${FUZZ_JOBS:-2}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "FUZZ_SECONDS is '$seconds'; it must be a number of seconds above 0" >&2; exit 2; }
[[ $jobs =~ ^[1-9][0-9]*$ ]] || { echo "FUZZ_JOBS is '$jobs'; it must be a number above 0" >&2; exit 2; }
bin=build/asan/tests/fuzz
export ASAN_OPTIONS=allow_addr2line=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}  # names in stacks without LLVM's symbolizer

names=()
declare -A seconds_of=()
for argument in "$@"; do
  if [[ $argument == *=* ]]; then
    [[ ${argument#*=} =~ ^[1-9][0-9]*$ ]] || { echo "'$argument': the seconds must be a number above 0" >&2; exit 2; }
    [ -f "tests/fuzz/${argument%%=*}_fuzz.cc" ] || { echo "'$argument': there is no tests/fuzz/${argument%%=*}_fuzz.cc" >&2; exit 2; }
    seconds_of[${argument%%=*}]=${argument#*=}
  else
    names+=("$argument")
  fi
done
if [ ${#names[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cc; do
    name=$(basename "$source" .cc)
    names+=("${name%_fuzz}")
  done
fi
for name in "${names[@]}"; do
  [ -x "$bin/${name}_fuzz" ] || { echo "$bin/${name}_fuzz is not built; run: make fuzz" >&2; exit 2; }
done

# One target: its output goes to a log; exit status of the fuzzer.
fuzz_one() {
  local name=$1 seeds=tests/fuzz/corpus/$1 kept=build/asan/fuzz/corpus/$1 dictionary=tests/fuzz/$1.dict options=()
  mkdir -p "$kept" build/asan/fuzz/found build/asan/fuzz/logs
  [ -d "$seeds" ] && options+=("$seeds")
  [ -f "$dictionary" ] && options+=("-dict=$dictionary")
  "$bin/${name}_fuzz" -max_total_time="${seconds_of[$name]:-$seconds}" -timeout=10 -rss_limit_mb=2560 -print_final_stats=1 \
    -artifact_prefix="build/asan/fuzz/found/$name-" "$kept" "${options[@]}" >"build/asan/fuzz/logs/$name.log" 2>&1
}

started=$SECONDS
declare -A name_of=()
passed=0
failed=()

# Waits for one running target and says how it went.
collect() {
  local pid name status=0
  wait -n -p pid "${!name_of[@]}" || status=$?
  name=${name_of[$pid]}
  unset "name_of[$pid]"
  local log=build/asan/fuzz/logs/$name.log
  if [ "$status" -eq 0 ]; then
    passed=$((passed + 1))
    printf '%-24s ok      %s inputs\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  else
    failed+=("$name")
    printf '%-24s FAILED  (exit %d), the end of %s:\n' "$name" "$status" "$log"
    grep -v '^#[0-9]' "$log" | tail -n 40 | sed 's/^/    /'
    local input
    input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    [ -n "$input" ] && echo "    again with: $bin/${name}_fuzz $input"
  fi
}

trap 'kill "${!name_of[@]}" 2>/dev/null || true' INT TERM
echo "fuzzing ${names[*]}: $seconds s each, $jobs at a time"
for name in "${names[@]}"; do
  while [ "${#name_of[@]}" -ge "$jobs" ]; do collect; done
  fuzz_one "$name" &
  name_of[$!]=$name
done
while [ "${#name_of[@]}" -gt 0 ]; do collect; done
echo "fuzzing took $((SECONDS - started)) s; $passed passed, ${#failed[@]} failed"
[ "${#failed[@]}" -eq 0 ]
