#!/usr/bin/env python3
"""Runs published programs that measure models and servers against `lockstep serve`, unchanged: lm-eval's local-completions (log
likelihoods of choices, and generation) and local-chat-completions, and aiperf.

usage: evaluators_test.py LOCKSTEP_BINARY REPOSITORY

They are installed from PyPI into build/evaluators-venv at the first run (about 1.5 GB); where PyPI cannot be reached the test says so
and ends as skipped (exit code 77). `make test-clients` runs it; it is no part of the ordinary tests.
"""

import glob
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lockstep_server import LockstepServer  # noqa: E402

PROGRAMS = ["lm-eval[api]==0.4.13", "aiperf==0.13.0"]
MODEL = "tutor-deepseek-v3"
NUM_PROBLEMS = 24
# Nothing is fetched for a run. (aiperf takes no tokenizer of a folder when it is told that it is offline.)
ENVIRONMENT = {"lm_eval": {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": "none"}, "aiperf": {}}
ANSWER = """
filter_list:
  - name: answer
    filter:
      - {function: regex, regex_pattern: "answer is (-?[0-9]+)"}
      - {function: take_first}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
"""
TASKS = {
    "sums_chat": "output_type: generate_until\ndoc_to_text: '{{question}}'\ndoc_to_target: '{{answer}}'\n"
                 "generation_kwargs: {until: ['<nothing>'], max_gen_toks: 200, do_sample: false}" + ANSWER,
    "sums_text": "output_type: generate_until\ndoc_to_text: '<｜User｜>{{question}}<｜Assistant｜><think>'\ndoc_to_target: '{{answer}}'\n"
                 "generation_kwargs: {until: ['<｜User｜>'], max_gen_toks: 200, do_sample: false}" + ANSWER,
    "sums_choice": "output_type: multiple_choice\ndoc_to_text: '<｜User｜>{{question}}<｜Assistant｜><think>\n{{steps | join(\"\n\")}}\n</think>\n\n'\n"
                   "doc_to_choice: ['The answer is {{answer + 10}}.', 'The answer is {{answer}}.', 'The answer is {{answer * 3 + 1}}.']\n"
                   "doc_to_target: 1\ntarget_delimiter: ''\nmetric_list:\n  - {metric: acc, aggregation: mean, higher_is_better: true}\n",
}


def python_with_programs(repository):
    """The interpreter of an environment that has the programs, or None when PyPI cannot be reached."""
    folder = f"{repository}/build/evaluators-venv"
    python = f"{folder}/bin/python"
    have = [python, "-c", "from importlib.metadata import version as v; assert (v('lm-eval'), v('aiperf')) == ('0.4.13', '0.13.0')"]
    if os.path.exists(python) and subprocess.run(have, capture_output=True).returncode == 0:
        return python
    for step in ([sys.executable, "-m", "venv", "--clear", folder],
                 [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20", *PROGRAMS]):
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"skipped: {' and '.join(PROGRAMS)} could not be installed from PyPI:\n{(done.stderr or done.stdout).strip()[-2000:]}")
            return None
    return python


def run(program, command, folder):
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"} | ENVIRONMENT[program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=folder, env=environment)
    if done.returncode != 0:
        print(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}")
    return done.returncode


def main():
    binary, repository = sys.argv[1], os.path.abspath(sys.argv[2])
    python = python_with_programs(repository)
    if python is None:
        return 77
    passed, failed = 0, 0

    def check(name, good, seen):
        nonlocal passed, failed
        passed, failed = passed + bool(good), failed + (not good)
        print(f"{'ok  ' if good else 'FAIL'} {name}: {seen}")

    model = f"{repository}/models/{MODEL}"
    with LockstepServer(binary, model, ["--max-running-requests", "16"]) as server, tempfile.TemporaryDirectory() as folder:
        with open(f"{repository}/tests/eval/problems-seed11.jsonl") as problems, open(f"{folder}/sums.jsonl", "w") as few:
            few.writelines(next(problems) for _ in range(NUM_PROBLEMS))
        for name, text in TASKS.items():
            with open(f"{folder}/{name}.yaml", "w") as file:
                file.write(f"task: {name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {folder}/sums.jsonl}}}}\ntest_split: test\n{text}")

        def evaluate(kind, path, tasks, more, flags=()):
            arguments = f"model={MODEL},base_url={server.url}{path},num_concurrent=8,max_retries=1{more}"
            code = run("lm_eval", [python, "-m", "lm_eval", "--model", kind, "--model_args", arguments, "--include_path", folder, "--tasks", tasks,
                        "--output_path", f"{folder}/{kind}", *flags], folder)
            found = glob.glob(f"{folder}/{kind}/**/results_*.json", recursive=True)
            return json.load(open(found[0]))["results"] if code == 0 and found else {}

        results = evaluate("local-chat-completions", "/v1/chat/completions", "sums_chat", "", ["--apply_chat_template"])
        score = results.get("sums_chat", {}).get("exact_match,answer")
        check("lm-eval, local-chat-completions", score == 1.0, score)
        results = evaluate("local-completions", "/v1/completions", "sums_text,sums_choice", f",tokenizer={model},tokenizer_backend=huggingface")
        score = results.get("sums_text", {}).get("exact_match,answer")
        check("lm-eval, local-completions, generation", score == 1.0, score)
        score = results.get("sums_choice", {}).get("acc,none")
        check("lm-eval, local-completions, log likelihoods", score == 1.0, score)

        code = run("aiperf", [os.path.join(os.path.dirname(python), "aiperf"), "profile", "--model", MODEL, "--url", server.url, "--endpoint-type", "chat",
                    "--streaming", "--tokenizer", model, "--concurrency", "4", "--request-count", "16", "--synthetic-input-tokens-mean", "32",
                    "--output-tokens-mean", "8", "--extra-inputs", "ignore_eos:true", "--artifact-dir", f"{folder}/aiperf", "--ui", "none"], folder)
        found = glob.glob(f"{folder}/aiperf/**/*aiperf.json", recursive=True)
        report = json.load(open(found[0])) if code == 0 and found else {}
        seen = {key: report.get(key, {}).get("avg") for key in ("request_count", "time_to_first_token", "output_sequence_length")}
        check("aiperf", seen["request_count"] == 16 and (seen["time_to_first_token"] or 0) > 0, seen)

    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
