"""A headless Chromium driven over a pipe by the DevTools protocol: real mouse and keys, and all its complaints."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--hide-scrollbars",
        "--force-color-profile=srgb",
    ),
)
_LOUD = {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Network.requestWillBeSent"}


class Chromium:
    """One browser with one page. ``said``: what the console got, ``asked``: the URLs that were requested."""

    def __init__(self, process: "subprocess.Popen[bytes]", reading: int, writing: int) -> None:
        self._process, self._reading, self._writing = process, reading, writing
        self._rest, self._number, self._session = b"", 0, ""
        self.console_messages: list[str] = []
        self.requested_urls: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol and its answer; events that come before it are noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self, timeout: float = 60) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reading], [], [], timeout)
            data = os.read(self._reading, 1 << 20) if ready else b""
            assert data, "Chromium does not answer"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requested_urls.append(parameters["request"]["url"])
        elif method in _LOUD:
            self.console_messages.append(json.dumps(parameters)[:600])
        return message

    def open(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False) -> float:
        """Load a file until it stands and is painted; seconds."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        began, self._loaded = time.perf_counter(), False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._next()
        self.call("Page.captureScreenshot", format="jpeg", quality=10)
        return time.perf_counter() - began

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def point(self, x: float, y: float) -> None:
        """Move the mouse there, in the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        """A key by its name."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self, path: Path) -> None:
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        screenshot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(screenshot["data"]))

    def printed(self) -> bytes:
        """The page on paper, PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])


@contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    """A browser with a profile of its own in ``folder``, gone afterwards with all its children."""
    assert PROGRAM is not None
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    # It reads from descriptor 3 and writes to 4; ours must not be these while they are put there.
    high_in, high_out = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (theirs_in, theirs_out))

    def put_in_place() -> None:
        os.dup2(high_in, 3)
        os.dup2(high_out, 4)

    log = (folder / "chromium.log").open("wb")
    process = subprocess.Popen(
        [PROGRAM, *_FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=(3, 4),
        preexec_fn=put_in_place,
    )  # fmt: skip
    for end in (theirs_in, theirs_out, high_in, high_out):
        os.close(end)
    try:
        yield Chromium(process, ours_in, ours_out)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for end in (ours_in, ours_out):
            os.close(end)
        log.close()
