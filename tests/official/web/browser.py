"""A headless Chromium, which is told what to do over two pipes (the Chrome DevTools Protocol)."""

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from official.serving.loaded_model import LoadedModel

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")

_HEIGHT = "document.documentElement.scrollHeight"


def find() -> str | None:
    """The program; None = there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """A Chromium with one page.

    Args:
      program: the program.
      folder: a folder for its files.
    """

    def __init__(self, program: str, folder: Path):
        inner_read, self._write = os.pipe()
        self._read, inner_write = os.pipe()
        options = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={folder}",
                   "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-quic",
                   "--disable-background-networking", "--disable-component-update",
                   "--disable-sync"]  # fmt: skip
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # Chromium has none for root
        # It reads what to do from descriptor 3, and answers on 4.
        shell = f'exec "$0" "$@" 3<&{inner_read} 4>&{inner_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, program, *options, "about:blank"],
            pass_fds=(inner_read, inner_write), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(inner_read)
        os.close(inner_write)
        self._numbers = itertools.count(1)
        self._received = b""
        self._events: list[str | None] = []  # since the last one that was waited for
        self._page = None
        target = self._do("Target.createTarget", url="about:blank")["targetId"]
        self._page = self._do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._do("Page.enable")

    def close(self) -> None:
        """Ends the program."""
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def open(self, address: str) -> None:
        """Opens an address and waits until the page is there."""
        self._do("Page.navigate", url=address)
        self.wait_for_page()

    def run(self, script: str) -> Any:
        """Returns the value of a line of JavaScript in the page."""
        answer = self._do("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def submit(self, button: int = 0, **fields: str) -> None:
        """Fills fields of the form, presses a button, and waits for the next page."""
        for name, text in fields.items():
            self.run(f"document.forms[0][{json.dumps(name)}].value = {json.dumps(text)}")
        self.run(f"document.querySelectorAll('button')[{button}].click()")
        self.wait_for_page()

    def show(self, width: int, dark: bool, height: int = 4000) -> None:
        """Shows the page in a color scheme, in a window as high as the page, but for `height`."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._do("Emulation.setEmulatedMedia", features=[scheme])
        # A page is not less high than its window, so it is measured in a window of one pixel.
        for of_window in (lambda: 1, lambda: min(self.run(_HEIGHT), height)):
            self._do("Emulation.setDeviceMetricsOverride", width=width, height=of_window(),
                     deviceScaleFactor=1, mobile=False)  # fmt: skip

    def screenshot(self) -> bytes:
        """Returns a PNG of the page."""
        return base64.b64decode(self._do("Page.captureScreenshot", format="png")["data"])

    def press(self, key: str) -> None:
        """Presses Tab or Enter."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r")}[key]
        event = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self._do("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        self._do("Input.dispatchKeyEvent", type="keyUp", **event)

    def write(self, text: str) -> None:
        """Writes a text where the focus is."""
        self._do("Input.insertText", text=text)

    def _do(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._page:
            message["sessionId"] = self._page
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != number:
            self._events.append(answer.get("method"))
        assert "error" not in answer, (message, answer)
        return answer["result"]

    def wait_for_page(self) -> None:
        """Waits until the next page is there."""
        while "Page.loadEventFired" not in self._events:
            self._events.append(self._message().get("method"))
        self._events.clear()

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            part = os.read(self._read, 1 << 16)
            assert part, "Chromium ended"
            self._received += part
        message, _, self._received = self._received.partition(b"\0")
        return json.loads(message)


@contextlib.contextmanager
def of_page(models: Mapping[str, LoadedModel], folder: Path) -> Iterator[tuple[Browser, str]]:
    """Gives a browser and the address of the page of models; `folder` is the browser's."""
    from official.web import server  # needs Flask

    with server.listen(0) as listener:
        running = server.make_server(server.make_app(models), listener)
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        browser = Browser(find() or "", folder)
        try:
            yield browser, f"http://{server.HOST}:{listener.getsockname()[1]}"
        finally:
            browser.close()
            running.shutdown()
            thread.join()
