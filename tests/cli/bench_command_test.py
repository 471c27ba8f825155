#!/usr/bin/env python3
"""Runs `lockstep bench` on a golden checkpoint: what it measures, and what it refuses before it measures anything.

usage: bench_command_test.py LOCKSTEP_BINARY REPOSITORY
"""

import json
import subprocess
import sys

SMALL = "--context 24 --output 8 --prompt-length 40,9 --repeats 1 --max-total-tokens 2048".split()
SMALL_CACHE = "--context 24 --output 8 --prompt-length 0 --repeats 1 --max-total-tokens 24".split()
REFUSED = {  # flags: what the error names
    "--batch 9 --max-running-requests 8": "--batch 9",
    "--batch 3000": "--max-running-requests",
    "--context 1000000": "--context 1000000",
    "--context 24 --output 24": "--output 24",
    "--context-length 64 --context 24 --output 8 --prompt-length 64": "--prompt-length 64",
    "--context-length 2": "--context-length 2",
}


def bench(binary, flags):
    command = [binary, "--log-level", "warning", "bench", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def main():
    binary, repository = sys.argv[1], sys.argv[2]
    model = f"{repository}/tests/golden/qwen3-moe"
    passed, failed = 0, 0

    def check(name, good, done):
        nonlocal passed, failed
        passed, failed = passed + bool(good), failed + (not good)
        if not good:
            print(f"FAIL {name}: exit code {done.returncode}: {done.stdout} {done.stderr}")

    done = bench(binary, ["--json", "--model", model, "--batch", "1,5", *SMALL])
    result = json.loads(done.stdout) if done.returncode == 0 else {"decode": []}
    check("batches", [one["batch"] for one in result["decode"]] == [1, 5], done)
    check("decode rates", all(one["tokens_per_second"] > 0 for one in result["decode"]), done)
    check("prefill", [one["prompt"] for one in result.get("prefill", [])] == [40, 9], done)
    check("prefill rates", all(one["tokens_per_second"] > 0 for one in result["prefill"]), done)
    check("roofs", result.get("roofs", {}).get("read_gb_per_second", 0) > 0 and result["roofs"]["gflop_per_second"] > 0, done)
    check("shares", all(0 < one["share_of_floor"] < 1 for one in result["decode"] + result["prefill"]), done)
    check("who", result.get("model") == "qwen3-moe" and result.get("device") == "cpu", done)

    # Without --batch: as many as may run at once, and no more.
    done = bench(binary, ["--json", "--config", f"{model}/config.json", "--dummy-weights", "--max-running-requests", "3", *SMALL])
    result = json.loads(done.stdout) if done.returncode == 0 else {"decode": []}
    check("default batches", [one["batch"] for one in result["decode"]] == [1, 3], done)
    check("random weights are said to be so", "random weights" in done.stderr, done)

    # A cache for one request at a time: there is no rate of four, and it is not called 0.
    done = bench(binary, ["--json", "--model", model, "--batch", "4", *SMALL_CACHE])
    result = json.loads(done.stdout) if done.returncode == 0 else {"decode": [{}]}
    one = result["decode"][0]
    check("never at once", one.get("tokens_per_second", 0) is None and "--max-total-tokens" in one.get("not_measured", ""), done)

    for flags, named in REFUSED.items():
        done = bench(binary, ["--model", model, *flags.split()])
        check(flags, done.returncode != 0 and named in done.stderr and "tokens/s" not in done.stdout, done)
    done = bench(binary, ["--model", model, "--config", f"{model}/config.json", *SMALL])
    check("--model with --config", done.returncode != 0 and "excludes" in done.stderr + done.stdout, done)

    # On two ranks, as text.
    done = bench(binary, ["--model", model, "--batch", "2", "--tp-size", "2", *SMALL])
    check("text", done.returncode == 0 and "\ndecode, batch    2" in done.stdout and done.stdout.count("tokens/s") == 3 and done.stdout.count(" % of ") == 3, done)
    done = bench(binary, ["--dummy-weights", "--config", f"{repository}/README.md"])
    check("another file", done.returncode == 2 and "--config" in done.stderr, done)
    done = bench(binary, [])
    check("no model", done.returncode == 2 and "--model" in done.stderr, done)
    done = bench(binary, ["--config", f"{repository}/benchmarks/models/qwen3-30b-a3b/config.json"])
    check("no weights", done.returncode == 2, done)
    # Built without CUDA, or no GPU here: refused with the reason.
    done = bench(binary, ["--model", model, "--batch", "2", "--device", "cuda", *SMALL])
    check("a GPU", done.returncode == 0 or (done.returncode == 2 and "--device cuda: " in done.stderr), done)

    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
