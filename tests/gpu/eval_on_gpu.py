#!/usr/bin/env python3
"""Runs `lockstep eval --device cuda` on the trained tutor: every problem must be right in every configuration.

usage: eval_on_gpu.py LOCKSTEP_BINARY REPOSITORY      exits with 77 (skipped) where no GPU can be used
"""

import json
import subprocess
import sys

# One rank, and worlds of two that share a GPU or have two.
CONFIGURATIONS = [
    "--tp-size 1",
    "--tp-size 1 --kv-cache-dtype bf16",
    "--tp-size 2",
    "--tp-size 2 --ep-size 2 --moe-a2a-backend in_process",
    "--tp-size 2 --dp-size 2 --enable-dp-attention --ep-size 2 --moe-a2a-backend in_process --moe-dense-tp-size 1",
    "--tp-size 2 --ep-size 2 --moe-a2a-backend in_process --kv-cache-dtype bf16",
]


def evaluate(binary, repository, flags):
    command = [binary, "--log-level", "warning", "eval", "--json", "--device", "cuda", "--model",
               f"{repository}/models/tutor-deepseek-v3", "--problems", f"{repository}/tests/eval/problems-seed11.jsonl",
               "--max-total-tokens", "65536", *flags.split()]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def main():
    binary, repository = sys.argv[1], sys.argv[2]
    failures = 0
    for flags in CONFIGURATIONS:
        done = evaluate(binary, repository, flags)
        if "--device cuda: " in done.stderr:
            print(done.stderr.strip())
            return 77
        if done.returncode != 0:
            failures += 1
            print(f"{flags}: exit code {done.returncode}: {done.stderr.strip()}")
            continue
        result = json.loads(done.stdout)
        right, total = result["right"], result["total"]
        failures += 0 if right == total and total >= 400 else 1
        print(f"{flags}: {right} of {total} right")
    print(f"{len(CONFIGURATIONS) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
