#!/usr/bin/env python3
"""Runs `lockstep score` on the reference examples: logits within 2e-3, greedy ids equal; and looks at its errors.

usage: score_command_test.py LOCKSTEP_BINARY REPOSITORY
"""

import json
import subprocess
import sys

RANKS = ["--tp-size 1", "--tp-size 2 --ep-size 2", "--tp-size 4 --dp-size 2 --enable-dp-attention --ep-size 4 "
         "--moe-a2a-backend in_process --moe-dense-tp-size 1", "--tp-size 8 --dp-size 4 --enable-dp-attention --ep-size 8"]
RANKS_WITHOUT_EXPERTS = ["--tp-size 1", "--tp-size 2", "--tp-size 4 --dp-size 2 --enable-dp-attention --moe-dense-tp-size 2",
                         "--tp-size 8 --dp-size 4 --enable-dp-attention --moe-dense-tp-size 1"]
MODELS = [("tests/golden/deepseek-v3", "tests/golden/deepseek-v3/golden.json", RANKS),
          ("tests/golden/deepseek-v3-yarn", "tests/golden/deepseek-v3-yarn/golden.json", RANKS),
          ("models/tutor-deepseek-v3", "tests/golden/tutor-deepseek-v3/golden.json", RANKS),
          ("tests/golden/qwen3-moe", "tests/golden/qwen3-moe/golden.json", RANKS),
          ("tests/golden/glm4-moe", "tests/golden/glm4-moe/golden.json", RANKS),
          *((f"tests/golden/{name}", f"tests/golden/{name}/golden.json", RANKS)
            for name in ("gpt-oss", "mixtral", "qwen2-moe", "deepseek-v2", "deepseek-v2-lite", "deepseek-v32")),
          ("tests/golden/llama", "tests/golden/llama/golden.json", RANKS_WITHOUT_EXPERTS),
          ("tests/golden/qwen3", "tests/golden/qwen3/golden.json", RANKS_WITHOUT_EXPERTS)]
TOLERANCE = 2e-3


def score(binary, model, flags, ids, greedy):
    command = [binary, "--log-level", "warning", "score", "--model", model, "--ids", ",".join(map(str, ids)), "--greedy", str(greedy),
               *flags.split()]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def problems_of(example, result):
    argmax = example.get("argmax_logits") or [logits[0] for logits in example["top_logits"]]
    worst = max(abs(a - b) for a, b in zip(result["argmax_logits"], argmax))
    worst_last = max(abs(a - b) for a, b in zip(result["last_logits"], example["last_logits"]))
    if len(result["argmax_logits"]) != len(argmax) or len(result["last_logits"]) != len(example["last_logits"]):
        yield "another number of logits"
    if worst > TOLERANCE:
        yield f"a largest logit is off by {worst}"
    if worst_last > TOLERANCE:
        yield f"a last logit is off by {worst_last}"
    if result["greedy_ids"] != example["greedy_ids"]:
        yield f"greedy ids {result['greedy_ids']}, expected {example['greedy_ids']}"


def main():
    binary, repository = sys.argv[1], sys.argv[2]
    passed, failed = 0, 0

    def check(name, problems):
        nonlocal passed, failed
        problems = list(problems)
        passed, failed = passed + (not problems), failed + bool(problems)
        for problem in problems:
            print(f"FAIL {name}: {problem}")

    for model, golden, ranks in MODELS:
        with open(f"{repository}/{golden}") as file:
            for number, example in enumerate(json.load(file)):
                flags = ranks[number % len(ranks)]
                done = score(binary, f"{repository}/{model}", flags, example["input_ids"], len(example["greedy_ids"]))
                name = f"{model} example {number} with {flags}"
                check(name, problems_of(example, json.loads(done.stdout)) if done.returncode == 0 else [done.stderr])

    def refused(name, done, *words):
        missing = [word for word in words if word not in done.stderr]
        check(name, [f"exit code {done.returncode}, {done.stderr!r} lacks {missing}"] if done.returncode != 2 or missing else [])

    tutor = f"{repository}/models/tutor-deepseek-v3"
    refused("an id outside the vocabulary", score(binary, tutor, "", [1, 1024], 0), "1024")
    refused("more than the context holds", score(binary, tutor, "", [1] * 5000, 0), "5000", "4096")
    refused("no such folder", score(binary, f"{repository}/models/nothing", "", [1], 0), "models/nothing")
    refused("a clash", score(binary, tutor, "--tp-size 4 --ep-size 3", [1], 0), "--ep-size 3", "--tp-size 4", "Nearest")
    refused("experts of a model without any", score(binary, f"{repository}/tests/golden/llama", "--tp-size 4 --ep-size 2", [1], 0),
            "--ep-size 2", "no experts")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
