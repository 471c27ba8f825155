#!/usr/bin/env bash
# The checks of the tree that need no build, in seconds (ctest runs them too, with those that need one).
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONDONTWRITEBYTECODE=1
passed=0
failed=0
for check in rooms sizes text docs; do
  if python3 "tests/architecture/check_$check.py"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "tree: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
