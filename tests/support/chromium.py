"""A headless Chromium, driven through its DevTools pipe: no driver program and no package between it and the test."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = """
    --headless=new --remote-debugging-pipe --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars
    --disable-background-networking --disable-component-update --disable-default-apps --disable-extensions
    --disable-sync --metrics-recording-only --no-default-browser-check --no-first-run --no-pings
    --force-color-profile=srgb
"""


class Browser:
    """One page of a browser. ``requests`` are the addresses that it asked for, ``console`` what it complained of."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out, self._in, self._rest, self._id = to_browser, from_browser, b"", 0
        self.requests: list[str] = []
        self.console: list[str] = []
        self._loaded = 0
        target = self._call("Target.createTarget", {"url": "about:blank"}, session=None)["targetId"]
        attach = {"targetId": target, "flatten": True}
        self._session = self._call("Target.attachToTarget", attach, session=None)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def open(self, path: Path, fragment: str = "") -> None:
        self.visit("about:blank")  # or an address with another fragment would only scroll
        self.requests.clear()
        self.console.clear()
        self.visit(path.as_uri() + fragment)

    def visit(self, address: str) -> None:
        self._loaded = 0
        self._call("Page.navigate", {"url": address})
        deadline = time.monotonic() + 30
        while not self._loaded:
            assert time.monotonic() < deadline, "the page did not load"
            self._event(0.5)
        self.js("1")

    def js(self, expression: str) -> Any:
        given = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self._call("Runtime.evaluate", given)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screen(self, width: int, height: int, *, dark: bool = False, mobile: bool = False) -> None:
        """Set the window's size and the colour scheme."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self._call("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", {"features": [scheme]})

    def key(self, key: str, text: str = "", *, shift: bool = False) -> None:
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        event = {"key": key, "code": key, "text": text, "windowsVirtualKeyCode": codes.get(key, 0)}
        event |= {"modifiers": 8} if shift else {}
        self._call("Input.dispatchKeyEvent", {"type": "keyDown", **event})
        self._call("Input.dispatchKeyEvent", {"type": "keyUp", "key": key})

    def pdf(self) -> bytes:
        return base64.b64decode(self._call("Page.printToPDF", {"printBackground": True})["data"])

    def _call(self, method: str, params: dict[str, Any] | None = None, session: str | None = "own") -> dict[str, Any]:
        self._id += 1
        wanted = self._id
        message: dict[str, Any] = {"id": wanted, "method": method, "params": params or {}}
        if session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            answer = self._event(1.0)
            if answer is not None and answer.get("id") == wanted:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
        raise AssertionError(f"{method}: no answer")

    def _event(self, patience: float) -> dict[str, Any] | None:
        """Read one message; events are noted, everything is returned."""
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], patience)[0]:
                return None
            data = os.read(self._in, 1 << 20)
            assert data, "the browser ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        params = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded += 1
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.console.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.console.append(str(params["args"]))
            case "Log.entryAdded":
                self.console.append(params["entry"]["text"])
        return message


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    assert program, "chromium is not installed: scripts/setup installs it"
    read, to_browser = os.pipe()
    from_browser, write = os.pipe()
    read, write = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (read, write))

    def place() -> None:
        os.dup2(read, 3)
        os.dup2(write, 4)

    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [program, *FLAGS.split(), f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(3, 4),
            preexec_fn=place,  # noqa: PLW1509 - the pipe has to be descriptors 3 and 4
            env={**os.environ, "HOME": str(folder), "DBUS_SESSION_BUS_ADDRESS": "disabled:"},
        )
    os.close(read)
    os.close(write)
    try:
        yield Browser(to_browser, from_browser)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
