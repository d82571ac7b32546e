"""Chromium under test: its WebDriver, spoken to by HTTP and JSON."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness.ports import free_addresses

OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]


class Browser:
    """A session of the driver at `base`."""

    def __init__(self, base: str, *options: str) -> None:
        self._base = base
        chrome = {"args": [*OPTIONS, *options]}
        capabilities = {"alwaysMatch": {"goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL"}}}
        self._session = self._ask("POST", "/session", {"capabilities": capabilities})["sessionId"]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The value of a command of this session."""
        return self._ask(method, f"/session/{self._session}{path}", body)

    def open(self, url: str) -> None:
        self.ask("POST", "/url", {"url": url})

    def run(self, script: str) -> Any:
        """The value that the body of a function returns."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": []})

    def resize(self, width: int, height: int) -> None:
        self.ask("POST", "/window/rect", {"width": width, "height": height})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.ask("GET", "/screenshot")))

    def log(self) -> list[str]:
        """The messages of the console since the last call."""
        return [entry["message"] for entry in self.ask("POST", "/se/log", {"type": "browser"})]

    def close(self) -> None:
        self._ask("DELETE", f"/session/{self._session}")


@contextmanager
def browsing(driver: str, *options: str) -> Iterator[Browser]:
    """A browser, until the block ends. Raises FileNotFoundError without the driver."""
    port = next(iter(free_addresses())).rpartition(":")[2]
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        while "started successfully" not in (line := process.stdout.readline()):
            assert line, "the driver has ended"
        browser = Browser(f"http://127.0.0.1:{port}", *options)
        try:
            yield browser
        finally:
            browser.close()
    finally:
        process.terminate()
        process.communicate()


def wait_until(is_done: Any, timeout_s: float = 20.0) -> None:
    """Wait for what the browser does by itself."""
    deadline = time.monotonic() + timeout_s
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.05)
