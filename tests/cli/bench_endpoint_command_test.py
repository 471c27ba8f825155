#!/usr/bin/env python3
"""Runs `lockstep bench --base-url` against `lockstep serve`: what it reports of loads that are drawn and of a trace, and what it refuses.

usage: bench_endpoint_command_test.py LOCKSTEP_BINARY REPOSITORY
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "api"))
from lockstep_server import LockstepServer  # noqa: E402

MODEL = "tutor-deepseek-v3"
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "sent_late_ms")


def main():
    binary, repository = sys.argv[1], sys.argv[2]
    passed, failed = 0, 0

    def bench(url, flags):
        return subprocess.run([binary, "--log-level", "warning", "bench", "--base-url", url, *flags], capture_output=True, text=True, timeout=300)

    def check(name, good, done):
        nonlocal passed, failed
        passed, failed = passed + bool(good), failed + (not good)
        if not good:
            print(f"FAIL {name}: exit code {done.returncode}: {done.stdout} {done.stderr}")

    with LockstepServer(binary, f"{repository}/models/{MODEL}") as server, tempfile.TemporaryDirectory() as folder:
        url = server.url + "/v1"
        page, records, trace = (os.path.join(folder, name) for name in ("plot.html", "records.jsonl", "trace.jsonl"))

        done = bench(url, ["--json", "--model", MODEL, "--num-requests", "12", "--max-concurrency", "3", "--input-tokens", "8-20", "--output-tokens",
                           "6", "--ignore-eos", "--shared-prefix-tokens", "16", "--warmup", "1", "--slo-ttft-ms", "1000000", "--plot", page,
                           "--records", records])
        result = json.loads(done.stdout) if done.returncode == 0 else {}
        check("all completed", (result.get("completed"), result.get("failed")) == (12, 0), done)
        check("tokens", result.get("output_tokens") == 72 and result.get("input_tokens", 0) > 12 * 24, done)
        check("goodput of a deadline that all meet", result.get("good_share") == 1 and result.get("goodput_requests_per_second") == result.get("requests_per_second"), done)
        check("spreads are in order", all(result[key]["p50"] <= result[key]["p90"] <= result[key]["p99"] <= result[key]["max"] for key in LATENCIES if result), done)
        check("a whole answer takes longer than its first token", result and result["e2e_ms"]["mean"] > result["ttft_ms"]["mean"] > 0, done)
        seen = [json.loads(line) for line in open(records)] if done.returncode == 0 else []
        check("records", len(seen) == 12 and all(record["output_tokens"] == 6 and record["status"] == 200 for record in seen), done)
        spans = sorted((record["sent"], record["ended"]) for record in seen)
        check("no more than three at once", all(sum(a <= begin < b for a, b in spans) <= 3 for begin, _ in spans), done)
        text = open(page).read() if os.path.exists(page) else ""
        check("plot", "<svg" in text and "Output tokens a second" in text and "<script" not in text, done)

        done = bench(url, ["--json", "--api", "completions", "--num-requests", "10", "--request-rate", "20", "--seed", "3", "--input-tokens", "4",
                           "--output-tokens", "2", "--ignore-eos"])
        result = json.loads(done.stdout) if done.returncode == 0 else {}
        check("arrivals at random", result.get("completed") == 10 and result.get("seconds", 0) > 0.1 and result["request_rate"] == 20, done)

        with open(trace, "w") as file:
            for at, output in ((0, 3), (100, 4), (50, 5)):
                file.write(json.dumps({"timestamp": at, "input_length": 10, "output_length": output, "hash_ids": [7]}) + "\n")
        done = bench(url, ["--json", "--trace", trace, "--ignore-eos"])
        result = json.loads(done.stdout) if done.returncode == 0 else {}
        check("trace", (result.get("completed"), result.get("output_tokens")) == (3, 12), done)

        done = bench(url, ["--num-requests", "2", "--output-tokens", "8", "--ignore-eos"])
        check("table", done.returncode == 0 and "to the first token (TTFT)" in done.stdout and "2 completed, 0 failed" in done.stdout, done)
        done = bench(url, ["--model", "another", "--num-requests", "2"])
        check("refused requests are failures, and said", done.returncode == 1 and "status 404" in done.stdout and "another" in done.stdout, done)

    done = bench(url, ["--num-requests", "2"])
    check("nobody answers", done.returncode == 1 and "cannot connect" in done.stdout, done)
    for flags, named in ((["--input-tokens", "5-3"], "--input-tokens"), (["--trace", "/no/such/file"], "/no/such/file"), (["--num-requests", "0"], "--num-requests")):
        done = bench("http://127.0.0.1:1/v1", flags)
        check(" ".join(flags), done.returncode == 2 and named in done.stderr, done)
    done = bench("https://127.0.0.1/v1", [])
    check("TLS", done.returncode == 2 and "http://" in done.stderr, done)
    done = subprocess.run([binary, "bench", "--request-rate", "3", "--model", "x"], capture_output=True, text=True, timeout=60)
    check("flags of an endpoint without one", done.returncode == 2 and "--base-url" in done.stderr + done.stdout, done)

    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
