#!/usr/bin/env python3
"""Lockstep beside llama.cpp on one checkpoint of random weights, in the same precision, taking turns in one run.

usage: compare_with_llama_cpp.py LOCKSTEP_BINARY WORK_FOLDER [--config FILE] [--rounds N] [--threads N] [--kind bf16|int8]

WORK_FOLDER keeps what takes long: a venv with numpy and gguf, llama.cpp as llama-cpp-python on PyPI ships it (built
there with its own flags for this machine), the checkpoint and its GGUF files. Each round measures both engines, so
that what else the machine does meets both; the medians' ratios are what counts. Prints a table and, as the last line,
JSON. Needs cmake, ninja and a C++ compiler; some 8 GB of disk for the default shape.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
DEFAULT_CONFIG = REPOSITORY / "benchmarks/models/qwen3-moe-1b/config.json"
BATCHES, PROMPTS = [1, 4, 16], [512, 2048]
PROMPT_BEFORE, DECODED = 96, 32  # tokens of a sequence that decodes
KINDS = {"bf16": ("bf16", []), "int8": ("q8_0", ["--quantization", "int8"])}


def run(command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(part) for part in command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def make_venv(work):
    python = work / "venv/bin/python"
    if not python.exists():
        run([sys.executable, "-m", "venv", work / "venv"])
        run([python, "-m", "pip", "install", "--quiet", "numpy", "gguf"])
    return python


def build_llama_cpp(work, python):
    programs = work / "llama-build/bin"
    if not (programs / "llama-batched-bench").exists():
        run([python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "llama-cpp-python", "-d", work])
        archive = sorted(work.glob("llama_cpp_python-*.tar.gz"))[-1]
        run(["tar", "xf", archive, "-C", work])
        source = work / archive.name.removesuffix(".tar.gz") / "vendor/llama.cpp"
        run(["cmake", "-S", source, "-B", work / "llama-build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
             "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
             "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_BUILD_TOOLS=ON"])
        run(["cmake", "--build", work / "llama-build", "--target", "llama-bench", "llama-batched-bench"])
    return programs


def make_weights(work, python, config):
    folder = work / "checkpoint"
    missing = [kind for kind, _ in KINDS.values() if not (folder / f"model-{kind}.gguf").exists()]
    if missing or not (folder / "model.safetensors").exists():
        flags = [part for kind in missing for part in ("--gguf", kind)]
        run([python, REPOSITORY / "tools/random_checkpoint.py", config, folder, *flags])
    return folder


def measure_lockstep(binary, folder, flags, threads):
    context = PROMPT_BEFORE + DECODED
    result = json.loads(run([binary, "--log-level", "error", "bench", "--json", "--model", folder, "--threads", threads,
                             "--kv-cache-dtype", "bf16", "--context-length", max(PROMPTS) + 8, "--max-running-requests", max(BATCHES),
                             "--batch", ",".join(map(str, BATCHES)), "--context", context, "--output", DECODED,
                             "--prompt-length", ",".join(map(str, PROMPTS)), "--repeats", 1, *flags]).splitlines()[-1])
    rates = {f"decode {one['batch']}": one["tokens_per_second"] for one in result["decode"]}
    rates |= {f"prefill {one['prompt']}": one["tokens_per_second"] for one in result["prefill"]}
    return rates, result


def measure_llama_cpp(programs, gguf, threads):
    decode = run([programs / "llama-batched-bench", "-m", gguf, "-t", threads, "-tb", threads, "-c", max(BATCHES) * (PROMPT_BEFORE + DECODED),
                  "-npp", PROMPT_BEFORE, "-ntg", DECODED, "-npl", ",".join(map(str, BATCHES)), "--output-format", "jsonl"])
    rates = {}
    for line in decode.splitlines():
        if line.startswith("{"):
            one = json.loads(line)
            rates[f"decode {one['pl']}"] = one["speed_tg"]
    prefill = json.loads(run([programs / "llama-bench", "-m", gguf, "-t", threads, "-p", ",".join(map(str, PROMPTS)), "-n", 0,
                              "-r", 1, "-o", "json"]))
    return rates | {f"prefill {one['n_prompt']}": one["avg_ts"] for one in prefill}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--config", type=pathlib.Path, default=DEFAULT_CONFIG)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--kind", choices=list(KINDS), action="append", default=[])
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    python = make_venv(args.work)
    programs = build_llama_cpp(args.work, python)
    folder = make_weights(args.work, python, args.config)
    report = {"threads": args.threads, "rounds": args.rounds, "kinds": {}}
    for kind in args.kind or list(KINDS):
        gguf, flags = KINDS[kind]
        ours, theirs, floors = [], [], []
        for _ in range(args.rounds):
            rates, whole = measure_lockstep(args.binary, folder, flags, args.threads)
            ours.append(rates)
            floors.append(whole)
            theirs.append(measure_llama_cpp(programs, folder / f"model-{gguf}.gguf", args.threads))
        rows = {}
        for what in ours[0]:
            own, other = (statistics.median(one[what] for one in all_rounds) for all_rounds in (ours, theirs))
            rows[what] = {"lockstep": own, "llama_cpp": other, "ratio": own / other}
            print(f"{kind:5} {what:13} {own:8.1f} {other:8.1f} tokens/s, ratio {own / other:.2f}")
        report["kinds"][kind] = {"rates": rows, "lockstep": floors[-1]}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
