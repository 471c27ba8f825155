#!/usr/bin/env python3
"""Drives the chat page in headless Chromium against lockstep_scripted_server and checks what a reader would see.

usage: page_test.py path/to/lockstep_scripted_server [--screenshots FOLDER]

Needs chromium and chromedriver (Debian: chromium chromium-driver) and nothing else; without them it says so and exits with
77, which the test runner counts as skipped. Speaks the WebDriver protocol (https://www.w3.org/TR/webdriver2/) itself.
"""
import argparse
import base64
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request

SKIPPED = 77
PATIENCE = 15  # seconds
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name for an element reference


def call(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{method} {url}: {error.read().decode(errors='replace')[:500]}") from None


class Browser:
    def __init__(self, driver_url, chromium, profile):
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
                     "--window-size=1280,860", "--hide-scrollbars"]
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"binary": chromium, "args": arguments},
                  "goog:loggingPrefs": {"browser": "ALL"}}
        session = call("POST", driver_url + "/session", {"capabilities": {"alwaysMatch": wanted}})["value"]
        self.url = f"{driver_url}/session/{session['sessionId']}"

    def command(self, path, body=None):
        return call("POST", self.url + path, {} if body is None else body)["value"]

    def open(self, url):
        self.command("/url", {"url": url})

    def run(self, script, *arguments):
        return self.command("/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, css):
        return self.command("/element", {"using": "css selector", "value": css})[ELEMENT]

    def click(self, css):
        self.command(f"/element/{self.find(css)}/click")

    def type(self, css, text):
        self.command(f"/element/{self.find(css)}/value", {"text": text})

    def press(self, key):
        self.command("/actions", {"actions": [{"type": "key", "id": "keys", "actions": [
            {"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]}]})

    def chrome(self, name, **parameters):
        return self.command("/goog/cdp/execute", {"cmd": name, "params": parameters})

    def texts(self, css):
        return self.run("return [...document.querySelectorAll(arguments[0])].map((n) => n.innerText)", css)

    def text(self, css):
        found = self.texts(css)
        return found[-1] if found else None

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(call("GET", self.url + "/screenshot")["value"]))

    def complaints(self):
        """The errors on the page's console, without those that a test asks for."""
        expected = ("400 (Bad Request)", "401 (Unauthorized)", "ERR_INCOMPLETE_CHUNKED_ENCODING")
        entries = self.command("/se/log", {"type": "browser"})
        return [e["message"] for e in entries if e["level"] == "SEVERE" and not any(word in e["message"] for word in expected)]

    def quit(self):
        with contextlib.suppress(Exception):
            call("DELETE", self.url)


class PageTest:
    def __init__(self, browser, base, screenshots):
        self.browser, self.base, self.screenshots = browser, base, screenshots

    def wait(self, what, condition):
        deadline = time.monotonic() + PATIENCE
        while True:
            value = condition()
            if value:
                return value
            assert time.monotonic() < deadline, f"waited {PATIENCE} s for: {what}; last seen: {value!r}"
            time.sleep(0.03)

    def equal(self, is_, expected):
        assert is_ == expected, f"is {is_!r}, expected {expected!r}"

    def shot(self, name):
        if self.screenshots:
            time.sleep(0.3)
            self.browser.screenshot(self.screenshots / f"{name}.png")

    def fresh(self):
        self.browser.open(self.base + "/")
        self.wait("the model's name", lambda: self.browser.text("#model-name") == "scripted-moe")

    def send(self, text):
        self.browser.type("#message", text + "\n")

    def wait_done(self, count=1):
        self.wait("the end of the answer", lambda: len(self.browser.texts(".assistant.done")) >= count
                  and self.browser.run("return document.getElementById('stop').hidden"))

    def requests(self):
        return call("GET", self.base + "/test/state")["requests"]

    # ---- tests ----

    def test_text_streams(self):
        """Text appears piece by piece, and the request is what the settings say."""
        self.fresh()
        self.shot("welcome")
        self.browser.type("#temperature", "0.5")
        # The page itself notes what it showed when: a busy machine may look only when all is there.
        self.browser.run("""
            const log = document.getElementById('log');
            window.seen = [];
            new MutationObserver(() => {
              const content = log.querySelector('.assistant .content');
              if (content) window.seen.push([content.innerText, log.getAttribute('aria-busy')]);
            }).observe(log, {childList: true, subtree: true, characterData: true});""")
        self.send("hello there one two three four five six seven eight")
        self.wait_done()
        whole = self.browser.text(".assistant .content")
        parts = [seen for seen in self.browser.run("return window.seen") if seen[0] and len(seen[0]) < len(whole)]
        assert parts and all(whole.startswith(text.rstrip()) for text, _ in parts), f"did not stream: seen {parts!r}"
        self.equal({busy for _, busy in parts}, {"true"})
        self.equal(whole, "You said: hello there one two three four five six seven eight")
        self.equal(self.browser.texts(".user .bubble"), ["hello there one two three four five six seven eight"])
        assert "12 tokens" in self.browser.text(".foot"), self.browser.text(".foot")
        request = self.requests()[-1]
        self.equal(request["messages"], [{"role": "user", "content": "hello there one two three four five six seven eight"}])
        self.equal([request[k] for k in ("model", "stream", "temperature", "max_tokens")], ["scripted-moe", True, 0.5, 1024])
        self.equal(request["chat_template_kwargs"]["enable_thinking"], True)
        assert "tools" not in request
        self.equal(self.browser.run("return document.getElementById('message').value"), "")

    def test_the_conversation_goes_on_and_starts_anew(self):
        self.fresh()
        self.send("first")
        self.wait_done(1)
        self.send("second")
        self.wait_done(2)
        self.equal([(m["role"], m["content"]) for m in self.requests()[-1]["messages"]],
                   [("user", "first"), ("assistant", "You said: first"), ("user", "second")])
        self.browser.click("#new-chat")
        self.equal(self.browser.texts("#log > *"), [])
        self.send("third")
        self.wait_done(1)
        self.equal(len(self.requests()[-1]["messages"]), 1)

    def test_thinking_is_open_while_it_lasts_and_folds_after(self):
        self.fresh()
        self.send("think")
        self.wait("open thinking", lambda: self.browser.run("return document.querySelector('.thinking')?.open === true"))
        self.shot("thinking")
        self.wait_done()
        self.equal(self.browser.run("return document.querySelector('.thinking').open"), False)
        assert re.fullmatch(r"Thought for \d+\.\d s", self.browser.text(".thinking summary"))
        self.equal(self.browser.text(".assistant .content"), "Mia has 37 pens now.")
        self.equal(self.browser.texts(".content strong"), ["37"])
        self.browser.click(".thinking summary")
        self.wait("the thinking to open again", lambda: "59 away, so 96 - 59" in (self.browser.text(".thinking-text") or ""))
        self.shot("thought")
        self.browser.click("#thinking")
        self.send("think")
        self.wait_done(2)
        self.equal(self.requests()[-1]["chat_template_kwargs"]["enable_thinking"], False)

    def test_tool_calls_make_the_round_trip(self):
        self.fresh()
        self.browser.click("#calculator")
        self.send("tool")
        self.wait("the answer after the tool", lambda: self.browser.text(".assistant:last-of-type .content") and
                  len(self.browser.texts(".assistant.done")) == 2)
        self.equal(self.browser.texts(".tool-name"), ["calculator", "calculator"])
        self.equal(self.browser.texts(".tool-args"), ['{\n  "expression": "(17 * 23) + 0.5"\n}', '{\n  "expression": "1 / 0"\n}'])
        self.equal(self.browser.texts(".tool-result output"), ["391.5", "division by zero"])
        self.equal(self.browser.text(".assistant:last-of-type .content"), "The tool answered error: division by zero.")
        first, second = self.requests()[-2:]
        self.equal([t["function"]["name"] for t in first["tools"]], ["calculator"])
        _, assistant, good, bad = second["messages"]
        self.equal(assistant["reasoning_content"], "I call the tool.")
        self.equal([(c["id"], c["type"], c["function"]["name"]) for c in assistant["tool_calls"]],
                   [("call_0", "function", "calculator"), ("call_1", "function", "calculator")])
        self.equal(json.loads(assistant["tool_calls"][0]["function"]["arguments"]), {"expression": "(17 * 23) + 0.5"})
        self.equal(good, {"role": "tool", "tool_call_id": "call_0", "content": "391.5"})
        self.equal(bad, {"role": "tool", "tool_call_id": "call_1", "content": "error: division by zero"})
        self.shot("tools")

    def test_a_tool_that_does_not_exist(self):
        self.fresh()
        self.send("unknown tool")
        self.wait_done(2)
        self.equal(self.browser.texts(".tool-result.failed output"), ['there is no tool named "rm_rf"'])

    def test_stop(self):
        self.fresh()
        before = call("GET", self.base + "/test/state")["disconnects"]
        self.send("endless")
        self.wait("some words", lambda: "word3" in (self.browser.text(".assistant .content") or ""))
        self.browser.click("#stop")
        self.wait_done()
        self.equal(self.browser.text(".foot"), "stopped")
        self.equal(self.browser.texts(".error"), [])
        self.wait("the server to notice", lambda: call("GET", self.base + "/test/state")["disconnects"] == before + 1)
        self.send("endless")
        self.wait("some words", lambda: "word3" in (self.browser.text(".assistant:last-of-type .content") or ""))
        self.browser.press("\ue00c")  # Escape
        self.wait_done(2)
        self.browser.click("#new-chat")
        self.send("endless")
        self.wait("some words", lambda: "word3" in (self.browser.text(".assistant .content") or ""))
        self.browser.click("#new-chat")  # in the midst of an answer, which must leave no trace
        self.send("after")
        self.wait_done(1)
        self.equal(self.requests()[-1]["messages"], [{"role": "user", "content": "after"}])

    def test_errors_are_shown(self):
        self.fresh()
        self.send("refuse")
        self.wait("an error", lambda: self.browser.texts(".error"))
        self.equal(self.browser.text(".error p"), "400: max_tokens is 99, but the context has room for 7 more <b>tokens</b>")
        self.equal(self.browser.texts(".assistant"), [])
        count = len(self.requests())
        self.browser.click(".error button")
        self.wait("the second try", lambda: len(self.requests()) == count + 1)
        self.wait("the error again", lambda: self.browser.texts(".error"))
        self.send("midway")
        self.wait("the engine's error", lambda: self.browser.text(".error p") == "the engine failed")
        self.equal(self.browser.text(".assistant .content"), "It began")
        self.shot("errors")
        self.send("cut")
        self.wait("the broken stream", lambda: (self.browser.text(".error p") or "") not in ("", "the engine failed"))
        self.equal(self.browser.text(".foot"), "broken off")
        self.send("still here")
        self.wait("an answer after all that", lambda: self.browser.text(".assistant:last-of-type .content") == "You said: still here")

    def test_a_key_is_asked_for_when_one_is_needed(self):
        self.fresh()
        visible = "return document.getElementById('api-key').checkVisibility()"
        self.equal(self.browser.run(visible), False)
        self.send("locked")
        self.wait("the refusal", lambda: self.browser.text(".error p") == "401: an API key is needed")
        self.equal(self.browser.run(visible), True)
        self.browser.type("#api-key", "sesame\n")
        self.wait_done()
        self.equal(self.browser.text(".assistant .content"), "You said: locked")
        self.equal(self.browser.texts(".error"), [])

    def test_model_text_cannot_become_markup(self):
        self.fresh()
        self.send("hostile")
        self.wait_done()
        self.equal(self.browser.run("return window.broken ?? null"), None)
        self.equal(self.browser.run("return document.querySelectorAll('#log :is(script, img, svg, a, b)').length"), 0)
        assert "<img src=x" in self.browser.text(".assistant .content")
        self.equal(self.browser.texts(".content code"), ["<b>code</b>", '<svg onload="window.broken = 4">'])

    def test_markup(self):
        self.fresh()
        self.send("markup")
        self.wait_done()
        self.equal(self.browser.texts(".content > h4"), ["Steps"])
        self.equal(self.browser.texts(".content > ol > li"), ["twelve times eight", "minus fifty-nine"])
        self.equal(self.browser.texts(".content > pre"), ["rolls = 12 * 8 - 59\nprint(rolls)  # 37"])
        self.equal(self.browser.texts(".content em"), ["read"])
        self.equal(self.browser.texts(".content > p"), ["First read, then add the numbers:", "So 2 * 3 * 4 stays as it is, and a_b too."])
        self.shot("markup")

    def test_live_panel(self):
        self.fresh()
        self.wait("eight ranks", lambda: len(self.browser.texts("#ranks .rank")) == 8)
        self.equal(self.browser.text("#running"), "23")
        self.equal(self.browser.text("#num-ranks"), "8")
        assert self.browser.text("#uptime").startswith("1 h 2 min"), self.browser.text("#uptime")
        heights = self.browser.run("return [...document.querySelectorAll('.rank-bar')].map((n) => n.style.height)")
        self.equal(heights[7], "0%")
        assert "100%" in heights or any(float(h[:-1]) > 20 for h in heights), heights
        self.equal(self.browser.run("return [...document.querySelectorAll('[role=meter] > span')].map((m) => m.style.width)")[1], "93.75%")
        steps = self.browser.text("#steps")
        self.wait("the next figures", lambda: self.browser.text("#steps") != steps)
        self.equal(self.browser.text("#engine-state"), "serving")
        self.equal(self.browser.texts("#phases .replica-value"), ["1.00 ms", "12 ms"])
        points = self.browser.run("return document.querySelector('#sparkline polyline').getAttribute('points').split(' ').length")
        assert points >= 2, points
        self.equal(self.browser.run("return document.querySelector('nav a').href"), self.base + "/plan")

    def test_calculator(self):
        self.fresh()
        cases = {"1+2*3": "7", "(1+2)*3": "9", "2^3^2": "512", "-2^2": "-4", "10 % 4": "2", "0.1+0.2": "0.3", "1e3*2": "2000",
                 "sqrt(2)^2": "2", "max(1, 5, 3)": "5", "9999*9999": "99980001", "7 × 6 ÷ 2 − 1": "20", "2**-1": "0.5", "--3": "3"}
        bad = {"1/0": "division by zero", "1+": "ends too early", "alert(1)": "not known", "2 3": "behind", "(1": "missing",
               "": "no expression", "(" * 500 + "1": "nested", "1;2": "cannot read", "9^9^9": "finite"}
        script = """const done = arguments[arguments.length - 1]; import('/web/calculator.js').then(({ evaluate }) =>
                    done(arguments[0].map((e) => { try { return evaluate(e); } catch (f) { return 'Error: ' + f.message; } })));"""
        results = self.browser.command("/execute/async", {"script": script, "args": [list(cases) + list(bad)]})
        for (expression, expected), result in zip(cases.items(), results):
            assert result == expected, f"{expression} is {result}, expected {expected}"
        for (expression, word), result in zip(bad.items(), results[len(cases):]):
            assert result.startswith("Error: ") and word in result, f"{expression} is {result}, expected an error with {word!r}"

    def test_event_parsing(self):
        """Cuts, line ends, comments and fields as the HTML standard has them (9.2.6)."""
        self.fresh()
        script = """const done = arguments[arguments.length - 1]; import('/web/sse.js').then(async ({ readEvents }) => {
            const all = [];
            for (const pieces of arguments[0]) {
              const body = new ReadableStream({ start(c) { for (const p of pieces) c.enqueue(new Uint8Array(p)); c.close(); } });
              const events = [];
              for await (const data of readEvents(body)) events.push(data);
              all.push(events);
            }
            done(all);
          });"""
        text = ": comment\ndata: YHOO\ndata: +2\ndata: 10\n\nevent: x\nid: 1\ndata:no space\r\n\r\ndata:  two spaces\r\rdata\n\ndata: é漢\n\ndata: lost".encode()
        expected = ["YHOO\n+2\n10", "no space", " two spaces", "é漢"]
        cuts = [[list(text[i:i + n]) for i in range(0, len(text), n)] for n in (1, 2, 3, 5, len(text))]
        for events in self.browser.command("/execute/async", {"script": script, "args": [cuts]}):
            self.equal(events, expected)

    def test_keyboard(self):
        """All controls can be reached with Tab and show that they are; Shift+Enter does not send."""
        self.fresh()
        self.browser.type("#message", "two")
        self.browser.type("#message", "\ue008\ue007\ue000lines")
        self.equal(self.browser.run("return document.getElementById('message').value"), "two\nlines")
        self.equal(self.browser.texts(".user"), [])
        self.browser.run("document.activeElement.blur()")
        reached = []
        for _ in range(24):
            self.browser.press("\ue004")
            reached.append(self.browser.run("return document.activeElement.id || document.activeElement.textContent.trim()"))
        for name in ("message", "send", "new-chat", "temperature", "max-tokens", "thinking", "calculator", "Plan"):
            assert name in reached, f"{name} was not reached: {reached}"

    def test_phone(self):
        self.browser.chrome("Emulation.setDeviceMetricsOverride", width=360, height=720, deviceScaleFactor=2, mobile=True)
        try:
            self.fresh()
            self.send("markup")
            self.wait_done()
            self.equal(self.browser.run("return document.documentElement.scrollWidth"), 360)
            self.equal(self.browser.run("return getComputedStyle(document.getElementById('panel')).display"), "none")
            self.shot("phone")
            self.browser.click("#panel-toggle")
            self.equal(self.browser.run("return getComputedStyle(document.getElementById('panel')).display"), "block")
            self.equal(self.browser.run("return document.getElementById('panel-toggle').getAttribute('aria-expanded')"), "true")
            self.shot("phone-panel")
        finally:
            self.browser.chrome("Emulation.clearDeviceMetricsOverride")

    def test_dark(self):
        shade = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
        self.fresh()
        assert self.browser.run(shade) > 600
        self.browser.chrome("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        try:
            assert self.browser.run(shade) < 150
            self.browser.click("#calculator")
            self.send("tool")
            self.wait_done(2)
            time.sleep(3 if self.screenshots else 0)
            self.shot("dark")
        finally:
            self.browser.chrome("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])


def first_line(process, pattern):
    for line in process.stdout:
        found = re.search(pattern, line)
        if found:
            return found.group(1)
    raise RuntimeError(f"{process.args[0]} ended without saying {pattern}")


@contextlib.contextmanager
def running(*command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server")
    parser.add_argument("--screenshots", type=pathlib.Path)
    parser.add_argument("--only", default="", help="run the tests whose name holds this")
    options = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        print("SKIPPED: chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)")
        return SKIPPED
    if options.screenshots:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    failures = 0
    with tempfile.TemporaryDirectory() as profile, running(options.server) as server, \
            running(driver, "--port=0") as chromedriver:
        base = "http://127.0.0.1:" + first_line(server, r"listening on (\d+)")
        browser = Browser("http://127.0.0.1:" + first_line(chromedriver, r"successfully on port (\d+)"), chromium, profile)
        try:
            test = PageTest(browser, base, options.screenshots)
            for name in [n for n in dir(test) if n.startswith("test_") and options.only in n]:
                began = time.monotonic()
                try:
                    getattr(test, name)()
                    complaints = browser.complaints()
                    assert not complaints, f"the page's console: {complaints}"
                    print(f"ok      {name}  {time.monotonic() - began:.1f} s", flush=True)
                except Exception:
                    failures += 1
                    print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
        finally:
            browser.quit()
    return min(failures, 1)


if __name__ == "__main__":
    os.environ.setdefault("NO_PROXY", "127.0.0.1")
    sys.exit(main())
