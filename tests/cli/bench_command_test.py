#!/usr/bin/env python3
"""`lockstep bench` with random weights: what it measures is there and positive; what cannot be run is refused.

usage: bench_command_test.py LOCKSTEP_BINARY REPOSITORY
"""

import json
import subprocess
import sys


def bench(binary, *flags):
    return subprocess.run([binary, "--log-level", "warning", "bench", *flags], capture_output=True, text=True, timeout=300)


def main():
    binary, repository = sys.argv[1], sys.argv[2]
    config = f"{repository}/tests/golden/qwen3-moe/config.json"
    small = ["--context", "14", "--output", "6", "--prompt-length", "20", "--repeats", "2", "--max-total-tokens", "512"]
    done = bench(binary, "--dummy-weights", "--config", config, "--batch", "1,3", *small, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [one["batch"] for one in result["decode"]] == [1, 3], result
    rates = [one["tokens_per_second"] for one in result["decode"]] + [result["prefill"]["tokens_per_second"]]
    assert all(rate > 0 for rate in rates), result

    lines = bench(binary, "--dummy-weights", "--config", config, "--batch", "2", "--tp-size", "2", *small)
    assert lines.returncode == 0 and lines.stdout.startswith("decode, batch    2"), lines.stdout + lines.stderr

    wrong_name = bench(binary, "--dummy-weights", "--config", f"{repository}/README.md")
    assert wrong_name.returncode == 2 and "--config" in wrong_name.stderr, wrong_name.stderr
    neither = bench(binary)
    assert neither.returncode == 2 and "--model" in neither.stderr, neither.stderr
    no_weights = bench(binary, "--config", f"{repository}/benchmarks/models/qwen3-30b-a3b/config.json")
    assert no_weights.returncode == 2, no_weights.stderr

    on_gpu = bench(binary, "--dummy-weights", "--config", config, "--batch", "2", "--device", "cuda", *small)
    if on_gpu.returncode != 0:  # built without CUDA, or no GPU here: refused with the reason
        assert on_gpu.returncode == 2 and "--device cuda: " in on_gpu.stderr, on_gpu.stderr
    print("6 passed, 0 failed")


if __name__ == "__main__":
    main()
