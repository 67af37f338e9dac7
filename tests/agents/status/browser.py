"""A real browser without a window: Chromium, spoken to over a pipe in its own protocol."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, Self

#: Least contrast of any text with what lies behind it, as WCAG 2 measures it.
CONTRAST = """
(() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3)
      .map(each => each / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = element => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const found = [...document.querySelectorAll('main *')]
    .filter(each => [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
    .filter(each => each.tagName !== 'title' && each.tagName !== 'TITLE' && each.tagName !== 'OPTION')
    .map(each => {
      const style = getComputedStyle(each);
      const [a, b] = [light(each.ownerSVGElement ? style.fill : style.color), light(behind(each))];
      return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    });
  return Math.min(...found);
})()
"""
#: What a package of the distribution calls it.
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--mute-audio",
    "--remote-debugging-pipe",
)


def find() -> str | None:
    """Return the path of a browser, None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of one browser; a context.

    ``binary``: the browser.
    ``profile``: an empty directory.
    """

    def __init__(self, binary: str, profile: Path) -> None:
        self._binary = binary
        self._profile = profile
        self._last = 0
        self._events: list[dict[str, Any]] = []
        #: What the page has complained of: errors of scripts, refusals by its policy, failed requests.
        self.complaints: list[str] = []
        #: Addresses requested.
        self.asked: list[str] = []

    def __enter__(self) -> Self:
        """Start it with an empty page."""
        # The browser reads commands from its descriptor 3 and writes to 4.
        theirs_in, self._to = os.pipe()
        from_theirs, theirs_out = os.pipe()
        self._from = os.fdopen(from_theirs, "rb")

        def place() -> None:
            reading, writing = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self._process = subprocess.Popen(
            [self._binary, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=place,  # noqa: PLW1509 - dup2 takes no lock
        )
        os.close(theirs_in)
        os.close(theirs_out)
        page = next(each for each in self._ask("Target.getTargets")["targetInfos"] if each["type"] == "page")
        attached = self._ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        self._from.close()

    def window(self, width: int, height: int, *, dark: bool = False, mobile: bool = False) -> None:
        """Set the size of the window, CSS pixels, and which colours the reader prefers."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address: str) -> None:
        """Go to an address and return when its page has loaded."""
        self._events.clear()
        self.command("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._read()

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; promises are waited for."""
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen as PNG."""
        made = self.command("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(made["data"]))

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Do something with the page and return the answer."""
        return self._ask(method, self._session, **parameters)

    def _ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])

    def _read(self) -> dict[str, Any]:
        """Read one message; note it if it is an event."""
        text = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            assert byte, "the browser ended"
            text += byte
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self._note(message)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        told = event["params"]
        if event["method"] == "Log.entryAdded":
            self.complaints.append(told["entry"]["text"])
        elif event["method"] == "Runtime.exceptionThrown":
            self.complaints.append(told["exceptionDetails"]["text"])
        elif event["method"] == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"])
