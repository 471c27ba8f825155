#!/usr/bin/env python3
"""Runs `lockstep tokenize` and `lockstep render`: on recorded expectations of the tree, on lines that are wrong, while the pipe
stays open, and on published tokenizers where LOCKSTEP_TOKENIZER_ARCHIVE names a folder of them.

usage: text_commands_test.py LOCKSTEP_BINARY REPOSITORY
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

BINARY, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
failures = 0


def expect(what, got, wanted):
    global failures
    if got != wanted:
        failures += 1
        print(f"FAIL {what}\n  got    {str(got)[:300]}\n  wanted {str(wanted)[:300]}")


def run(arguments, text):
    done = subprocess.run([BINARY, *arguments], input=text.encode("utf-8", "surrogatepass"), capture_output=True, timeout=300)
    return done.returncode, [json.loads(line) for line in done.stdout.decode().split("\n") if line], done.stderr.decode()


def ask(command, model, questions, code=0):
    text = "".join(json.dumps(question, ensure_ascii=False) + "\n" for question in questions)
    got, answers, errors = run([command, "--model", str(model)], text)
    expect(f"{command} {model}: exit code ({errors.strip()[-200:]})", got, code)
    expect(f"{command} {model}: lines", len(answers), len(questions))
    return answers


def read_lines(path):
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def check_texts(model, recorded):
    answers = ask("tokenize", model, [{"text": line["text"]} for line in recorded])
    for line, answer in zip(recorded, answers):
        wanted = {"ids": line["ids"], "decoded": line.get("decoded", line["text"])}
        expect(f"{model}: {line['text'][:80]!r}", answer, wanted)


def check_chats(model, recorded):
    keys = ("messages", "tools", "add_generation_prompt", "kwargs")
    code = 0 if all("rendered" in line for line in recorded) else 1
    answers = ask("render", model, [{key: line[key] for key in keys if key in line} for line in recorded], code)
    for number, (line, answer) in enumerate(zip(recorded, answers)):
        wanted = line["rendered"] if "rendered" in line else None
        expect(f"{model}: chat {number}", answer.get("rendered"), wanted)


def check_wrong_lines():
    model = str(ROOT / "models/tutor-deepseek-v3")
    code, answers, _ = run(["tokenize", "-m", model], '{"text": "a"}\n\n{"text": 5}\nnot json\n[1]\n{}\n{"text": ""}')
    expect("tokenize: a wrong line fails", code, 1)
    expect("tokenize: good lines are answered", [answers[0]["decoded"], answers[-1]], ["a", {"ids": [], "decoded": ""}])
    expect("tokenize: numbers of wrong lines", [answer.get("line") for answer in answers], [None, 3, 4, 5, 6, None])
    expect("tokenize: what is wrong", answers[1]["error"], '"text" is number: it must be text')
    code, answers, _ = run(["render", "-m", model], '{"messages": 3}\n{"messages": [], "kwargs": 1}\n{}\n')
    expect("render: wrong lines", (code, [answer.get("line") for answer in answers]), (1, [1, 2, 3]))
    for command in ("tokenize", "render"):
        code, answers, errors = run([command, "--model", "/nowhere"], "")
        expect(f"{command}: a folder that is not there ({errors.strip()})", (code != 0, answers), (True, []))
    line = json.dumps({"text": "x" * (65 << 20)})
    code, answers, _ = run(["tokenize", "-m", model], line + '\n{"text": "b"}\n')
    expect("tokenize: a line that is too long", (code, answers[0].get("line"), answers[1]["decoded"]), (1, 1, "b"))


def check_template_errors():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "chat_template.jinja")
        path.write_text("{% for m in messages %}{% if m.role == 'x' %}{{ raise_exception('no x here') }}{% endif %}"
                        "{% generation %}[{{ m.role }}]{% endgeneration %}{% endfor %}{{ strftime_now('%Y')|length }}")
        lines = [{"messages": [{"role": "a"}]}, {"messages": [{"role": "x"}]}, {"messages": [], "kwargs": {"extra": 1}, "tools": None}]
        answers = ask("render", folder, lines, code=1)
        expect("render: answers", answers, [{"rendered": "[a]4"}, {"error": "no x here", "line": 2}, {"rendered": "4"}])


def check_conversation():
    """An answer comes before the next question is asked."""
    with subprocess.Popen([BINARY, "tokenize", "-m", str(ROOT / "models/tutor-deepseek-v3")], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as program:
        for text in ("one", "two"):
            program.stdin.write(json.dumps({"text": text}).encode() + b"\n")
            program.stdin.flush()
            expect("tokenize: an answer at once", json.loads(program.stdout.readline())["decoded"], text)
        program.stdin.close()
        expect("tokenize: end of input", program.wait(60), 0)


def main():
    for name in ("tutor-deepseek-v3", "tutor-qwen3.5-moe"):
        check_texts(ROOT / "models" / name, read_lines(ROOT / f"tests/serving/data/tokenizer/{name}.jsonl"))
    check_wrong_lines()
    check_template_errors()
    check_conversation()
    archive = os.environ.get("LOCKSTEP_TOKENIZER_ARCHIVE")
    if archive is None:
        print("LOCKSTEP_TOKENIZER_ARCHIVE is not set: published tokenizers are skipped")
    for folder in sorted(pathlib.Path(archive).iterdir()) if archive else []:
        for file, check in (("texts.jsonl", check_texts), ("chats.jsonl", check_chats)):
            if (folder / file).exists():
                recorded = read_lines(folder / file)
                check(folder, recorded)
                print(f"{folder.name}: {file}, {len(recorded)} lines")
    print("FAILED" if failures else "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
