"""A real Chromium for the tests of pages, driven over its debugging pipe; no package is needed.

``open_browser`` skips, and so counts as not run, where no Chromium is installed.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
MISSING = "chromium: not installed"
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-background-networking", "--disable-extensions", "--remote-debugging-pipe"),
)
# The browser reads its orders from descriptor 3 and answers on 4.
LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
PATIENCE = 60.0  # seconds for one answer; a busy machine starts slowly
CODES = {"PageDown": 34, "PageUp": 33, "Home": 36, "End": 35, "Enter": 13}
CODES |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class BrowserError(AssertionError):
    """What the page or the browser said went wrong."""


class Browser:
    """One page in one browser. ``problems``: what its console, policy or script complained of."""

    def __init__(self, program: str, folder: Path) -> None:
        ours, theirs = os.pipe(), os.pipe()  # read and write end of each direction
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (ours[0], theirs[1])]
        command = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self.problems: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *map(str, ends), *command],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (ours[0], theirs[1], *ends):
            os.close(fd)
        self._out, self._in = ours[1], theirs[0]
        os.set_blocking(self._in, False)
        self._buffer, self._number, self._session = b"", 0, ""

    def start(self) -> None:
        """Attach to a page of its own."""
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        attached = self._send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._send(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        with suppress(OSError, BrowserError):
            self._send("Browser.close", browser=True)
        with suppress(OSError):
            os.close(self._out)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)

    def open(self, path: Path, hash_: str = "", width: int = 1440, height: int = 900) -> None:
        """Load a file at a size."""
        self.size(width, height)
        self._send("Page.navigate", url="about:blank")
        self._send("Page.navigate", url=path.as_uri() + hash_)
        self.until("document.readyState === 'complete' && location.protocol === 'file:'")

    def size(self, width: int, height: int = 900) -> None:
        """Another window."""
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._send("Emulation.setDeviceMetricsOverride", **sizes)

    def look(self, media: str = "", **features: str) -> None:
        """``media`` print or "", and features such as ``prefers_color_scheme="dark"``."""
        pairs = [{"name": n.replace("_", "-"), "value": v} for n, v in features.items()]
        self._send("Emulation.setEmulatedMedia", media=media, features=pairs)

    def ask(self, code: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        said = self._send(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in said:
            raise BrowserError(f"{code}: {said['exceptionDetails']}")
        return said["result"].get("value")

    def until(self, code: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.ask(code):
            if time.monotonic() > end:
                raise BrowserError(f"never true: {code}")
            time.sleep(0.02)

    def key(self, name: str) -> None:
        """Press and let go."""
        text = name if len(name) == 1 else "\r" if name == "Enter" else ""
        common = {"key": name, "windowsVirtualKeyCode": CODES.get(name, 0)}
        kind = "keyDown" if text else "rawKeyDown"
        self._send("Input.dispatchKeyEvent", type=kind, text=text, **common)
        self._send("Input.dispatchKeyEvent", type="keyUp", **common)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """``kind`` mousePressed, mouseReleased, mouseMoved or mouseWheel."""
        self._send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector: str) -> None:
        """Press the middle of an element, scrolled into view."""
        code = (
            f"(() => {{ const n = document.querySelector({json.dumps(selector)});"
            "n.scrollIntoView({block: 'center'}); const b = n.getBoundingClientRect();"
            "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        x, y = self.ask(code)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def scripts(self, run: bool) -> None:
        """Whether the page's own scripts run from the next load on."""
        self._send("Emulation.setScriptExecutionDisabled", value=not run)

    def allow_clipboard(self) -> None:
        """Let pages write to the clipboard, as a click allows them in a window."""
        permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        self._send("Browser.grantPermissions", permissions=permissions, browser=True)

    def picture(self, path: Path, whole: bool = True) -> None:
        """A PNG of the page, or of the window alone."""
        said = self._send("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        path.write_bytes(base64.b64decode(said["data"]))

    def _send(self, method: str, browser: bool = False, **values: Any) -> dict[str, Any]:
        self._number += 1
        body: dict[str, Any] = {"id": self._number, "method": method, "params": values}
        if self._session and not browser:
            body["sessionId"] = self._session
        os.write(self._out, json.dumps(body).encode() + b"\0")
        while True:
            told = self._receive()
            if told.get("id") == self._number:
                break
            self._note(told)
        if "error" in told:
            raise BrowserError(f"{method}: {told['error']}")
        result: dict[str, Any] = told["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            with suppress(BlockingIOError):
                piece = os.read(self._in, 1 << 20)
                if not piece:
                    raise BrowserError("the browser ended")
                self._buffer += piece
                continue
            if time.monotonic() > end:
                raise BrowserError("the browser does not answer")
            time.sleep(0.002)
        line, _, self._buffer = self._buffer.partition(b"\0")
        told: dict[str, Any] = json.loads(line)
        return told

    def _note(self, told: dict[str, Any]) -> None:
        values = told.get("params", {})
        if told.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(values["exceptionDetails"].get("exception", values)))
        if told.get("method") == "Log.entryAdded" and values["entry"]["level"] != "verbose":
            self.problems.append(values["entry"]["text"])
        if told.get("method") == "Runtime.consoleAPICalled":
            self.problems.append(f"console.{values['type']}")


Load = Callable[..., Browser]  # a tree, then hash and width, to its page


@contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """A browser with its profile in ``folder``; skips where none is installed."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(MISSING)
    browser = Browser(program, folder)
    try:
        browser.start()
        yield browser
    finally:
        browser.close()
