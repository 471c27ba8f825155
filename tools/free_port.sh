#!/usr/bin/env bash
# Prints a port of this machine at which nothing answers.
set -euo pipefail
for _ in $(seq 100); do
  port=$((20000 + RANDOM % 10000))
  (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; exit 0; }
done
echo "no free port between 20000 and 30000" >&2
exit 1
