"""Netron's page for one model, served to this machine alone.

Netron's own server gives out every file of the model's folder, and its page calls home. Here the page gets the model's
files and nothing else, and a policy with which the browser lets it reach no other place.
"""

from __future__ import annotations

import os
import shutil
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from urllib.parse import quote, unquote, urlsplit

from onnxtool.errors import InputError, MissingExtraError, UsageError
from onnxtool.model.file import ModelFile

_POLICY = (
    "default-src 'self'; connect-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; worker-src 'self' blob:; frame-src 'none'; form-action 'none'; base-uri 'none'"
)
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".svg": "image/svg+xml",
}


def view(model: str | os.PathLike[str], port: int = 0) -> NetronPage:
    """Serve Netron's page of a model to this machine: `with onnxtool.view("m.onnx") as shown: print(shown.address)`.

    Arguments and errors as of `NetronPage`.
    """
    return NetronPage(Path(model), port)


class NetronPage:
    """A server in a thread, for as long as the block lasts.

    Attributes:
        address: what a browser opens.
    """

    def __init__(self, model: Path, port: int = 0) -> None:
        """Look at the model and start.

        Args:
            model: an .onnx file.
            port: of localhost; 0 takes one that is free.

        Raises:
            MissingExtraError: Netron is not installed.
            InputError, UnsafeError, ResourceError: as `io.read_proto`.
            UsageError: the port is taken.
        """
        found = find_spec("netron")
        if found is None or not found.submodule_search_locations:
            raise MissingExtraError(str(model), "Netron", "view")
        file = ModelFile(model)
        file.verify()
        shown = {f.relative_to(model.parent).as_posix(): f for f in (model, *file.external_files)}
        page = Path(next(iter(found.submodule_search_locations)))
        if not (page / "index.html").is_file():
            raise InputError(f"{page}: this Netron has no index.html; install another version of it.")
        handler = partial(_Handler, page, model.name, shown)
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        except OSError as error:
            raise UsageError(f"--port {port}: cannot be used ({error.strerror}).") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.address = f"http://localhost:{self._server.server_address[1]}/"

    def __enter__(self) -> NetronPage:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait(self) -> None:
        """Until the server ends, which Ctrl-C does."""
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, page: Path, name: str, files: dict[str, Path], *arguments: object) -> None:
        self.page, self.name, self.files = page, name, files
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """One file of the page, or of the model."""
        path = unquote(urlsplit(self.path).path)
        # A page of another place whose name leads here (DNS rebinding) has that name in its requests.
        if urlsplit(f"//{self.headers.get('Host', '')}").hostname not in ("localhost", "127.0.0.1"):
            self.send_error(403)
        elif path.startswith("/data/"):
            self._send(self.files.get(path.removeprefix("/data/")), "application/octet-stream")
        elif path in ("/", "/index.html"):
            self._index()
        else:
            name = path.removeprefix("/")
            found = self.page / name
            plain = "/" not in name and not name.startswith(".") and found.suffix in _TYPES
            self._send(found if plain else None, _TYPES.get(found.suffix, ""))

    def _index(self) -> None:
        place = quote(self.name)
        text = (self.page / "index.html").read_text(encoding="utf-8")
        # Of several versions the page takes the first; with 0.0.0 it counts as not released, and has nothing to report.
        told = (
            f'<meta name="type" content="Python">\n<meta name="file" content="/data/{place}">\n'
            '<meta name="version" content="0.0.0">\n<meta name="version"'
        )
        body = text.replace('<meta name="version"', told, 1).encode()
        self._head(_TYPES[".html"], len(body))
        self.wfile.write(body)

    def _send(self, file: Path | None, kind: str) -> None:
        if file is None or not file.is_file():
            self.send_error(404)
            return
        with open(file, "rb") as content:
            self._head(kind, file.stat().st_size)
            shutil.copyfileobj(content, self.wfile)

    def _head(self, kind: str, length: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Set-Cookie", "consent=0; SameSite=Strict")  # nothing is sent, so that nothing is to be asked
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: what is asked for is not worth a line."""
