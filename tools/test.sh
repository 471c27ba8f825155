#!/usr/bin/env bash
# Builds one preset with everything its tests need and runs them. usage: tools/test.sh {release|asan|tsan} [CTEST OPTION...]
# The last line counts the test cases of all the programs that ran.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
tools/build.sh "$preset"
status=0
ctest --preset "$preset" --no-tests=error --parallel "${TEST_JOBS:-2}" "$@" || status=$?

# The closing lines of GoogleTest, of unittest and of our own scripts, from what ctest kept.
log=build/$preset/Testing/Temporary/LastTest.log
read -r passed failed < <(awk '
  /^\[  PASSED  \] [0-9]+ test/ { passed += $4 }
  /^\[  FAILED  \] [0-9]+ test/ { failed += $4 }
  /^[0-9]+ passed, [0-9]+ failed$/ { passed += $1; failed += $3 }
  /^Ran [0-9]+ tests? in / { ran = $2 }
  /^OK( |$)/ { passed += ran; ran = 0 }
  /^FAILED \(/ { n = 0; gsub(/[^0-9]+/, " "); split($0, part, " "); for (i in part) n += part[i]; failed += n; passed += ran - n }
  END { print passed + 0, failed + 0 }' "$log")
# A program that dies, or that has no such line: ctest knows.
[ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
echo "$preset: $passed passed, $failed failed"
exit "$status"
