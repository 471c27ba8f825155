#!/usr/bin/env python3
"""Keeps many streams open at one `lockstep serve` for a while, a part of them broken off at a random event, and looks for
lost or doubled text, leaked cache pages and growing memory.

usage: [SECONDS=60] [STREAMS=200] soak_test.py LOCKSTEP_BINARY REPOSITORY     (standard library only)
"""

import asyncio
import json
import os
import random
import sys
import time
from urllib.parse import urlsplit

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lockstep_server import LockstepServer, is_sanitized  # noqa: E402

SECONDS = float(os.environ.get("SECONDS", "60"))
STREAMS = int(os.environ.get("STREAMS", "200"))
PATIENCE = 120  # seconds that one stream may take in all
MAY_GROW = 32 << 20  # bytes of memory between the first third and the end


class Violation(Exception):
    pass


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
        body, expected = rng.choice(wanted)
        leave_after = rng.randrange(12) if rng.random() < 0.25 else None
        async with asyncio.timeout(PATIENCE):
            events = await ask(client, body, expected, leave_after)
        counts["events"] += events
        counts["left" if client.writer is None else "whole"] += 1
    await client.close()


async def watch_memory(server, stop_at, samples):
    while time.monotonic() < stop_at:
        samples.append((time.monotonic(), server.resident_bytes()))
        await asyncio.sleep(0.5)


async def soak(server, wanted):
    counts = {"whole": 0, "left": 0, "events": 0}
    samples = []
    stop_at = time.monotonic() + SECONDS
    async with asyncio.TaskGroup() as group:
        group.create_task(watch_memory(server, stop_at, samples))
        for number in range(STREAMS):
            group.create_task(keep_asking(server.url, wanted, stop_at, number, counts))
    return counts, samples


def expected_of(server, body):
    answer = server.post("/v1/chat/completions", body)
    return {"message": message_of(answer["choices"][0]["message"]), "finish": answer["choices"][0]["finish_reason"],
            "usage": lasting(answer["usage"])}


def main():
    binary, repository = sys.argv[1], sys.argv[2]
    with LockstepServer(binary, f"{repository}/models/tutor-deepseek-v3", ["--max-queued-requests", str(4 * STREAMS)]) as server:
        wanted = [(body, expected_of(server, body)) for body in bodies()]
        try:
            counts, samples = asyncio.run(soak(server, wanted))
        except BaseExceptionGroup as group:
            print(f"FAIL: {group.exceptions[0]!r} (and {len(group.exceptions) - 1} more)")
            return 1
        if not server.becomes_idle(30):
            print(f"FAIL: 30 s after the last stream the engine still holds something: {server.get('/live')}")
            return 1
        settled = [size for when, size in samples if when > samples[0][0] + SECONDS / 3]
        grown = server.resident_bytes() - settled[0]
        print(f"{counts['whole']} streams whole, {counts['left']} left early, {counts['events']} events in {SECONDS:g} s; memory "
              f"{settled[0] / 2**20:.0f} MiB after a third, {grown / 2**20:+.0f} MiB since")
        if grown > MAY_GROW and not is_sanitized(binary):
            print(f"FAIL: the server's memory grew by more than {MAY_GROW / 2**20:.0f} MiB")
            return 1
        if counts["whole"] == 0 or counts["left"] == 0:
            print("FAIL: too short or too slow: no stream was whole, or none was left early")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
