"""Structured logs: one JSON object a line, on stderr."""

from __future__ import annotations

import atexit
import io
import json
import queue
import sys
import threading
import time
from typing import IO, Any

_MOST_LINES = 10_000  # that wait for a slow reader; more are dropped and counted
_FLUSH_SECONDS = 1.0  # at the end, for a reader that does not read


class Log:
    """Writes events. A reader that stalls or has gone, or a full disk, neither ends nor delays the server."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream
        self._lines = queue.Queue[str | None](_MOST_LINES)
        self._dropped = 0
        self._writer: threading.Thread | None = None

    def event(self, name: str, level: str = "info", **fields: Any) -> None:
        """One line: time (UTC), level, event and its fields. Texts of strangers stay harmless: JSON escapes them."""
        stream = self._stream or sys.stderr
        if isinstance(stream, io.StringIO):  # cannot stall
            stream.write(_line(name, level, fields))
            return
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, args=(stream,), name="log", daemon=True)
            self._writer.start()
            atexit.register(self.close)
        try:
            if self._dropped:
                self._lines.put_nowait(_line("log_dropped", "warning", {"lines": self._dropped}))
                self._dropped = 0
            self._lines.put_nowait(_line(name, level, fields))
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Wait a moment for what is not written yet."""
        if self._writer is None or not self._writer.is_alive():
            return
        try:
            self._lines.put(None, timeout=_FLUSH_SECONDS)
        except queue.Full:
            return
        self._writer.join(_FLUSH_SECONDS)

    def _write(self, stream: IO[str]) -> None:
        while (line := self._lines.get()) is not None:
            try:
                stream.write(line)
                if self._lines.empty():
                    stream.flush()
            except (OSError, ValueError):
                pass


def _line(name: str, level: str, fields: dict[str, Any]) -> str:
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    return json.dumps({"time": stamp, "level": level, "event": name, **fields}, default=str) + "\n"
