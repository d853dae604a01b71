"""JSON of large tensors, by orjson where it is installed (extra `serve`): read 4 times and written 20 times faster."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any


def loads(text: bytes) -> Any:
    """What a JSON text holds; also what only the standard library takes, such as whole numbers beyond 64 bits.

    Raises:
        ValueError: not JSON, which has neither NaN nor infinities; or a number that would become infinite, one of two
            surrogates alone, or a name that stands twice in an object: readers differ in which of the two they take.
        RecursionError: nested too deeply.
    """
    with suppress(ImportError, ValueError, TypeError):  # the last one of what is nested too deeply to be written
        import orjson

        found = orjson.loads(text)
        # Colons stand behind names and within texts: a name that is lost has taken one away. Escapes would add some.
        if b"\\u003" not in text and orjson.dumps(found).count(b":") == text.count(b":"):
            return found
    decoded = text.decode(json.detect_encoding(text))  # json.loads itself would let halves of characters through
    found = json.loads(decoded, parse_float=_finite, parse_constant=_refuse, object_pairs_hook=_object)
    if "\\u" in decoded:
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])[1:-1]
            raise ValueError(f"{half} is half of a character: it needs the other surrogate beside it") from error
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"the name {twice[:100]!r} stands twice in an object")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is too large for a number")
    return number


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")


def dumps(value: Any) -> bytes:
    """JSON in UTF-8, without blanks.

    Args:
        value: whose floats are finite: orjson would write null for others.
    """
    with suppress(ImportError, TypeError):
        import orjson

        return orjson.dumps(value)
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
