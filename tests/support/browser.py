"""A page in headless chromium, driven through its debugging pipe: no further package is needed."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")
DESCRIPTOR_IN, DESCRIPTOR_OUT = 3, 4
"""The descriptors that chromium reads commands from and writes answers to."""


class Browser:
    """One tab. Collects what the page complains of and what it asks the network for."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = os.fdopen(answers, "rb", buffering=0)
        self._waiting = b""
        self._number = 0
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, page: Path, *, width: int, dark: bool = False, height: int = 900) -> None:
        """Load a file in a window of this width."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._loaded = False
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not self._loaded:
            self._notice(self._read())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def move_pointer(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, out: Path) -> None:
        """The whole page, also what is below the window."""
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        out.write_bytes(base64.b64decode(picture["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._notice(answer)

    def close(self) -> None:
        self._answers.close()

    def _notice(self, event: dict[str, Any]) -> None:
        name, data = event.get("method"), event.get("params", {})
        if name == "Page.loadEventFired":
            self._loaded = True
        elif name == "Runtime.exceptionThrown":
            self.complaints.append(data["exceptionDetails"]["exception"].get("description", "exception"))
        elif name == "Runtime.consoleAPICalled":
            self.complaints.append(str([value.get("value") for value in data["args"]]))
        elif name == "Log.entryAdded":
            self.complaints.append(data["entry"]["text"])
        elif name == "Network.requestWillBeSent":
            self.requests.append(data["request"]["url"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._waiting:
            more = self._answers.read(1 << 16)
            assert more, "chromium has ended"
            self._waiting += more
        message, _, self._waiting = self._waiting.partition(b"\0")
        return json.loads(message)


@contextlib.contextmanager
def opened(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile in the folder `profile`, ended at the end."""
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert program is not None, "chromium is missing: apt-get install chromium"
    commands_read, commands_write = os.pipe()
    answers_read, answers_write = os.pipe()
    # The shell gives the two descriptors the numbers that chromium expects.
    redirected = f'exec "$@" {DESCRIPTOR_IN}<&{commands_read} {DESCRIPTOR_OUT}>&{answers_write}'
    process = subprocess.Popen(
        ["bash", "-c", redirected, "chromium", program, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(commands_read, answers_write),
        stderr=subprocess.DEVNULL,
    )
    os.close(commands_read)
    os.close(answers_write)
    browser = Browser(commands_write, answers_read)
    try:
        yield browser
    finally:
        process.terminate()
        process.wait(timeout=30)
        os.close(commands_write)
        browser.close()
