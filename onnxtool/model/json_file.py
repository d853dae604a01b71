"""Files of JSON that a user or another tool wrote: read within limits."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError, reading

_MOST_BYTES = 64_000_000


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InputError: no such file, too large, not JSON or no object.
    """
    path = Path(path)
    try:
        with reading(path):
            if path.stat().st_size > _MOST_BYTES:
                raise InputError(f"{path}: larger than 64 MB, which no configuration is.")
            found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error}).") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: must hold a JSON object.")
    return found
