"""Starts `lockstep serve` for the tests of this folder, on a port that is free, and stops it again."""

import json
import queue
import re
import subprocess
import threading
import time
import urllib.request

RANKS = ["--tp-size", "4", "--dp-size", "2", "--enable-dp-attention", "--ep-size", "4", "--moe-a2a-backend", "in_process",
         "--moe-dense-tp-size", "1"]


class LockstepServer:
    """A running server: `with LockstepServer(binary, model) as server: server.url ...`."""

    def __init__(self, binary, model, flags=()):
        command = [binary, "serve", "--model", model, "--port", "0", "--drain-seconds", "2", *RANKS, *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.url = self._wait_for_address()

    def _wait_for_address(self):
        found = queue.Queue()

        def read():
            for line in self.process.stderr:
                self.lines.append(line)
                if match := re.search(r"serving .* at (http://\S+)", line):
                    found.put(match.group(1))
            found.put(None)

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        url = found.get(timeout=300)
        if url is None:
            raise RuntimeError("lockstep serve ended:\n" + "".join(self.lines))
        return url

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=60) as response:
            return json.load(response)

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as response:
            return json.load(response)

    def is_idle(self):
        return all(r["running"] == r["queued"] == r["pages_used"] == 0 for r in self.get("/live")["replicas"])

    def becomes_idle(self, seconds):
        deadline = time.monotonic() + seconds
        while not self.is_idle():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read()).group(1)) * 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.reader.join()
            self.process.stderr.close()


def is_sanitized(binary):
    """True for a binary with AddressSanitizer or ThreadSanitizer, whose memory says nothing about the program's own."""
    with open(binary, "rb") as file:
        program = file.read()
    return b"__asan_init" in program or b"__tsan_init" in program
