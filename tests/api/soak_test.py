#!/usr/bin/env python3
"""Keeps many streams open at one `lockstep serve` for a while. A part of them is broken off or aborted at a random event,
and requests that are none come between. Looks for lost or doubled text, streams without an end or with two, leaked cache
pages and growing memory.

usage: soak_test.py LOCKSTEP_BINARY REPOSITORY [--seconds 60] [--streams 200]     (standard library only)
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

PATIENCE = 120  # seconds that one stream may take in all
MAY_GROW = 32 << 20  # bytes of memory between the first third and the end


class Violation(Exception):
    pass


def http(body, path="/v1/chat/completions", method="POST"):
    return f"{method} {path} HTTP/1.1\r\nHost: soak\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


# What is no request, or none that can be answered: the bytes, and what may come back.
NONSENSE = [(http(b"{"), (400,)), (http(b'{"messages": 3}'), (400,)), (http(b'{"messages": [], "max_tokens": -1}'), (400,)),
            (http(b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}'), (400,)),
            (http(b'{"messages": [{"role": "user", "content": "' + b"a b " * 4000 + b'"}]}'), (400,)),
            (http(b"[" * 5000), (400,)), (http(b'{"a": "\xff"}'), (400,)), (http(b"", "/v1/nothing"), (404,)),
            (http(b"", method="BREW"), (400, 405, 501)), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", (400,)),
            (b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 100000 + b"\r\n\r\n", (400, 431)),
            (b"POST /v1/chat/completions HTTP/1.1\r\nHost: soak\r\nContent-Length: 99999999999\r\n\r\n", (400, 413)),
            (b"POST /v1/chat/completions HTTP/1.1\r\nHost: soak\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", (400,))]


def bodies():
    """Requests whose greedy answers differ in length and kind."""
    for a in range(11, 31):
        for thinking in (True, False):
            yield {"messages": [{"role": "user", "content": f"What is {a} + {3 * a}?"}], "temperature": 0,
                   "chat_template_kwargs": {"enable_thinking": thinking}}
    for text in ("Hello", "Who are you?", "What can you do?", "Thanks", "Ann has 12 boxes with 4 pens in each. How many pens are there?"):
        yield {"messages": [{"role": "user", "content": text}], "temperature": 0}
    yield {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 150, "ignore_eos": True}


def message_of(choice):
    return choice.get("reasoning_content") or "", choice.get("content") or ""


class Client:
    """One HTTP/1.1 connection that asks for one stream after another."""

    def __init__(self, url):
        self.host, self.port = urlsplit(url).hostname, urlsplit(url).port
        self.reader = self.writer = None

    async def open(self):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)

    async def close(self):
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None

    async def events(self, body):
        """The data of each event of a stream, [DONE] included."""
        await self.open()
        text = json.dumps(body | {"stream": True, "stream_options": {"include_usage": True}}).encode()
        self.writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: soak\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
        head = await self.reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise Violation(f"the answer is {head.decode(errors='replace')}")
        buffered = b""
        while size := int(await self.reader.readline(), 16):
            buffered += (await self.reader.readexactly(size + 2))[:-2]
            while b"\n\n" in buffered:
                event, buffered = buffered.split(b"\n\n", 1)
                if not event.startswith(b"data: "):
                    raise Violation(f"{event!r} is no event")
                yield event[6:].decode()
        await self.reader.readline()
        if buffered:
            raise Violation(f"the stream ends inside an event: {buffered!r}")


async def send_nonsense(url, rng):
    client = Client(url)
    await client.open()
    sent, allowed = rng.choice(NONSENSE)
    try:
        client.writer.write(sent)
        line = await client.reader.readline()
    except ConnectionError:
        line = b""  # cut off while it still sent
    if line and int(line.split()[1]) not in allowed:
        raise Violation(f"{sent[:80]!r} is answered with {line!r}")
    await client.close()


async def abort(url, name):
    client = Client(url)
    await client.open()
    client.writer.write(http(json.dumps({"rid": name}).encode(), "/abort_request"))
    line = await client.reader.readline()
    if b" 200 " not in line:
        raise Violation(f"/abort_request is answered with {line!r}")
    await client.close()


async def ask_and_abort(client, url, rng):
    """A long stream that somebody aborts: it ends at once, as a stream should. The number of events."""
    body = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 2000, "ignore_eos": True}
    count, ends, done, abort_after = 0, 0, 0, rng.randrange(8)
    async for data in client.events(body):
        count += 1
        if data == "[DONE]":
            done += 1
            continue
        event = json.loads(data)
        if "error" in event:
            raise Violation(f"the stream holds an error: {event['error']}")
        ends += sum(1 for choice in event["choices"] if choice["finish_reason"])
        if count == abort_after + 1:
            await abort(url, event["id"])
    if (ends, done) != (1, 1):
        raise Violation(f"an aborted stream has {ends} ends and {done} [DONE]")
    return count


def lasting(usage):
    """What of a usage is the same every time: not how much of the prompt the cache held."""
    return {key: value for key, value in usage.items() if key != "prompt_tokens_details"}


async def ask(client, body, expected, leave_after):
    """One stream, whole or left after some events; returns the number of events."""
    parts, finishes, usages, count, done = {"reasoning_content": "", "content": ""}, [], [], 0, False
    async for data in client.events(body):
        if done:
            raise Violation(f"{data} follows [DONE]")
        count += 1
        if data == "[DONE]":
            done = True
            continue
        event = json.loads(data)
        if "error" in event:
            raise Violation(f"the stream holds an error: {event['error']}")
        if event["choices"]:
            for key in parts:
                parts[key] += event["choices"][0]["delta"].get(key) or ""
            finishes += [event["choices"][0]["finish_reason"]] if event["choices"][0]["finish_reason"] else []
        else:
            usages.append(lasting(event["usage"]))
        if leave_after is not None and count > leave_after:
            await client.close()
            return count
    got = (parts["reasoning_content"], parts["content"])
    if (got, finishes, usages, done) != (expected["message"], [expected["finish"]], [expected["usage"]], True):
        raise Violation(f"{body} gave {got, finishes, usages, done} and not {expected}")
    return count


async def keep_asking(url, wanted, stop_at, seed, counts):
    rng = random.Random(seed)
    client = Client(url)
    while time.monotonic() < stop_at:
        chance = rng.random()
        async with asyncio.timeout(PATIENCE):
            if chance < 0.05:
                await send_nonsense(url, rng)
                counts["nonsense"] += 1
            elif chance < 0.1:
                events = await ask_and_abort(client, url, rng)
                counts["events"] += events  # not in one line: others count while this one waits
                counts["aborted"] += 1
            else:
                body, expected = rng.choice(wanted)
                leave_after = rng.randrange(12) if chance < 0.3 else None
                events = await ask(client, body, expected, leave_after)
                counts["events"] += events
                counts["left" if client.writer is None else "whole"] += 1
    await client.close()


async def watch_memory(server, stop_at, samples):
    while time.monotonic() < stop_at:
        samples.append((time.monotonic(), server.resident_bytes()))
        await asyncio.sleep(0.5)


async def soak(server, wanted, options):
    counts = {"whole": 0, "left": 0, "aborted": 0, "nonsense": 0, "events": 0}
    samples = []
    stop_at = time.monotonic() + options.seconds
    async with asyncio.TaskGroup() as group:
        group.create_task(watch_memory(server, stop_at, samples))
        for number in range(options.streams):
            group.create_task(keep_asking(server.url, wanted, stop_at, number, counts))
    return counts, samples


def expected_of(server, body):
    answer = server.post("/v1/chat/completions", body)
    return {"message": message_of(answer["choices"][0]["message"]), "finish": answer["choices"][0]["finish_reason"],
            "usage": lasting(answer["usage"])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("repository")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS", "60")))
    parser.add_argument("--streams", type=int, default=200)
    options = parser.parse_args()
    binary, seconds = options.binary, options.seconds
    with LockstepServer(binary, f"{options.repository}/models/tutor-deepseek-v3",
                        ["--max-queued-requests", str(4 * options.streams)]) as server:
        wanted = [(body, expected_of(server, body)) for body in bodies()]
        try:
            counts, samples = asyncio.run(soak(server, wanted, options))
        except BaseExceptionGroup as group:
            print(f"FAIL: {group.exceptions[0]!r} (and {len(group.exceptions) - 1} more)")
            return 1
        if not server.becomes_idle(30):
            print(f"FAIL: 30 s after the last stream the engine still holds something: {server.get('/live')}")
            return 1
        settled = [size for when, size in samples if when > samples[0][0] + seconds / 3]
        grown = server.resident_bytes() - settled[0]
        print(f"{counts['whole']} streams whole, {counts['left']} left early, {counts['aborted']} aborted, {counts['nonsense']} "
              f"requests that are none, {counts['events']} events in {seconds:g} s; memory "
              f"{settled[0] / 2**20:.0f} MiB after a third, {grown / 2**20:+.0f} MiB since")
        if grown > MAY_GROW and not is_sanitized(binary):
            print(f"FAIL: the server's memory grew by more than {MAY_GROW / 2**20:.0f} MiB")
            return 1
        if min(counts.values()) == 0:
            print(f"FAIL: too short or too slow: {counts}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
