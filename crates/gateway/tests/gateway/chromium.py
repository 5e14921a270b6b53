"""Drives a headless Chromium by its DevTools protocol, over a pipe, with nothing but Python's standard library.

As a program it reads commands from standard input, one JSON object per line, and writes each result to standard output in
the same form:

    {"open": URL}    loads a page
    {"eval": JS}     the value of an expression
    {"until": JS}    waits until an expression is true; its last value
    {"press": KEY}   presses a key, such as "Tab" or "Enter"
    {"problems": 1}  errors, warnings and violations of the page's policy so far
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
]
TIMEOUT = 60
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27}


class Chromium:
    def __init__(self, width=1280, height=900):
        self.profile = tempfile.mkdtemp(prefix="chromium-")
        # The browser reads commands from descriptor 3 and writes to descriptor 4.
        commands, self.to = os.pipe()
        self.out, answers = os.pipe()
        shell = f'exec chromium "$@" 3<&{commands} 4>&{answers} 2>/dev/null'
        flags = [*FLAGS, f"--user-data-dir={self.profile}", f"--window-size={width},{height}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "chromium", *flags], pass_fds=(commands, answers), stdout=subprocess.DEVNULL
        )
        os.close(commands)
        os.close(answers)
        self.buffer, self.last, self.events, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def read(self):
        end = time.monotonic() + TIMEOUT
        while b"\0" not in self.buffer:
            if not select.select([self.out], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            piece = os.read(self.out, 1 << 20)
            if not piece:
                raise EOFError("Chromium has ended: is Debian's package `chromium` installed?")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") != self.last:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def eval(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, expression):
        end = time.monotonic() + TIMEOUT
        while not (value := self.eval(expression)):
            if time.monotonic() > end:
                page = self.eval("document.body.innerText")
                raise TimeoutError(f"never true: {expression}; {self.problems()}; the page is {page}")
            time.sleep(0.05)
        return value

    def press(self, key):
        event = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **event, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def problems(self):
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"].get("text", "an exception"))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(str(params["args"]))
        return found

    def resize(self, width, height, mobile=False):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def screenshot(self, path):
        shot = self.call("Page.captureScreenshot", format="png")
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def close(self):
        os.close(self.to)  # the browser ends with its pipe
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


def answer(browser, command):
    match command:
        case {"open": url}:
            return browser.open(url)
        case {"eval": expression}:
            return browser.eval(expression)
        case {"until": expression}:
            return browser.until(expression)
        case {"press": key}:
            return browser.press(key)
        case {"problems": _}:
            return browser.problems()


def main():
    browser = Chromium()
    try:
        for line in sys.stdin:
            try:
                result = {"ok": answer(browser, json.loads(line))}
            except (RuntimeError, TimeoutError) as error:
                result = {"error": str(error)}
            print(json.dumps(result), flush=True)
    finally:
        browser.close()


if __name__ == "__main__":
    main()
