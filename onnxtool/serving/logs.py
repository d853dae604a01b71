"""Structured logs: one JSON object a line, on stderr."""

from __future__ import annotations

import json
import sys
import time
from typing import IO, Any


class Log:
    """Writes events. A reader that has gone, or a full disk, does not end the server."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream

    def event(self, name: str, level: str = "info", **fields: Any) -> None:
        """One line: time (UTC), level, event and its fields. Texts of strangers stay harmless: JSON escapes them."""
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        line = json.dumps({"time": stamp, "level": level, "event": name, **fields}, default=str)
        try:
            stream = self._stream or sys.stderr
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError):
            pass
