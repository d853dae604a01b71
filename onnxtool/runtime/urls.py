"""Arguments that are URLs."""

from __future__ import annotations

import os
from pathlib import Path


def url_of(path: str | os.PathLike[str]) -> str | None:
    """The URL that an argument is, also after it has been made a Path, which merges slashes; None when it is a path."""
    text = os.fspath(path).replace(os.sep, "/") if isinstance(path, Path) else os.fspath(path)
    for scheme in ("http", "https"):
        if text.startswith(f"{scheme}:/"):
            return f"{scheme}://{text.removeprefix(f'{scheme}:').lstrip('/')}"
    return None
