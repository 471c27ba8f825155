#!/usr/bin/env python3
"""A trace holds every edge on every rank, logs are what they say, and a server that is told to stop says so last.

usage: operations_test.py LOCKSTEP_BINARY REPOSITORY
"""

import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

BINARY, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
MODEL = str(ROOT / "models/tutor-deepseek-v3")
RANKS = ["--tp-size", "4", "--dp-size", "2", "--enable-dp-attention", "--ep-size", "4", "--moe-a2a-backend", "in_process",
         "--moe-dense-tp-size", "1"]
PHASES = {"admit", "schedule", "upload", "forward", "sample", "commit", "deliver"}
failures = 0


def expect(what, condition):
    global failures
    if not condition:
        failures += 1
        print(f"FAIL {what}")


def edges_of_plan():
    done = subprocess.run([BINARY, "plan", "--model", MODEL, *RANKS, "--json"], capture_output=True, text=True, timeout=120)
    plan = json.loads(done.stdout)
    regimes = [value for value in plan.values() if isinstance(value, dict) and "edges" in value]
    return [{(edge["from"], edge["to"]) for edge in regime["edges"] if edge["steps"]} for regime in regimes]


def check_rows(events):
    """On one row nothing overlaps."""
    rows = {}
    for event in events:
        if event["ph"] == "X":
            rows.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"], event["name"]))
    for row, spans in rows.items():
        spans.sort()
        for (_, end, one), (begin, _, other) in zip(spans, spans[1:]):
            expect(f"row {row}: {one} and {other} overlap by {end - begin} us", end <= begin + 0.01)
    return rows


def check_trace():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        done = subprocess.run([BINARY, "generate", "--model", MODEL, *RANKS, "--chat", "What is 12 + 30?", "--max-tokens", "8",
                               "--trace", str(path)], capture_output=True, text=True, timeout=300)
        expect(f"generate: {done.stderr[-300:]}", done.returncode == 0)
        trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    expect(f"rows {names}", names == {0: "engine", 1000000: "engine, beside a step", **{rank + 1: f"rank {rank}" for rank in range(4)}})
    rows = check_rows(events)
    expect("phases of the engine", {name for row in (0, 1000000) for _, _, name in rows.get(row, [])} == PHASES)
    wanted = edges_of_plan()
    for rank in range(4):
        seen = {tuple(found.groups()) for _, _, name in rows[rank + 1] if (found := re.search(r" on the edge (\S+) -> (\S+)$", name))}
        expect(f"rank {rank} crosses every edge of a plan, not {sorted(seen)}", any(seen >= edges for edges in wanted))
        expect(f"rank {rank} computes", any(name == "computes attention.0" for _, _, name in rows[rank + 1]))
    steps = {event["args"]["step"] for event in events if event["ph"] == "X" and event["name"] == "forward"}
    expect(f"steps {steps}", steps == set(range(len(steps))) and len(steps) >= 2)


def check_trace_that_cannot_be_written():
    done = subprocess.run([BINARY, "generate", "--model", MODEL, "--chat", "Hi", "--max-tokens", "2", "--trace", "/dev/full"],
                          capture_output=True, text=True, timeout=300)
    expect(f"a trace that cannot be written: {done.stderr[-300:]}", done.returncode == 2 and "/dev/full cannot be written" in done.stderr)


def get(url, headers=None):
    request = urllib.request.Request(url, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.headers, refusal.read()


def check_server():
    command = [BINARY, "--log-format", "json", "serve", "--model", MODEL, "--port", "0", "--log-requests", "--drain-seconds", "5",
               *RANKS]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    lines = []
    found = threading.Event()

    def read():
        for line in process.stderr:
            lines.append(line)
            if "serving" in line and "http://" in line:
                found.set()
        found.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    found.wait(300)
    url = re.search(r"at (http://\S+)", "".join(lines)).group(1)
    for path in ("/health", "/ready", "/livez", "/health_generate"):
        expect(f"{path} of a server that is well", get(url + path)[0] == 200)
    status, headers, _ = get(url + "/v1/models", {"X-Request-Id": "run-5"})
    expect("the id comes back", (status, headers["X-Request-Id"]) == (200, "run-5"))
    body = json.dumps({"messages": [{"role": "user", "content": "Hello"}], "stream": True, "ignore_eos": True,
                       "max_tokens": 400}).encode()
    stream = urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", body,
                                                           {"Content-Type": "application/json"}), timeout=60)
    stream.readline()
    process.send_signal(signal.SIGTERM)
    text = stream.read().decode()
    expect("the stream that was on its way has its end", text.endswith("data: [DONE]\n\n"))
    begin = time.monotonic()
    process.wait(timeout=60)
    reader.join()
    expect(f"it ends {time.monotonic() - begin:.1f} s after its last answer", time.monotonic() - begin < 20)
    expect(f"exit code {process.returncode}", process.returncode == 0)
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:
            expect(f"a line of the log is no JSON: {line!r}", False)
    expect("fields", all({"time", "level", "message"} <= set(record) for record in records))
    expect(f"the last line is {lines[-1]!r}", records[-1]["message"] == "stopped")
    mine = [record for record in records if record.get("request_id") == "run-5"]
    expect(f"one line for the request: {mine}", len(mine) == 1 and mine[0]["path"] == "/v1/models" and mine[0]["status"] == "200")
    process.stderr.close()


check_trace()
check_trace_that_cannot_be_written()
check_server()
print("failed" if failures else "a trace with every edge, logs for programs, a stop that is said last")
sys.exit(1 if failures else 0)
