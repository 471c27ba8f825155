#!/usr/bin/env python3
"""Asks one `lockstep serve` for ten times what it can do, for a while: what it cannot take it refuses politely, what it
takes it ends in time, its memory stays flat, and it does as much work as before.

usage: overload_test.py LOCKSTEP_BINARY REPOSITORY [--seconds 15] [--times 10]     (standard library only)
"""

import argparse
import asyncio
import json
import os
import random
import sys
import time
from urllib.parse import urlsplit

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lockstep_server import LockstepServer, is_sanitized  # noqa: E402

RUNNING, QUEUED, QUEUE_TIMEOUT = 8, 16, 3.0
TOKENS = 48
MEASURING = 4.0  # seconds
MAY_GROW = 32 << 20  # bytes of memory between the first third and the end
LEAST_WORK = 0.4  # of the rate without overload: the client, too, now takes its share of the machine
failures = []


def check(what, condition):
    if not condition:
        failures.append(what)


def body_of(rng):
    return json.dumps({"prompt": f"What is {rng.randrange(90)} + {rng.randrange(90)}?", "max_tokens": TOKENS, "ignore_eos": True,
                       "seed": rng.randrange(1 << 30)}).encode()


async def ask(host, port, body):
    """(status, headers, JSON, seconds) of one request on a connection of its own; status 0: the connection broke."""
    begin = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: load\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
                         + body)
            answer = await reader.read()
        finally:
            writer.close()
        head, _, text = answer.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        return int(lines[0].split()[1]), headers, json.loads(text), time.monotonic() - begin
    except (OSError, ValueError, IndexError) as error:
        return 0, {}, {"broken": repr(error)}, time.monotonic() - begin


async def measure(host, port):
    """Requests a second with as many at once as may run, and the longest that one took."""
    done = []
    stop_at = time.monotonic() + MEASURING

    async def client(seed):
        rng = random.Random(seed)
        while time.monotonic() < stop_at:
            done.append(await ask(host, port, body_of(rng)))

    begin = time.monotonic()
    await asyncio.gather(*(client(seed) for seed in range(RUNNING)))
    check(f"without overload: {[answer for answer in done if answer[0] != 200][:1]}", all(answer[0] == 200 for answer in done))
    return len(done) / (time.monotonic() - begin), max(answer[3] for answer in done)


async def overload(server, host, port, rate, seconds):
    """Arrivals at random times, whether or not earlier ones have an answer; their answers and samples of memory."""
    rng = random.Random(7)
    tasks, samples = [], []
    begin = time.monotonic()
    due = begin
    while (now := time.monotonic()) < begin + seconds:
        while due <= now:
            tasks.append(asyncio.create_task(ask(host, port, body_of(rng))))
            due += rng.expovariate(rate)
        if not samples or now - samples[-1][0] > 0.5:
            samples.append((now, server.resident_bytes()))
        await asyncio.sleep(0.002)
    return await asyncio.gather(*tasks), samples


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def judge(answers, seconds, rate, longest):
    deadline = QUEUE_TIMEOUT + 4 * longest + 2
    served = [answer for answer in answers if answer[0] == 200]
    refused = [answer for answer in answers if answer[0] == 503]
    other = [answer for answer in answers if answer[0] not in (200, 503)]
    check(f"{len(other)} answers are neither 200 nor 503, such as {other[:1]}", not other)
    impolite = [answer for answer in refused if "retry-after" not in answer[1] or not answer[2].get("error", {}).get("message")]
    check(f"{len(impolite)} refusals do not say why and when to come again, such as {impolite[:1]}", not impolite)
    check("nothing was refused: it was no overload", refused)
    cut = [answer for answer in served if answer[2]["usage"]["completion_tokens"] != TOKENS]
    check(f"{len(cut)} answers are not whole", not cut)
    late = [answer[3] for answer in served if answer[3] > deadline]
    check(f"{len(late)} admitted requests took longer than {deadline:.1f} s, up to {max(late, default=0):.1f}", not late)
    slow = [answer[3] for answer in refused if answer[3] > deadline]
    check(f"{len(slow)} refusals took longer than {deadline:.1f} s", not slow)
    check(f"{len(served) / seconds:.1f} requests/s are less than {LEAST_WORK:g} of {rate:.1f}", len(served) / seconds >= LEAST_WORK * rate)
    took, said = [answer[3] for answer in served], [answer[3] for answer in refused]
    print(f"{len(answers)} requests in {seconds:g} s: {len(served)} served ({len(served) / seconds:.1f}/s, without overload {rate:.1f}/s), "
          f"p50 {percentile(took, 0.5):.2f} s, p99 {percentile(took, 0.99):.2f} s, deadline {deadline:.2f} s; {len(refused)} refused, "
          f"p50 {percentile(said, 0.5):.3f} s, p99 {percentile(said, 0.99):.2f} s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("repository")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--times", type=float, default=10)
    options = parser.parse_args()
    # Memory of the cache is the machine's once a token has lain there: a small cache has been everywhere after a moment.
    flags = ["--max-running-requests", str(RUNNING), "--max-queued-requests", str(QUEUED), "--queue-timeout", str(QUEUE_TIMEOUT),
             "--max-total-tokens", "2048"]
    with LockstepServer(options.binary, f"{options.repository}/models/tutor-deepseek-v3", flags) as server:
        url = urlsplit(server.url)
        rate, longest = asyncio.run(measure(url.hostname, url.port))
        answers, samples = asyncio.run(overload(server, url.hostname, url.port, options.times * rate, options.seconds))
        judge(answers, options.seconds, rate, longest)
        check("something is held 30 s after the last answer", server.becomes_idle(30))
        settled = next(size for when, size in samples if when >= samples[0][0] + options.seconds / 3)
        grown = server.resident_bytes() - settled
        print(f"memory {settled / 2**20:.0f} MiB after a third, {grown / 2**20:+.1f} MiB since")
        check(f"memory grew by more than {MAY_GROW / 2**20:.0f} MiB", grown <= MAY_GROW or is_sanitized(options.binary))
        status, _, answer, _ = asyncio.run(ask(url.hostname, url.port, body_of(random.Random(1))))
        check(f"afterwards it serves as before: {status} {answer}", status == 200)
    for failure in failures:
        print(f"FAIL: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
