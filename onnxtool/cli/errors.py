"""How an error is said: one line to people, and an object to machines."""

from __future__ import annotations

import json
import sys
from contextlib import suppress

from onnxtool.cli.render.text import clean


def print_error(message: str, code: int, *, as_json: bool) -> None:
    """Print `error: ...` to stderr and, where stdout carries JSON, an error object there."""
    line = clean(" ".join(message.split()), limit=2000)
    if as_json:
        with suppress(OSError):
            print(json.dumps({"schema": "onnxtool/error/1", "ok": False, "error": line, "exit_code": code}), flush=True)
    with suppress(OSError):
        print(f"error: {line}", file=sys.stderr, flush=True)
