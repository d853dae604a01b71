"""Sizes before and after: what each dim was, and which part of it changes now."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from math import prod

import onnx_ir as ir

from onnxtool.model.operators.symbolic_dims import Expr, content, exact_divide, floor_divide, product, symbol
from onnxtool.model.operators.value_facts import Size, Sizes, sizes_of

# Numbers that stand for dims which are dynamic already: no size of a real model is a multiple of one.
_STAND_INS = (100_003, 100_019, 100_043, 100_049, 100_057, 100_069, 100_103, 100_109, 100_129, 100_151)


class OldSizes:
    """What every value's dims were, as numbers; dims that were dynamic already get a large prime each.

    Args:
        model: as it was, with its sizes worked out.
        roots: the symbols that become dynamic now, with the size that each had.
        measured: dims of values as a run had them, for what cannot be worked out.
    """

    def __init__(
        self, model: ir.Model, roots: Mapping[str, int], measured: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        self.roots = dict(roots)
        self._numbers: dict[str, int] = {}
        self._sizes: dict[str, Sizes] = {}
        self._dynamic: set[str] = set()
        self._orders: dict[Expr, set[tuple[Expr, ...]]] = {}
        self.quotients: dict[Expr, tuple[Expr, int]] = {}
        self._parts = {symbol(name): size for name, size in roots.items()}
        for graph in model.graphs():
            values = [*graph.inputs, *graph.initializers.values(), *(v for n in graph for v in n.outputs)]
            for value in values:
                sizes = sizes_of(value)
                ran = (measured or {}).get(value.name or "")
                if ran is not None and (sizes is None or any(isinstance(d, Expr) for d in sizes)):
                    sizes = ran
                if value.name and sizes is not None:
                    self._sizes[value.name] = sizes
                    self._dynamic |= {s for d in sizes if isinstance(d, Expr) for m, _ in d.terms for s in m}

    def of(self, value: ir.Value | None) -> tuple[int, ...] | None:
        """The old dims of a value as numbers; None when its rank was not known."""
        sizes = self._sizes.get(value.name or "") if value is not None else None
        return None if sizes is None else tuple(self.number(d) for d in sizes)

    def root(self, number: int) -> Expr | None:
        """The one dim of the inputs that was as large; None where there is none, or several."""
        found = [symbol(name) for name, size in self.roots.items() if size == number]
        return found[0] if len(found) == 1 else None

    def adopt(self, made: ir.Value, value: ir.Value) -> None:
        """A new value has the dims of one that it stands for."""
        if value.name in self._sizes and made.name:
            self._sizes[made.name] = self._sizes[value.name]

    def number(self, size: Size) -> int:
        """What an expression stood for, in dims that were dynamic before and in the roots."""
        if isinstance(size, int):
            return size
        if _primitive(size) in self._parts:
            return content(size) * self._parts[_primitive(size)]
        total = 0
        for monomial, factor in size.terms:
            total += factor * prod(self._number_of(name) for name in monomial)
        return total

    def _number_of(self, name: str) -> int:
        return self.roots.get(name) or self._parts.get(symbol(name)) or self._stand_in(name)

    def _stand_in(self, name: str) -> int:
        known = len(self._numbers)
        return self._numbers.setdefault(name, _STAND_INS[known % len(_STAND_INS)] + 2 * (known // len(_STAND_INS)))

    def is_known(self, number: int) -> bool:
        """False for a number that holds a stand-in, which must never get into a model."""
        return all(number % stand_in for stand_in in self._numbers.values())

    def changes(self, size: Size | None) -> bool:
        """True when a dim depends on what becomes dynamic now."""
        return isinstance(size, Expr) and any(s not in self._dynamic for m, _ in size.terms for s in m)

    def hangs_on(self, size: Size, root: str) -> bool:
        """False when a dim is made of other roots alone."""
        if isinstance(size, int):
            return False
        return any(s == root or (s not in self.roots and root in s) for m, _ in size.terms for s in m)

    def note(self, size: Size, old: int) -> None:
        """Learn what a dim was, or what is new of a product; factors are told in the order of the graph."""
        for part, number in self.factors(size, old) if self.changes(size) else ():
            self._parts.setdefault(part, number)

    def merge(self, data: Sizes, result: Sizes) -> None:
        """Learn in which order a Reshape joins dims: the same order takes them apart."""
        for size in result:
            if not isinstance(size, Expr) or size in data:
                continue
            for first, last in combinations(range(len(data) + 1), 2):
                if product(data[first:last]) == size:
                    joined = tuple(d for d in data[first:last] if isinstance(d, Expr) and self.changes(d))
                    self._orders.setdefault(size, set()).add(joined)

    def is_unclear(self, size: Size, old: int) -> bool:
        """Whether a product of dims that had one size may be taken apart in several orders."""
        numbers = [n for _, n in self.factors(size, old)] if isinstance(size, Expr) else []
        return len(set(numbers)) < len(numbers) and isinstance(size, Expr) and len(self._orders.get(size, ())) != 1

    def quotient(self, size: Expr, divisor: int) -> Size | None:
        """A part of a dim that is cut into several."""
        found = floor_divide(size, divisor)
        if isinstance(found, Expr):
            self.quotients[found] = size, divisor
        return found

    def factors(self, size: Size, old: int) -> list[tuple[Expr, int]]:
        """The parts of a dim that change, each with its old number: 12*batch gives (batch, 1)."""
        found: list[tuple[Expr, int]] = []
        rest: Size | None = size
        joined = next(iter(self._orders.get(size, ())), ()) if isinstance(size, Expr) else ()
        for part in dict.fromkeys([*(d for d in joined if d in self._parts), *self._parts]):
            number = self._parts[part]
            while isinstance(rest, Expr) and (left := exact_divide(rest, part)) is not None:
                found.append((part, number))
                rest, old = left, old // max(number, 1)
        if isinstance(rest, Expr) and self.changes(rest):
            found.append((_primitive(rest), old // content(rest)))
        return found

    def rest(self, size: Size, factors: list[tuple[Expr, int]]) -> Size | None:
        """What is left of a dim without its changing parts."""
        left: Size | None = size
        for part, _ in factors:
            left = exact_divide(left, part) if left is not None else None
        return left


def _primitive(size: Expr) -> Expr:
    """Without the number that it is a multiple of."""
    found = exact_divide(size, content(size))
    assert isinstance(found, Expr)
    return found
