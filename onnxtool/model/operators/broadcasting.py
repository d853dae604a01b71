"""The dims that broadcasting gives, where some of them are expressions."""

from __future__ import annotations

from onnxtool.model.operators.symbolic_dims import Expr, symbol
from onnxtool.model.operators.value_facts import Size, Sizes

_SMALLER_OF = "min("


def broadcast(*shapes: Sizes | None) -> tuple[Size | None, ...] | None:
    """Numpy broadcasting; a dim is None when two numbers differ; None for unknown ranks."""
    known = [s for s in shapes if s is not None]
    if len(known) != len(shapes):
        return None
    result: list[Size | None] = []
    for position in range(1, max((len(s) for s in known), default=0) + 1):
        wide: list[Size] = []
        for sizes in known:
            if len(sizes) >= position and sizes[-position] != 1 and sizes[-position] not in wide:
                wide.append(sizes[-position])
        result.append(_wins(wide))
    return tuple(reversed(result))


def _wins(wide: list[Size]) -> Size | None:
    if len(wide) <= 1:
        return wide[0] if wide else 1
    numbers = [d for d in wide if isinstance(d, int)]
    if numbers:
        # A symbol beside a number above 1 is either that number or 1: the result is the number. The symbol itself
        # stays open (another optimizer freezes dynamic dims here).
        return numbers[0] if len(numbers) == 1 else None
    for size in wide:
        # The smaller of n and something else fits n only when it is n, or 1 (where n is 1 or the result is n).
        if all(other is size or is_smaller_of(other, size) for other in wide):
            return size
    first, *others = sorted(wide, key=str)
    for other in others:
        first = symbol(f"broadcast({first}, {other})")
    return first


def smaller_of(a: Size, b: Size) -> Size:
    """The smaller of two sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if a == b or 0 in (a, b):
        return a if a == b else 0
    names = sorted((str(a), str(b)))
    return symbol(f"{_SMALLER_OF}{names[0]}, {names[1]})")


def at_least_zero(size: Size) -> Size:
    """The size, or 0 where it is less."""
    if isinstance(size, int):
        return max(size, 0)
    return size if size.non_negative else symbol(f"max({size}, 0)")


def is_smaller_of(value: Size, size: Size) -> bool:
    """True when `value` is known to be the smaller of `size` and something else."""
    if not isinstance(value, Expr) or len(value.terms) != 1:
        return False
    monomial, factor = value.terms[0]
    if factor != 1 or len(monomial) != 1 or not monomial[0].startswith(_SMALLER_OF):
        return False
    return str(size) in monomial[0][len(_SMALLER_OF) : -1].split(", ")
