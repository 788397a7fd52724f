"""Chromium without a window, for pages that reports consist of.

It is spoken to over a pipe, by the DevTools protocol: one browser serves all pages of a test run,
at any width, light or dark, on a screen or on paper, with keys that are really pressed.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="needs Chromium (Debian package chromium)"
)

Json = Any  # one JSON value

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
_PATIENCE = 120  # seconds until what has to come is missing
_KEYS = {  # code of what is no letter
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, "Tab": 9,
    "Home": 36, "End": 35, "Escape": 27, " ": 32,
}  # fmt: skip
_TEXT = {"Enter": "\r", " ": " "}


class Tab:
    """One page, opened at a size.

    Attributes:
        console: what the page said there, and what it threw.
    """

    def __init__(self, browser: Browser, size: tuple[int, int], *, dark: bool) -> None:
        self.console: list[str] = []
        self._browser = browser
        self._context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call(
            "Target.createTarget", url="about:blank", browserContextId=self._context
        )
        self._session = browser.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )["sessionId"]
        browser.tabs[self._session] = self
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self.resize(size)
        self.paint(dark=dark)

    def close(self) -> None:
        """Forget the page and all that it kept."""
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)

    def go(self, address: str) -> None:
        """Open an address, and wait until the page has all it needs."""
        self._call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def resize(self, size: tuple[int, int]) -> None:
        """Give the page so many CSS pixels."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=size[0], height=size[1], deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def paint(self, *, dark: bool = False, paper: bool = False) -> None:
        """Show the page as a reader with these wishes gets it."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media="print" if paper else "", features=[scheme])

    def run(self, script: str) -> Json:
        """The value of an expression in the page, after what it promises."""
        done = self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        failed = done.get("exceptionDetails")
        assert failed is None, failed.get("exception", {}).get("description", failed)
        return done["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + _PATIENCE
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < deadline, condition
            time.sleep(0.01)

    @property
    def document(self) -> str:
        """The document as it is now."""
        return str(self.run("document.documentElement.outerHTML"))

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, on what has the focus."""
        for key in keys:
            event = {
                "key": key,
                "windowsVirtualKeyCode": _KEYS.get(key, ord(key[0].upper())),
            }
            text = _TEXT.get(key, key if len(key) == 1 else "")
            self._call("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
            self._call("Input.dispatchKeyEvent", type="keyUp", **event)

    def mouse(self, kind: str, x: float, y: float, **more: Json) -> None:
        """One event: ``mousePressed``, ``mouseMoved``, ``mouseReleased``, ``mouseWheel``."""
        held = {"button": "left", "clickCount": 1} if kind != "mouseWheel" else {}
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held, **more)

    def click(self, x: float, y: float) -> None:
        """Press and release the mouse at a place of the window."""
        self.mouse("mousePressed", x, y)
        self.mouse("mouseReleased", x, y)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Take a picture of the window, or of the whole page."""
        wanted = {}
        if whole:
            size = self._call("Page.getLayoutMetrics")["cssContentSize"]
            wanted = {"clip": {**size, "scale": 1}, "captureBeyondViewport": True}
        made = self._call("Page.captureScreenshot", format="png", **wanted)
        path.write_bytes(base64.b64decode(made["data"]))

    def printed(self) -> bytes:
        """The page as a PDF, on paper of the printer's usual size."""
        return base64.b64decode(self._call("Page.printToPDF", printBackground=True)["data"])

    def _call(self, method: str, **parameters: Json) -> Json:
        return self._browser.call(method, self._session, **parameters)


class Browser:
    """A running Chromium."""

    def __init__(self, profile: Path) -> None:
        assert BROWSER is not None
        self.tabs: dict[str, Tab] = {}
        self._number = 0
        self._rest = b""
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # The browser reads 3 and writes 4; bash puts them there, which may be in use here.
        redirected = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        places = {"HOME": str(profile), "XDG_CONFIG_HOME": str(profile)}
        self._process = subprocess.Popen(
            ["bash", "-c", redirected, "bash", BROWSER, *_FLAGS, f"--user-data-dir={profile}"],
            env={**os.environ, **places},
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)

    def close(self) -> None:
        """End the browser."""
        self.call("Browser.close")
        self._process.wait(_PATIENCE)
        os.close(self._in)
        os.close(self._out)

    @contextmanager
    def open(
        self,
        page: Path,
        *,
        size: tuple[int, int] = (1500, 1900),
        dark: bool = False,
        query: str = "",
        fragment: str = "",
    ) -> Iterator[Tab]:
        """Open a page, whose script has run when this returns.

        Args:
            page: the file.
            size: of the window's inside, in CSS pixels.
            dark: whether the reader likes pages dark.
            query: what follows the ``?`` of the address.
            fragment: what follows its ``#``.
        """
        tab = Tab(self, size, dark=dark)
        address = f"{page.as_uri()}?{query}" if query else page.as_uri()
        tab.go(f"{address}#{fragment}" if fragment else address)
        try:
            yield tab
        finally:
            tab.close()

    def call(self, method: str, session: str = "", **parameters: Json) -> Json:
        """Ask the browser for something, and wait for its answer."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if session:
            asked["sessionId"] = session
        rest = json.dumps(asked).encode() + b"\0"
        while rest:
            rest = rest[os.write(self._out, rest) :]
        while True:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self._heard(message)

    def _message(self) -> Json:
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 20)
            assert part, "the browser ended"
            self._rest += part
        first, _, self._rest = self._rest.partition(b"\0")
        return json.loads(first)

    def _heard(self, message: Json) -> None:
        tab = self.tabs.get(message.get("sessionId", ""))
        if tab is None:
            return
        told = message["params"]
        if message["method"] == "Runtime.consoleAPICalled":
            tab.console.append(_words(told["args"]))
        elif message["method"] == "Runtime.exceptionThrown":
            tab.console.append(json.dumps(told["exceptionDetails"]))
        elif message["method"] == "Log.entryAdded":
            tab.console.append(told["entry"]["text"])


def _words(values: Sequence[Json]) -> str:
    return " ".join(str(each.get("value", each.get("description"))) for each in values)
