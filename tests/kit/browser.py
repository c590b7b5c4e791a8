"""A headless Chromium that tests tell what to do, over the pipe of its DevTools protocol (two file
descriptors, JSON ended by NUL), so that it needs no driver and no port.

It is a package of the system (`apt-get install chromium`); without it `browser()` skips the test
and says so.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--remote-debugging-pipe",
    "--window-size=1280,900",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE 127.0.0.2",
)
_PATIENCE_S = 20.0


class _NoPage(Exception):
    """The page that was asked has gone, and the next is not there yet."""


class Browser:
    """One page of one browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._last = 0
        self._session = ""
        self.complaints: list[str] = []  # uncaught exceptions, and what the console calls an error
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)[
            "sessionId"
        ]
        for domain in ("Runtime", "Log", "Page"):
            self._call(f"{domain}.enable")

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def js(self, expression: str) -> Any:
        """The value of an expression in the page; of a promise, what it resolves to."""
        told = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, (expression, told["exceptionDetails"])
        return told["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true, in whatever page it then is: on the way from one to another
        there is no body, or none to ask at all.
        """
        end = time.monotonic() + _PATIENCE_S
        asked = f"(() => {{ try {{ return Boolean({condition}) }} catch {{ return false }} }})()"
        while True:
            with contextlib.suppress(_NoPage):
                if self.js(asked):
                    return
            assert time.monotonic() < end, (condition, self.text()[:3_000], self.complaints)
            time.sleep(0.05)

    def text(self) -> str:
        return str(self.js("document.body?.innerText"))

    def click(self, selector: str, between: str = "0") -> None:
        """As a mouse does: where the element is, so something that covers it would be hit.
        `between`: what the page awaits before the button is released.
        """
        found = f"document.querySelector({json.dumps(selector)})"
        self.wait(f"{found} && !{found}.disabled")
        self.js(f"{found}.scrollIntoView({{block: 'center'}})")
        box = self.js(
            f"(r => [r.x + r.width / 2, r.y + r.height / 2])({found}.getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=box[0],
                y=box[1],
                button="left",
                clickCount=1,
            )
            if kind == "mousePressed":
                self.js(between)

    def type(self, selector: str, text: str) -> None:
        self.click(selector)
        self.js(f"document.querySelector({json.dumps(selector)}).select()")
        self._call("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        """An option of a <select>."""
        self.js(
            f"(s => {{ s.value = {json.dumps(value)}; s.dispatchEvent(new Event('change')); }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )

    def size(self, width: int, height: int, scheme: str = "light") -> None:
        """Of the window, and whether the system is light or dark."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Of the whole page, or of what is in the window."""
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, **params: Any) -> Any:
        self._last += 1
        told = {"id": self._last, "method": method, "params": params}
        if self._session:
            told["sessionId"] = self._session
        os.write(self._commands, json.dumps(told).encode() + b"\0")
        while True:
            message = self._receive()
            if message.get("id") == self._last:
                error = message.get("error")
                if error is not None and re.search("context|navigated", error["message"]):
                    raise _NoPage(error["message"])
                assert error is None, (method, error)
                return message["result"]
            self._heard(message)

    def _heard(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params["exceptionDetails"])[:500])
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.complaints.append(
                    f"{params['entry']['text']} {params['entry'].get('url', '')}"
                )
            case "Runtime.consoleAPICalled" if params["type"] == "error":
                self.complaints.append(json.dumps(params["args"])[:500])

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            got = os.read(self._answers, 1 << 16)
            assert got, "the browser has ended"
            self._buffer += got
        line, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        return message


def _high(pipe: tuple[int, int]) -> tuple[int, int]:
    """The same pipe at descriptors that 3 and 4 do not overwrite."""
    both = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in pipe]
    for end in pipe:
        os.close(end)
    return both[0], both[1]


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile in that directory, until the block ends."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    to_child, commands = _high(os.pipe())
    answers, from_child = _high(os.pipe())
    # the protocol's descriptors are 3 and 4; a shell puts ours there
    script = f'exec "$@" 3<&{to_child} 4>&{from_child} {to_child}<&- {from_child}>&-'
    command = [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        ["bash", "-c", script, "browser", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(to_child, from_child),
        start_new_session=True,
    )
    os.close(to_child)
    os.close(from_child)
    try:
        yield Browser(commands, answers)
    finally:
        os.close(commands)  # it ends when nobody can tell it anything any more
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(answers)
