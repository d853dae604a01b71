"""What torch.export decides for good while it follows a module: comparisons of sizes, each with its line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_TORCH = str(Path(torch.__file__).parent)
_LARGEST = 1100
_MOST = 200


@dataclass(frozen=True)
class Guard:
    """A comparison of sizes that the exporter took for decided.

    Attributes:
        text: the comparison, in torch's symbols.
        where: "net.py line 12"; "" when no line of the user's is to blame.
        sizes: the nearest sizes at which it comes out the other way, and those beside them at which it does not.
    """

    text: str
    where: str
    sizes: tuple[int, ...]


@contextmanager
def recorded_guards() -> Iterator[list[Guard]]:
    """Inside the block, every comparison of sizes that torch.export decides is noted.

    torch keeps no list of them in the program: ShapeEnv reports each to its log, which is where they are read. Without
    that method (another torch) the list stays empty.
    """
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    found: list[Guard] = []
    plain = getattr(ShapeEnv, "_log_guard", None)
    if plain is None:
        yield found
        return

    def note(self: Any, prefix: str, guard: Any, *rest: Any, **named: Any) -> Any:
        if len(found) < _MOST and all(str(guard) != known.text for known in found):
            found.append(Guard(str(guard), _place(), _flips(self, guard)))
        return plain(self, prefix, guard, *rest, **named)

    ShapeEnv._log_guard = note
    try:
        yield found
    finally:
        ShapeEnv._log_guard = plain


def _place() -> str:
    for frame in reversed(traceback.extract_stack()):
        name = frame.filename
        if not name.startswith((_TORCH, "<")) and "/onnxtool/" not in name and "/lib/python3" not in name:
            return f"{Path(name).name} line {frame.lineno}"
        if "/transformers/" in name:
            return f"{Path(name).name} line {frame.lineno}"
    return ""


def _flips(env: Any, guard: Any) -> tuple[int, ...]:
    """Sizes around the places where a comparison changes its outcome."""
    try:
        symbols = sorted(guard.free_symbols, key=str)
        hints = {s: int(env.backed_var_to_val[s]) for s in symbols if s in getattr(env, "backed_var_to_val", {})}
        if not hints:
            hints = {s: int(env.var_to_val[s]) for s in symbols if s in getattr(env, "var_to_val", {})}
    except Exception:  # what torch holds here differs from version to version
        return ()
    sizes: list[int] = []
    for symbol in symbols[:3]:
        if symbol not in hints:
            continue
        others = guard.subs({s: v for s, v in hints.items() if s != symbol})
        sizes += _changes(others, symbol, hints[symbol])
    return tuple(dict.fromkeys(sizes))


def _changes(expression: Any, symbol: Any, hint: int) -> list[int]:
    found: list[int] = []
    usual = _truth(expression, symbol, hint)
    for direction in (1, -1):
        size = hint
        while 1 <= size + direction <= _LARGEST:
            size += direction
            truth = _truth(expression, symbol, size)
            if truth is not None and truth != usual:
                found += [size, size - direction]
                break
    return found


def _truth(expression: Any, symbol: Any, size: int) -> bool | None:
    try:
        value = expression.subs(symbol, size)
        return bool(value) if value.is_Boolean or value in (True, False) else None
    except Exception:
        return None
