#!/usr/bin/env python3
"""Runs `lockstep doctor` on whole, half and foreign folders, and the other commands where their faults end at a user.

usage: doctor_command_test.py LOCKSTEP_BINARY REPOSITORY
"""

import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

FAILURES = []


def run(binary, *arguments):
    return subprocess.run([binary, "--log-level", "warning", *map(str, arguments)], capture_output=True, text=True, timeout=300)


def check(what, holds, shown=""):
    if not holds:
        FAILURES.append(what)
    print(f"{'ok  ' if holds else 'FAIL'} {what}{'' if holds else ': ' + str(shown)}", flush=True)


def doctor(binary, folder, *flags):
    done = run(binary, "doctor", "--json", "--model", folder, *flags)
    return done.returncode, json.loads(done.stdout)


def serve_and_stop(binary, folder):
    """Port 0 alone is given: another server may run on this machine."""
    said = ""
    with subprocess.Popen([binary, "serve", "--model", folder, "--port", "0"], stderr=subprocess.PIPE, text=True) as server:
        for line in server.stderr:
            said += line
            if "serving " in line:
                server.terminate()
    return server.returncode, said


def look_at_folders(binary, repository, scratch):
    tutor = repository / "models/tutor-deepseek-v3"
    code, found = doctor(binary, tutor)
    check("a whole folder will run", code == 0 and found["will_run"] and not found["faults"], found)
    check("its family, tokenizer and parsers", (found["family"], found["tokenizer"]) == (
        "deepseek_v3", {"tokens": 978, "chat_template": True, "reasoning": "think", "tool_calls": "deepseek"}), found)
    text = run(binary, "doctor", "--model", tutor).stdout
    check("as text", all(word in text for word in ("deepseek_v3", "parameters", "it will run", "cache")), text)

    # What a newcomer drops in needs no further flag.
    for folder in sorted((repository / "models").iterdir()):
        code, found = doctor(binary, folder)
        check(f"doctor of {folder.name}", code == 0 and found["will_run"], found["faults"])
        done = run(binary, "plan", "--model", folder)
        check(f"plan of {folder.name}", done.returncode == 0 and found["family"] in done.stdout, done.stderr)
        done = run(binary, "generate", "--model", folder, "--chat", "What is 2 + 3?", "--max-tokens", 64)
        check(f"an answer of {folder.name}", done.returncode == 0 and "5" in done.stdout, (done.stdout, done.stderr))
        code, said = serve_and_stop(binary, folder)
        check(f"serve of {folder.name}", code == 0 and f"serving {folder.name}" in said, said)

    alone = scratch / "alone"
    alone.mkdir()
    shutil.copy(repository / "tests/golden/gpt-oss/config.json", alone)
    code, found = doctor(binary, alone)
    check("a config alone", code == 0 and found["will_run"] and found["family"] == "gpt_oss" and found["weights"] is None, found)

    code, found = doctor(binary, repository / "tests/golden/mixtral")
    check("weights without a tokenizer", code == 1 and len(found["faults"]) == 1 and "tokenizer.json" in found["faults"][0], found)

    foreign = scratch / "foreign"
    foreign.mkdir()
    (foreign / "config.json").write_text('{"model_type": "mamba9", "architectures": ["MambaForCausalLM"]}')
    (foreign / "model.safetensors").write_text("nothing")
    (foreign / "tokenizer.json").write_text("{}")
    code, found = doctor(binary, foreign)
    check("every fault at once", code == 1 and len(found["faults"]) == 3 and "mamba9" in found["faults"][0], found["faults"])

    code, found = doctor(binary, tutor, "--tp-size", 4)
    check("needs under flags", code == 0 and found["needs"]["ranks"] == 4, found)
    done = run(binary, "doctor", "--json")
    machine = json.loads(done.stdout)
    check("the machine alone", done.returncode == 0 and machine["cores"] >= 1 and machine["memory_bytes"] > 0, machine)


def look_at_errors(binary, repository, scratch):
    tutor = repository / "models/tutor-deepseek-v3"
    lines = scratch / "lines.jsonl"
    for bad, named in (('{"messages": "Hi"}', "'messages' must be an array"), ('{"messages": [{"role": "user"}]}', "messages[0].content"),
                       ('{"messages": [7]}', "messages[0]"), ('{"messages": [{"role": "user", "content": "Hi"}], "tools": 3}', "tools")):
        lines.write_text('{"prompt": "1 + 1 ="}\n' + bad + "\n")
        done = run(binary, "generate", "--model", tutor, "--prompts", lines)
        check(f"--prompts with {bad}", done.returncode == 2 and "line 2" in done.stderr and named in done.stderr, done.stderr)
    for flags in (["--temperature", "-1"], ["--top-p", "1.5"], ["--repetition-penalty", "0"], ["--seed", "18446744073709551616"],
                  ["--seed", "-1"], ["--presence-penalty", "nan"]):
        done = run(binary, "generate", "--model", tutor, "--prompt", "x", *flags)
        check(f"generate {' '.join(flags)}", done.returncode == 2 and flags[0] in done.stderr, (done.returncode, done.stderr))
    done = run(binary, "generate", "--model", tutor, "--prompt", "1 " * 500, "--context-length", 16)
    check("a prompt longer than the context", done.returncode == 2 and "the context holds 16" in done.stderr, (done.returncode, done.stderr))
    # More prompts than the queue takes at once.
    lines.write_text("".join(f'{{"prompt": "{n} + 1 ="}}\n' for n in range(24)))
    done = run(binary, "generate", "--model", tutor, "--prompts", lines, "--max-tokens", 2, "--max-running-requests", 2,
               "--max-queued-requests", 0)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    check("a queue smaller than the file", done.returncode == 0 and len(answers) == 24 and not any("error" in a for a in answers), done.stderr)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = subprocess.run([binary, "serve", "--model", tutor, "--port", str(taken.getsockname()[1])], capture_output=True,
                              text=True, timeout=300)
    said = done.stdout + done.stderr
    check("a taken port is told before the weights are read", done.returncode == 1 and "another program listens" in said
          and "mapped" not in said, said)
    usage = run(binary, "generate", "--help").stdout
    check("choices in the help are words", "f32|bf16" in usage and "on|off" in usage and "ENUM" not in usage, usage)


def main():
    binary, repository = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        look_at_folders(binary, repository, pathlib.Path(scratch))
        look_at_errors(binary, repository, pathlib.Path(scratch))
    print(f"{len(FAILURES)} failed")
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
