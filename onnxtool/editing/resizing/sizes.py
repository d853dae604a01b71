"""Sizes before and after: what each dim was, and which part of it changes now."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import onnx_ir as ir

from onnxtool.model.operators.symbolic_dims import Expr, exact_divide
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

    def number(self, size: Size) -> int:
        """What an expression stood for, in dims that were dynamic before and in the roots."""
        if isinstance(size, int):
            return size
        total = 0
        for monomial, factor in size.terms:
            total += factor * prod(self.roots.get(name) or self._stand_in(name) for name in monomial)
        return total

    def _stand_in(self, name: str) -> int:
        known = len(self._numbers)
        return self._numbers.setdefault(name, _STAND_INS[known % len(_STAND_INS)] + 2 * (known // len(_STAND_INS)))

    def is_known(self, number: int) -> bool:
        """False for a number that holds a stand-in, which must never get into a model."""
        return all(number % stand_in for stand_in in self._numbers.values())

    def changes(self, size: Size | None) -> bool:
        """True when a dim depends on what becomes dynamic now."""
        return isinstance(size, Expr) and any(s not in self._dynamic for m, _ in size.terms for s in m)

    def factors(self, size: Size, old: int) -> list[tuple[Expr, int]]:
        """The parts of a dim that change, each with its old number: 12*batch gives (batch, 1)."""
        assert isinstance(size, Expr)
        if len(size.terms) == 1:
            (monomial, _), found = size.terms[0], []
            for name in monomial:
                if name in self._dynamic:
                    continue
                if name not in self.roots:
                    break
                found.append((Expr({(name,): 1}), self.roots[name]))
            else:
                return found
        return [(size, old)]

    def rest(self, size: Size, factors: list[tuple[Expr, int]]) -> Size | None:
        """What is left of a dim without its changing parts."""
        left: Size | None = size
        for part, _ in factors:
            left = exact_divide(left, part) if left is not None else None
        return left
