#!/usr/bin/env python3
"""Runs `lockstep eval` on the trained tutors in many parallel configurations: every problem must be right in each.

usage: eval_test.py LOCKSTEP_BINARY REPOSITORY
LOCKSTEP_EVAL_LIMIT asks only the first so many problems in the first two and then every fourth configuration, for slow sanitized builds.
"""

import json
import os
import subprocess
import sys
import time

SCATTERED = "--tp-size 4 --dp-size 2 --enable-dp-attention --ep-size 4 --moe-a2a-backend in_process --moe-dense-tp-size 1"
DEEPSEEK = [
    # Scattered dense layers, fusion allowed, a request limit that the attention-TP width 2 does not divide.
    SCATTERED + " --max-running-requests 97",
    # Fixed-geometry dispatch with whole dense layers and the LM head over attention-TP; few requests at once, so that
    # replicas are unequal and some idle.
    "--tp-size 4 --dp-size 4 --enable-dp-attention --ep-size 4 --moe-a2a-backend in_process --moe-dense-tp-size 1"
    " --enable-dp-lm-head --max-running-requests 3",
    "--tp-size 8 --dp-size 8 --enable-dp-attention --ep-size 8 --moe-a2a-backend in_process --moe-dense-tp-size 1"
    " --enable-dp-lm-head --max-running-requests 13",
    "--tp-size 1",
    "--tp-size 2",
    "--tp-size 2 --ep-size 2 --moe-a2a-backend in_process",
    "--tp-size 2 --dp-size 2 --enable-dp-attention --enable-dp-lm-head",
    "--tp-size 4",
    "--tp-size 4 --ep-size 4",
    "--tp-size 4 --ep-size 2 --moe-a2a-backend in_process --moe-dense-tp-size 2",
    SCATTERED + " --enable-dp-lm-head",
    SCATTERED + " --skip-pass fuse_all_reduce_add_norm",
    "--tp-size 4 --dp-size 2 --enable-dp-attention --ep-size 2 --moe-a2a-backend in_process --moe-dense-tp-size 4",
    "--tp-size 4 --dp-size 4 --enable-dp-attention --moe-dense-tp-size 1",
    "--tp-size 8",
    "--tp-size 8 --dp-size 2 --enable-dp-attention --ep-size 8 --moe-a2a-backend in_process --moe-dense-tp-size 1",
    "--tp-size 8 --dp-size 4 --enable-dp-attention --ep-size 2 --moe-a2a-backend in_process --moe-dense-tp-size 2",
    "--tp-size 6 --dp-size 3 --enable-dp-attention --ep-size 3 --moe-a2a-backend in_process --moe-dense-tp-size 2"
    " --chunked-prefill-size 16",
]

# The second tutor keeps a state a sequence; on eight ranks some of them share a key head of it.
QWEN = [
    "--tp-size 1",
    SCATTERED + " --max-running-requests 97",
    "--tp-size 8",
]
CONFIGURATIONS = [("tutor-deepseek-v3", flags) for flags in DEEPSEEK] + [("tutor-qwen3.5-moe", flags) for flags in QWEN]


def evaluate(binary, repository, model, flags, limit):
    command = [binary, "--log-level", "warning", "eval", "--json", "--model", f"{repository}/models/{model}",
               "--problems", f"{repository}/tests/eval/problems-seed11.jsonl", *flags.split()]
    if limit:
        command += ["--limit", str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode != 0:
        return None, done.stderr.strip()
    return json.loads(done.stdout), done.stderr.strip()


def main():
    binary, repository = sys.argv[1], sys.argv[2]
    limit = int(os.environ.get("LOCKSTEP_EVAL_LIMIT", "0"))
    configurations = CONFIGURATIONS[:2] + CONFIGURATIONS[4::4] if limit else CONFIGURATIONS
    failures = 0
    for model, flags in configurations:
        start = time.monotonic()
        result, errors = evaluate(binary, repository, model, flags, limit)
        right = result is not None and result["total"] > 0 and result["right"] == result["total"]
        failures += not right
        shown = f"{result['right']} of {result['total']} right" if result else "did not run"
        print(f"{'ok  ' if right else 'FAIL'} {shown} in {time.monotonic() - start:.1f} s: {model} {flags}", flush=True)
        if not right:
            print(errors or json.dumps(result["wrong"][:3], indent=1))
    print(f"{len(configurations) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
