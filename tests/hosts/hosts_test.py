#!/usr/bin/env python3
"""Ranks spread over processes: the same text as in one process, and no hang whatever happens to one of them.

usage: hosts_test.py LOCKSTEP_BINARY REPOSITORY
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

BINARY, REPOSITORY = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
DEEPSEEK, QWEN = f"{REPOSITORY}/models/tutor-deepseek-v3", f"{REPOSITORY}/models/tutor-qwen3.5-moe"
RANKS = ["--tp-size", "4", "--dp-size", "2", "--enable-dp-attention", "--ep-size", "4", "--moe-dense-tp-size", "1",
         "--moe-a2a-backend", "in_process"]
SPLITS = [RANKS, ["--tp-size", "4", "--ep-size", "2"],
          ["--tp-size", "4", "--dp-size", "4", "--enable-dp-attention", "--ep-size", "4", "--moe-a2a-backend",
           "in_process_expert_major"]]
IDS = ",".join(str(5 + 7 * n % 90) for n in range(19))
LAUNCHERS = re.compile(r"^(OMPI_|PMIX?_|SLURM_|LWS_)")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """One process of an engine; its standard error is read all the time."""

    def __init__(self, arguments, prefix=(), environment=None):
        self.process = subprocess.Popen([*prefix, BINARY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env={**ENVIRONMENT, **(environment or {})})
        self.lines, self.output = [], ""
        self.readers = [threading.Thread(target=self._read_errors, daemon=True),
                        threading.Thread(target=self._read_output, daemon=True)]
        for reader in self.readers:
            reader.start()

    def _read_errors(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def _read_output(self):
        self.output = self.process.stdout.read()

    @property
    def errors(self):
        return "".join(self.lines)

    def wait_for(self, pattern, seconds=60):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if found := re.search(pattern, self.errors):
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        if found := re.search(pattern, self.errors):
            return found
        raise AssertionError(f"no line with {pattern}:\n{self.errors}")

    def end(self, seconds=60):
        code = self.process.wait(timeout=seconds)
        for reader in self.readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.end()


class HostsTest(unittest.TestCase):
    def start(self, num, arguments, of_process=None, coordinator=None, prefixes=None):
        """Every process of an engine, the head first."""
        port = free_port()
        started = []
        for index in range(num):
            more = ["--hosts", str(num), "--host-rank", str(index)] if num > 1 else []
            own = (of_process or {}).get(index, [])
            if num > 1 and "--coordinator" not in own:
                more += ["--coordinator", coordinator or f"127.0.0.1:{port}"]
            process = Process([*arguments, *more, *own],
                              prefix=prefixes[index] if prefixes else ())
            self.addCleanup(process.kill)
            started.append(process)
        return started

    def run_all(self, num, arguments, **how):
        processes = self.start(num, arguments, **how)
        for process in processes:
            self.assertEqual(process.end(), 0, process.errors)
        return processes[0].output

    def serve(self, num, *flags):
        processes = self.start(num, ["serve", "--model", DEEPSEEK, *RANKS, "--drain-seconds", "1", *flags],
                               of_process={0: ["--port", "0"]})
        self.url = processes[0].wait_for(r"serving .* at (http://\S+)").group(1)
        return processes

    def chat(self, content, **more):
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 40, **more}
        return self.post("/v1/chat/completions", body)["choices"][0]["message"]

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def health(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def test_same_logits_and_tokens_bit_for_bit(self):
        for model, splits in ((DEEPSEEK, SPLITS), (QWEN, [RANKS])):
            for ranks in splits:
                score = ["score", "--model", model, "--ids", IDS, "--greedy", "12", "--top", "3", *ranks]
                one = self.run_all(1, score)
                self.assertTrue(json.loads(one)["greedy_ids"])
                for num in (2, 4):
                    with self.subTest(model=model, ranks=ranks, hosts=num):
                        self.assertEqual(self.run_all(num, score), one)

    def test_drafts_between_processes_leave_no_trace(self):
        score = ["score", "--model", DEEPSEEK, "--ids", IDS, "--greedy", "24", *RANKS]
        drafts = ["--speculative-algorithm", "NEXTN", "--speculative-num-steps", "2"]
        one = json.loads(self.run_all(1, score))["greedy_ids"]
        self.assertEqual(len(one), 24)
        for num in (1, 2):
            with self.subTest(hosts=num):
                self.assertEqual(json.loads(self.run_all(num, [*score, *drafts]))["greedy_ids"], one)

    def test_same_answers_over_the_api(self):
        questions = [f"Tom has {n} apples and buys {n + 3} more. How many has he?" for n in range(3, 9)]

        def answers():
            found = {}
            threads = [threading.Thread(target=lambda q=q, how=how: found.__setitem__((q, how), self.chat(
                q, **({"temperature": 0} if how == "greedy" else {"temperature": 1, "seed": 7}))))
                for q in questions for how in ("greedy", "drawn")]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return found

        results = []
        for num in (1, 2):
            processes = self.serve(num)
            results.append(answers())
            processes[0].process.terminate()
            self.assertEqual([process.end() for process in processes], [0] * num, processes[-1].errors)
        self.assertEqual(len(results[0]), 2 * len(questions))
        self.assertEqual(results[0], results[1])

    def streams_until(self, event):
        """Opens long streams, lets `event` happen once tokens flow, and gives how each ended and how long that took."""
        ends, flowing = [], threading.Semaphore(0)

        def stream():
            body = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 100000, "ignore_eos": True,
                    "stream": True}
            request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            last, count = "", 0
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    for line in response:
                        if line.startswith(b"data: "):
                            last, count = line.decode(), count + 1
                            if count == 3:
                                flowing.release()
                            if '"error"' in last:
                                break
            except (OSError, urllib.error.URLError) as error:
                last = f"connection: {error}"
            if count < 3:
                flowing.release()
            ends.append(last)

        threads = [threading.Thread(target=stream) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in threads:
            flowing.acquire()
        event()
        begin = time.monotonic()
        for thread in threads:
            thread.join(timeout=60)
        return ends, time.monotonic() - begin

    def assert_failed_whole(self, ends, seconds, most, words):
        self.assertLess(seconds, most)
        self.assertEqual(len(ends), 4)
        for end in ends:
            self.assertIn('"error"', end)
            self.assertIn("process 1", end)
        status, body = self.health()
        self.assertEqual(status, 503)
        self.assertIn("process 1 (ranks 2 to 3 at 127.0.0.1)", body)
        self.assertIn(words, body)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.chat("Is anybody there?")
        self.assertEqual(refused.exception.code, 503)
        refused.exception.close()

    def test_a_killed_process_is_an_error_and_no_hang(self):
        head, worker = self.serve(2, "--context-length", "512")
        self.assertEqual(self.health()[0], 200)
        ends, seconds = self.streams_until(worker.process.kill)
        self.assert_failed_whole(ends, seconds, 3, "is gone")
        self.assertIsNone(head.process.poll())
        head.process.terminate()
        self.assertEqual(head.end(), 1)

    def becomes_sick(self):
        """The seconds until it says so."""
        begin = time.monotonic()
        while self.health()[0] == 200 and time.monotonic() - begin < 10:
            time.sleep(0.02)
        return time.monotonic() - begin

    def becomes_healthy(self, seconds=60):
        until = time.monotonic() + seconds
        while self.health()[0] != 200:
            self.assertLess(time.monotonic(), until, self.health()[1])
            time.sleep(0.05)

    def test_a_process_that_comes_back_joins_again(self):
        """Twice: who was there from the start and who came later both find the others again."""
        for num in (2, 4):
            with self.subTest(hosts=num):
                processes = self.serve(num, "--context-length", "512")
                before = self.chat("What is 17 + 25?", temperature=0)
                for restart in (1, 2):
                    ends, seconds = self.streams_until(processes[1].process.kill)
                    self.assertLess(seconds, 3)
                    self.assertTrue(all('"error"' in end for end in ends), ends)
                    processes[1].end()
                    processes[1] = Process(processes[1].process.args[1:])
                    self.addCleanup(processes[1].kill)
                    self.becomes_healthy()
                    self.assertEqual(self.chat("What is 17 + 25?", temperature=0), before)
                    self.assertIn(f'"restarts":{restart}', self.health()[1].replace(" ", ""))
                processes[0].process.terminate()
                self.assertEqual([process.end() for process in processes], [0] * num, processes[-1].errors)

    def test_processes_that_have_served_nobody_join_again(self):
        """The others know from the head that the engine has started. Who comes back comes later than a step may take."""
        processes = self.serve(4, "--context-length", "512", "--step-timeout", "1")
        processes[1].process.kill()
        processes[1].end()
        processes[2].wait_for("this process joins again, 1 of 5 times")
        time.sleep(8)
        processes[1] = Process(processes[1].process.args[1:])
        self.addCleanup(processes[1].kill)
        self.becomes_healthy()
        processes[0].process.terminate()
        self.assertEqual([process.end() for process in processes], [0] * 4, processes[-1].errors)

    def test_a_head_that_is_stopped_or_killed_while_it_waits_ends_those_who_wait(self):
        for stop in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(signal=stop):
                head, worker, other, last = self.serve(4, "--context-length", "512")
                worker.process.kill()
                for process in (2, 3):
                    head.wait_for(f"process {process} of 4 is here.*(?s:.*)process {process} of 4 is here")
                head.process.send_signal(stop)
                self.assertEqual((other.end(10), last.end(10)), (1, 1))

    def test_an_engine_that_may_not_start_again_ends_its_processes(self):
        head, worker, other, last = self.serve(4, "--context-length", "512", "--max-engine-restarts", "0")
        worker.process.kill()
        self.assertEqual((other.end(10), last.end(10)), (1, 1))
        self.assertLess(self.becomes_sick(), 2)
        status, body = self.health()
        self.assertEqual(status, 503)
        self.assertIn("process 1", body)
        head.process.terminate()
        self.assertEqual(head.end(), 1)

    def test_a_stopped_process_is_an_error_and_no_hang(self):
        head, worker = self.serve(2, "--context-length", "512", "--host-timeout", "1.5")
        ends, seconds = self.streams_until(lambda: worker.process.send_signal(signal.SIGSTOP))
        self.assert_failed_whole(ends, seconds, 5, "has said nothing for")
        head.process.terminate()
        self.assertEqual(head.end(), 1)

    def test_workers_end_when_the_head_is_killed(self):
        processes = self.serve(4, "--context-length", "512")
        processes[0].process.kill()
        for process in processes[1:]:
            self.assertEqual(process.end(10), 1)
            self.assertIn("process 0", process.errors)

    def test_what_differs_is_told_by_both(self):
        for of_worker, words in ((["--page-size", "32"], "--page-size is 32 in process 1 at 127.0.0.1 and 16 in the head"),
                                 (["--max-running-requests", "3"], "--max-running-requests is 3 in process 1"),
                                 (["--host-timeout", "7"], "--host-timeout is 7 in process 1 at 127.0.0.1 and 5 in the head"),
                                 (["--model", QWEN], "the model's hash is ")):
            arguments = ["score", "--ids", "5,6", "--tp-size", "2"]
            model = [] if "--model" in of_worker else ["--model", DEEPSEEK]
            for process in self.start(2, arguments, of_process={0: ["--model", DEEPSEEK], 1: [*model, *of_worker]}):
                self.assertNotEqual(process.end(30), 0)
                self.assertIn(words, process.errors)

    def test_who_calls_and_is_silent_keeps_nobody_out(self):
        port = free_port()
        arguments = ["score", "--model", DEEPSEEK, "--ids", "5,6", "--tp-size", "2", "--hosts", "2", "--coordinator",
                     f"127.0.0.1:{port}"]
        head = Process([*arguments, "--host-rank", "0"])
        self.addCleanup(head.kill)
        head.wait_for("waiting for process 1")
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
        self.addCleanup(lambda: [one.close() for one in silent])
        begin = time.monotonic()
        worker = Process([*arguments, "--host-rank", "1"])
        self.addCleanup(worker.kill)
        head.wait_for("process 1 of 2 is here")
        self.assertLess(time.monotonic() - begin, 10, "twelve callers of three seconds each were waited for")
        self.assertEqual((head.end(), worker.end()), (0, 0), head.errors)

    def test_a_coordinator_that_is_no_address_of_the_head_is_told(self):
        port = free_port()
        processes = self.start(2, ["score", "--model", DEEPSEEK, "--ids", "5,6", "--tp-size", "2"],
                               of_process={0: ["--coordinator", f"198.51.100.7:{port}"], 1: ["--coordinator", f"127.0.0.1:{port}"]})
        self.assertEqual([process.end() for process in processes], [0, 0], processes[0].errors)
        self.assertIn("--coordinator 198.51.100.7 stands for 198.51.100.7, which is no address of this machine",
                      processes[0].errors)

    def test_the_death_of_an_idle_process_is_noticed_at_once(self):
        head, worker = self.serve(2, "--context-length", "512")
        self.assertEqual(self.health()[0], 200)
        worker.process.kill()
        self.assertLess(self.becomes_sick(), 2)
        head.process.terminate()
        self.assertEqual(head.end(), 1)

    def test_who_is_missing_is_named(self):
        arguments = ["score", "--model", DEEPSEEK, "--ids", "5,6", "--tp-size", "4", "--hosts", "4", "--host-join-timeout",
                     "1", "--coordinator", f"127.0.0.1:{free_port()}"]
        head, worker = (Process([*arguments, "--host-rank", rank]) for rank in ("0", "2"))
        for process in (head, worker):
            self.addCleanup(process.kill)
            self.assertEqual(process.end(30), 1)
            self.assertIn("processes 1, 3 did not come", process.errors)
        alone = Process([*arguments[:-1], f"127.0.0.1:{free_port()}", "--host-rank", "1"])
        self.addCleanup(alone.kill)
        self.assertEqual(alone.end(30), 1)
        self.assertIn("the head did not answer within 1.0 s", alone.errors)

    def test_flags_that_do_not_fit_are_refused_at_once(self):
        base = ["score", "--model", DEEPSEEK, "--ids", "5,6", "--tp-size", "4"]
        for more, environment, words in (
                (["--hosts", "3", "--host-rank", "0", "--coordinator", "a"], {}, "these do: 1, 2, 4"),
                (["--hosts", "2"], {}, "needs --host-rank"),
                (["--hosts", "2", "--host-rank", "2", "--coordinator", "a"], {}, "--host-rank 2 is not between 0 and 1"),
                (["--hosts", "2", "--host-rank", "1"], {}, "needs --coordinator"),
                (["--hosts", "2", "--host-rank", "1", "--coordinator", "a:b"], {}, "is not NAME, NAME:PORT"),
                (["--hosts", "2"], {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "3"}, "srun started 3 processes")):
            process = Process([*base, *more], environment=environment)
            self.addCleanup(process.kill)
            self.assertEqual(process.end(30), 2, process.errors)
            self.assertIn(words, process.errors)

    def test_mpirun_starts_the_processes(self):
        if not shutil.which("mpirun"):
            self.skipTest("there is no mpirun here")
        score = [BINARY, "score", "--model", DEEPSEEK, "--ids", IDS, "--greedy", "4", *RANKS]
        one = subprocess.run(score, capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
        command = ["mpirun", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "-n", "2", *score,
                   "--hosts", "2"]
        two = subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
        self.assertEqual(two.returncode, 0, two.stderr)
        self.assertEqual(two.stdout, one.stdout)

    def test_machines_with_several_addresses(self):
        """Three network namespaces with a wire between every two: each is known to the others by another address."""
        names = [f"lockstep{os.getpid()}-{n}" for n in range(3)]

        def ip(*arguments):
            return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False).returncode == 0

        if os.geteuid() != 0 or not shutil.which("ip"):
            self.skipTest("network namespaces need root and iproute2")
        made = True
        for name in names:
            self.addCleanup(ip, "netns", "del", name)
            made = made and ip("netns", "add", name) and ip("-n", name, "link", "set", "lo", "up")
        for wire, ends in ((1, (0, 1)), (2, (0, 2)), (3, (1, 2))):
            made = made and ip("link", "add", f"wire{wire}", "netns", names[ends[0]], "type", "veth", "peer", "name",
                               f"wire{wire}", "netns", names[ends[1]])
            for at, end in enumerate(ends, 1):
                made = (made and ip("-n", names[end], "addr", "add", f"10.77.{wire}.{at}/24", "dev", f"wire{wire}")
                        and ip("-n", names[end], "link", "set", f"wire{wire}", "up"))
        if not made:
            self.skipTest("network namespaces cannot be made here")
        score = ["score", "--model", DEEPSEEK, "--ids", IDS, "--greedy", "4", "--tp-size", "3"]
        one = self.run_all(1, score)
        # Process 2 first tries the address by which the head knows process 1, which it cannot reach.
        three = self.run_all(3, score, of_process={1: ["--coordinator", "10.77.1.1:4321"], 2: ["--coordinator", "10.77.2.1:4321"]},
                             coordinator="10.77.1.1:4321", prefixes=[["ip", "netns", "exec", name] for name in names])
        self.assertEqual(three, one)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
