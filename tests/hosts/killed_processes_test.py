#!/usr/bin/env python3
"""Kills the second of an engine's two processes again and again, under load, and starts another in its place: every request
that was accepted ends once, others are told to come again, the engine comes back each time, and nothing is held in the end.

usage: killed_processes_test.py LOCKSTEP_BINARY REPOSITORY [--seconds 20] [--clients 12]     (standard library only)
"""

import argparse
import asyncio
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

RANKS = ["--tp-size", "4", "--dp-size", "2", "--enable-dp-attention", "--ep-size", "4", "--moe-dense-tp-size", "1",
         "--moe-a2a-backend", "in_process"]
PATIENCE = 90  # seconds for one answer, and for the engine to come back
failures = []


def check(what, condition):
    if not condition:
        failures.append(what)


class Process:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def wait_for(self, pattern):
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self.process.poll() is None:
            if found := re.search(pattern, "".join(self.lines)):
                return found
            time.sleep(0.02)
        raise RuntimeError(f"no line with {pattern}:\n{''.join(self.lines)}")

    def end(self):
        code = self.process.wait(timeout=60)
        self.reader.join()
        self.process.stderr.close()
        return code


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


async def ask(address, rng):
    """(status, headers, data of the events) of one stream. HTTP/1.0: it ends with the connection."""
    body = json.dumps({"messages": [{"role": "user", "content": f"What is {rng.randrange(90)} + {rng.randrange(90)}?"}],
                       "max_tokens": rng.randrange(1, 60), "ignore_eos": True, "stream": True}).encode()
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(b"POST /v1/chat/completions HTTP/1.0\r\nHost: soak\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()
    head, _, text = answer.decode().partition("\r\n\r\n")
    lines = head.split("\r\n")
    status = int(lines[0].split()[1])
    events = [event[6:] for event in text.split("\n\n") if event.startswith("data: ")]
    return status, {line.split(":")[0].lower() for line in lines[1:]}, events if status == 200 else [text]


def ends_of(events):
    """How often a stream says that it is over: by a reason, or by an error."""
    parsed = [json.loads(event) for event in events if event != "[DONE]"]
    errors = [event["error"]["message"] for event in parsed if "error" in event]
    reasons = [choice for event in parsed for choice in event.get("choices", []) if choice.get("finish_reason")]
    return len(reasons), errors


async def client(address, seed, is_over, counts):
    rng = random.Random(seed)
    while not is_over.is_set():
        status, headers, events = await ask(address, rng)
        if status == 503:
            counts["unavailable"] += 1
            check("a refusal says when to come again", "retry-after" in headers)
            await asyncio.sleep(0.1)
            continue
        reasons, errors = ends_of(events)
        check(f"status {status}, {reasons} reasons and {errors}: not one end", status in (200, 500) and reasons + len(errors) == 1)
        check(f"an error that does not say who is gone: {errors}", all("process 1" in error for error in errors))
        counts["errors" if errors else "whole"] += 1


async def kill_and_replace(options, url, workers, start_worker, counts):
    """Whoever is killed has worked: answers were completed since the last time."""
    until = time.monotonic() + options.seconds
    while time.monotonic() < until or counts["kills"] < 2:
        whole = counts["whole"]
        patience = time.monotonic() + PATIENCE
        while counts["whole"] < whole + 3 and time.monotonic() < patience:
            await asyncio.sleep(0.02)
        workers[-1].process.kill()
        counts["kills"] += 1
        await asyncio.to_thread(workers[-1].end)
        workers.append(start_worker())
        begin = time.monotonic()
        while (await asyncio.to_thread(get, url + "/ready"))[0] != 200:
            if time.monotonic() - begin > PATIENCE:
                check(f"the engine is not back after {PATIENCE} s", False)
                return
            await asyncio.sleep(0.05)
        counts["longest"] = max(counts["longest"], time.monotonic() - begin)


async def load(options, url, workers, start_worker):
    counts = {"whole": 0, "errors": 0, "unavailable": 0, "kills": 0, "longest": 0.0}
    is_over = asyncio.Event()
    address = (urlsplit(url).hostname, urlsplit(url).port)
    clients = [asyncio.create_task(client(address, seed, is_over, counts)) for seed in range(options.clients)]
    await kill_and_replace(options, url, workers, start_worker, counts)
    is_over.set()
    for ended in await asyncio.gather(*clients, return_exceptions=True):
        check(f"a client failed: {ended!r}", ended is None)
    return counts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("repository")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, default=12)
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [options.binary, "serve", "--model", f"{options.repository}/models/tutor-deepseek-v3", *RANKS, "--drain-seconds", "5",
               "--max-engine-restarts", "1000", "--max-request-failures", "0", "--hosts", "2", "--coordinator", coordinator]
    head = Process([*command, "--port", "0", "--host-rank", "0"])
    workers = [Process([*command, "--host-rank", "1"])]
    try:
        url = head.wait_for(r"serving .* at (http://\S+)").group(1)
        counts = asyncio.run(load(options, url, workers, lambda: Process([*command, "--host-rank", "1"])))
        until = time.monotonic() + 30
        while any(r["running"] or r["queued"] or r["pages_used"] for r in get(url + "/live")[1]["replicas"]):
            if time.monotonic() > until:
                check(f"something is held in the end: {get(url + '/live')[1]}", False)
                break
            time.sleep(0.05)
        _, health = get(url + "/health")
        check(f"{counts['kills']} processes were killed: {health}", health["restarts"] >= counts["kills"])
        head.process.terminate()
        check("the head ends well", head.end() == 0)
        check("the last worker ends well", workers[-1].end() == 0)
    finally:
        for process in [head, *workers]:
            if process.process.poll() is None:
                process.process.kill()
    print(f"{counts['kills']} processes killed; {counts['whole']} answers whole, {counts['errors']} ended with an error, "
          f"{counts['unavailable']} asked to come again; back within {counts['longest']:.1f} s each time")
    check("nobody was hit by a kill: too short or too slow", counts["errors"] + counts["unavailable"] > 0 and counts["whole"] > 0)
    for failure in failures[:20]:
        print(f"FAIL: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
