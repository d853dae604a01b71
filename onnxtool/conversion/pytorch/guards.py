"""What torch.export decides for good while it follows a module: comparisons of sizes, each with its line."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from onnxtool.conversion.pytorch.traced_branches import place_text

_TORCH = str(Path(torch.__file__).parent)
_LARGEST = 1100  # sizes are tried one by one up to here, then in steps that double
_FARTHEST = 1 << 20
_MOST = 200
_INSTALLED = ("site-packages", "dist-packages")
# Files of torch through which a comparison in the user's own line goes; any other one decides for itself.
_DIRECT = ("/torch/__init__.py", "/torch/fx/experimental/", "/torch/utils/", "/torch/_logging/")


@dataclass(frozen=True)
class Guard:
    """A comparison of sizes that the exporter took for decided.

    Attributes:
        text: the comparison, in torch's symbols.
        where: "net.py line 12"; "" when no line of the user's is to blame.
        sizes: the nearest sizes at which it comes out the other way, and those beside them at which it does not.
        expression: the comparison as torch holds it (of sympy).
        file, line: where it stands; "" and 0 where no line of the user's is to blame.
        direct: the line itself compares, and not a function of torch that it calls.
    """

    text: str
    where: str
    sizes: tuple[int, ...]
    expression: Any = None
    file: str = ""
    line: int = 0
    direct: bool = True

    @property
    def of_user(self) -> bool:
        """Whether it stands in code that is not an installed package's."""
        return bool(self.file) and self.direct and not any(folder in self.file for folder in _INSTALLED)

    def outcome(self, sizes: Mapping[str, int]) -> bool | None:
        """How it comes out at some sizes; None where these do not decide it.

        Args:
            sizes: of torch's symbols: "s27" -> 16.
        """
        try:
            value = self.expression.subs({s: sizes[str(s)] for s in self.expression.free_symbols if str(s) in sizes})
            return bool(value) if value.is_Boolean or value in (True, False) else None
        except Exception:  # expressions differ from version to version
            return None


def fixing_line(guards: Sequence[Guard], size: int) -> str:
    """The line that made a number of a size: "net.py line 12: for i in range(x.shape[1]):"; "" for none."""
    made = (g for g in guards if re.fullmatch(rf"Eq\(\w+, {size}\)", g.text) and g.file)
    return next((place_text((g.file, g.line)) for g in made), "")


_EXPORTER = "/onnxtool/conversion/pytorch/export.py"


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
        text = str(guard)
        if len(found) < _MOST and all(text != known.text for known in found):
            file, line, direct = _place()
            where = f"{Path(file).name} line {line}" if file else ""
            found.append(Guard(text, where, _flips(self, guard), guard, file, line, direct))
        return plain(self, prefix, guard, *rest, **named)

    ShapeEnv._log_guard = note
    try:
        yield found
    finally:
        ShapeEnv._log_guard = plain


def _place() -> tuple[str, int, bool]:
    direct = True
    for frame in reversed(traceback.extract_stack()):
        name = frame.filename
        if name.replace("\\", "/").endswith(_EXPORTER):  # what is further out called us
            break
        own = not name.startswith((_TORCH, "<")) and "/onnxtool/" not in name and "/lib/python3" not in name
        if own or "/transformers/" in name:
            return name, frame.lineno or 0, direct
        direct &= not name.startswith(_TORCH) or any(part in name for part in _DIRECT)
    return "", 0, False


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
        if others.free_symbols == {symbol}:  # what data decides too (the step of a loop), no size does
            sizes += _changes(others, symbol, hints[symbol])
    return tuple(dict.fromkeys(sizes))


def _changes(expression: Any, symbol: Any, hint: int) -> list[int]:
    """Where the outcome first changes below and above a size, and the size before."""
    found: list[int] = []
    outcome = _outcome(expression, symbol, hint)
    usual = outcome(hint)
    for direction in (1, -1):
        size = hint
        while 1 <= size + direction <= _LARGEST:
            size += direction
            truth = outcome(size)
            if truth is not None and truth != usual:
                found += [size, size - direction]
                break
        else:
            found += _farther(outcome, usual) if direction == 1 else []
    return found


def _farther(outcome: Callable[[int], bool | None], usual: bool | None) -> list[int]:
    """The same beyond sizes that can be tried one by one, by bisection."""
    low, high = _LARGEST, 2 * _LARGEST
    while outcome(high) in (usual, None):
        low, high = high, 2 * high
        if high > _FARTHEST:
            return []
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if outcome(middle) == usual else (low, middle)
    return [high, low]


def _outcome(expression: Any, symbol: Any, hint: int) -> Callable[[int], bool | None]:
    """How a comparison comes out at a size; None where that is not decided.

    Written as Python it takes a microsecond, and a thousand times that by sympy's substitution, which serves where
    torch's printer does not know a function, or the two differ at the first size.
    """

    def substituted(size: int) -> bool | None:
        try:
            value = expression.subs(symbol, size)
            return bool(value) if value.is_Boolean or value in (True, False) else None
        except Exception:
            return None

    try:
        import sympy
        from torch.utils._sympy.printers import PythonPrinter

        written = sympy.lambdify([symbol], expression, modules="math", printer=PythonPrinter)
        if written(hint) is not substituted(hint):
            return substituted
    except Exception:
        return substituted

    def evaluated(size: int) -> bool | None:
        try:
            return bool(written(size))
        except Exception:
            return substituted(size)

    return evaluated
