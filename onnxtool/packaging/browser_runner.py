"""A packaged page in a real, headless browser, as a Runner."""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.errors import InputError, ResourceError
from onnxtool.model.spec import TensorSpec
from onnxtool.packaging.kind import TEMPLATES
from onnxtool.packaging.server_process import end_process
from onnxtool.runtime.protocol_v2.tensors import decode_response, encode_request, load_json

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PATIENCE = 120.0
_MAX_ANSWER = 1 << 30
_TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm"}


def find_browser(given: Path | None) -> Path | None:
    """The browser that was named, or one by its usual names."""
    if given is not None:
        return given
    return next((Path(found) for name in _NAMES if (found := shutil.which(name))), None)


class _Talk:
    """What the page and the runner tell each other."""

    def __init__(self) -> None:
        self.asked: queue.Queue[tuple[bytes, int] | None] = queue.Queue()
        self.told: queue.Queue[tuple[str, bytes, int]] = queue.Queue()


class _PageHandler(SimpleHTTPRequestHandler):
    """The package's files, the page that drives them, and the talk; on localhost, for one browser."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | _TYPES

    def __init__(self, *arguments: Any, talk: _Talk, **options: Any) -> None:
        self._talk = talk
        super().__init__(*arguments, **options)

    def do_GET(self) -> None:
        if self.path == "/_prove.html":
            self._answer((TEMPLATES / "web" / "prove.html").read_bytes(), "text/html")
        elif self.path == "/_next":
            asked = self._talk.asked.get()
            if asked is None:
                self.send_response(204)
                self.end_headers()
            else:
                self._answer(asked[0], "application/octet-stream", asked[1])
        else:
            super().do_GET()

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        if size > _MAX_ANSWER:
            self._talk.told.put(("/_error", b"an answer of more than 1 GB", 0))
            self.close_connection = True
            return
        body = self.rfile.read(size)
        self._talk.told.put((self.path, body, int(self.headers.get("x-header-length") or 0)))
        self._answer(b"", "text/plain")

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def _answer(self, body: bytes, kind: str, header_length: int = 0) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-header-length", str(header_length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing: the report says what happened."""


class BrowserRunner:
    """Runs a folder's model.js in a headless browser."""

    def __init__(
        self, browser: Path, folder: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> None:
        """Start the browser and wait until the model is loaded.

        Args:
            browser: Chromium or Chrome.
            folder: with model.js.
            inputs, outputs: of the model.

        Raises:
            InputError: the page says why it cannot load the model.
            ResourceError: it says nothing for two minutes, or the browser does not start.
        """
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._talk = _Talk()
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), partial(_PageHandler, directory=str(folder), talk=self._talk)
        )
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._profile = tempfile.TemporaryDirectory(prefix="onnxtool-", ignore_cleanup_errors=True)
        command = [str(browser), "--headless=new", "--disable-gpu", "--no-first-run", "--disable-extensions"]
        command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        command += [f"--user-data-dir={self._profile.name}", "--remote-debugging-port=0"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--no-sandbox")  # Chromium refuses to start as root with it
        address = f"http://127.0.0.1:{self._server.server_address[1]}/_prove.html"
        try:
            self._process = subprocess.Popen([*command, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except OSError as error:
            self._end_server()
            raise ResourceError(f"{browser}: cannot be started ({error.strerror}).") from error
        try:
            self.facts = load_json(self._wait("/_ready")[0])
        except BaseException:
            self.close()
            raise

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One run in the browser.

        Raises:
            InputError: the page says why it cannot.
        """
        parts, length = encode_request(feeds)
        self._talk.asked.put((b"".join(parts), length))
        return decode_response(*self._wait("/_result"))

    def close(self) -> None:
        """End the browser."""
        self._talk.asked.put(None)
        end_process(self._process)
        self._end_server()

    def _end_server(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._profile.cleanup()

    def _wait(self, wanted: str) -> tuple[bytes, int]:
        try:
            path, body, length = self._talk.told.get(timeout=_PATIENCE)
        except queue.Empty:
            raise ResourceError(f"the browser said nothing for {_PATIENCE:.0f} s.") from None
        if path != wanted:
            raise InputError(f"in the browser: {body[:500].decode('utf-8', 'replace')}")
        return body, length
