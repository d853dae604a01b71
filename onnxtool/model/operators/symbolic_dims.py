"""Arithmetic on dims that are not numbers yet: polynomials with integer coefficients over named sizes.

sympy, which onnx_ir uses for the same, takes milliseconds for an operation; a model has tens of thousands of them.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from math import gcd
from typing import Any

import numpy as np

Monomial = tuple[str, ...]


class Expr:
    """A sum of products of symbols, such as 2*batch*seq + 1; immutable, equal when written alike.

    Symbols stand for sizes, so they are never negative. A quotient that does not come out even is a symbol too,
    named by what it stands for.
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: dict[Monomial, int]) -> None:
        self.terms: tuple[tuple[Monomial, int], ...] = tuple(sorted((m, c) for m, c in terms.items() if c))
        self._hash = hash(self.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        parts = []
        for monomial, factor in reversed(self.terms):
            names = "*".join(f"({s})" if not _plain(s) else s for s in monomial)
            parts.append(str(factor) if not monomial else names if factor == 1 else f"{factor}*{names}")
        return " + ".join(parts).replace("+ -", "- ")

    __repr__ = __str__

    @property
    def anonymous(self) -> bool:
        """True when a symbol in it has no name in the model's file."""
        return any("?" in s for m, _ in self.terms for s in m)

    @property
    def non_negative(self) -> bool:
        """True when it cannot be negative, for certain."""
        return all(c > 0 for _, c in self.terms)


def symbol(name: str) -> Expr:
    """The size of that name."""
    return Expr({(name,): 1})


def is_non_negative(size: int | Expr) -> bool:
    """True when it cannot be negative, for certain."""
    return size.non_negative if isinstance(size, Expr) else size >= 0


def add(a: int | Expr, b: int | Expr) -> int | Expr:
    """A + b."""
    terms = dict(_terms(a))
    for monomial, factor in _terms(b):
        terms[monomial] = terms.get(monomial, 0) + factor
    return _made(terms)


def multiply(a: int | Expr, b: int | Expr) -> int | Expr:
    """A * b."""
    terms: dict[Monomial, int] = {}
    for left, x in _terms(a):
        for right, y in _terms(b):
            monomial = tuple(sorted(left + right))
            terms[monomial] = terms.get(monomial, 0) + x * y
    return _made(terms)


def subtract(a: int | Expr, b: int | Expr) -> int | Expr:
    """A - b."""
    return add(a, multiply(b, -1))


def product(sizes: tuple[int | Expr, ...] | list[int | Expr]) -> int | Expr:
    """All of them multiplied; 1 for none."""
    total: int | Expr = 1
    for size in sizes:
        total = multiply(total, size)
    return total


def exact_divide(a: int | Expr, b: int | Expr) -> int | Expr | None:
    """A / b when it comes out even whatever the symbols stand for (b taken as not 0); None otherwise."""
    if isinstance(b, int):
        if b == 0:
            return None
        if any(c % b for _, c in _terms(a)):
            return None
        return _made({m: c // b for m, c in _terms(a)})
    (leading, factor), result = _leading(b), {}
    while a != 0:  # long division, as of numbers
        own, c = _leading(a)
        rest = list(own)
        for name in leading:
            if name not in rest:
                return None
            rest.remove(name)
        if c % factor:
            return None
        result[tuple(rest)] = c // factor
        a = subtract(a, multiply(b, Expr({tuple(rest): c // factor})))
    return _made(result)


def _leading(a: int | Expr) -> tuple[Monomial, int]:
    """The term of the highest degree, by name among equals: products keep this order."""
    return max(_terms(a), key=lambda term: (len(term[0]), term[0]))


def content(a: Expr) -> int:
    """The largest number that divides it whatever the symbols stand for: 4 of 4*length - 8."""
    return gcd(*(c for _, c in a.terms))


def floor_divide(a: int | Expr, b: int | Expr) -> int | Expr | None:
    """floor(a / b) for b > 0; None when that may be below zero, which no symbol is, or the sign of b is not known."""
    if isinstance(b, int) and b <= 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    even = exact_divide(a, b)
    if even is not None:
        return even
    if isinstance(b, int):  # (b*q + r) // b = q + r // b
        whole = _made({m: c - c % b for m, c in _terms(a)})
        rest = _made({m: c % b for m, c in _terms(a)})
        common = gcd(b, *(c for _, c in _terms(rest)))
        if common > 1:
            return add(exact_divide(whole, b) or 0, floor_divide(exact_divide(rest, common) or 0, b // common) or 0)
        return add(exact_divide(whole, b) or 0, symbol(f"floor(({rest})/{b})"))
    return symbol(f"floor(({a})/({b}))") if is_non_negative(a) else None


_OF_TWO: Mapping[str, Callable[[Any, Any], Any]] = {
    "min": np.minimum,
    "max": np.maximum,
    "broadcast": lambda a, b: np.where(a == 1, b, a),
    "scaled": lambda size, factor: (np.float32(size) * np.float32(factor)).astype(np.int64),  # as of Resize
}
_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}


def evaluate(size: int | Expr, numbers: Mapping[str, Any]) -> Any:
    """A size where its symbols stand for these numbers, or for arrays of them.

    Raises:
        LookupError: a symbol is none of them.
    """
    return _computed(_parsed(size), numbers)


def choices(size: int | Expr, numbers: Mapping[str, Any]) -> Iterator[Any]:
    """For each choice between two sizes that is in a size, how far the first is above the second.

    Raises:
        LookupError: a symbol is none of the numbers.
    """
    for held in ast.walk(_parsed(size)):
        if isinstance(held, ast.Call) and len(held.args) > 1:
            first, second = (_computed(part, numbers) for part in held.args)
            yield first - second


def _parsed(size: int | Expr) -> ast.expr:
    try:
        return ast.parse(str(size), mode="eval").body
    except SyntaxError as error:  # a symbol without a name
        raise LookupError(str(size)) from error


def _computed(held: ast.expr, numbers: Mapping[str, Any]) -> Any:
    match held:
        case ast.Constant():
            return held.value
        case ast.Name():
            return numbers[held.id]
        case ast.UnaryOp():
            return -_computed(held.operand, numbers)
        case ast.BinOp():
            return _ARITHMETIC[type(held.op)](_computed(held.left, numbers), _computed(held.right, numbers))
        case ast.Call(func=ast.Name(id="floor")):  # of a quotient
            return _computed(held.args[0], numbers)
        case ast.Call(func=ast.Name(id=name)) if name in _OF_TWO:
            return _OF_TWO[name](*(_computed(size, numbers) for size in held.args))
    raise LookupError(ast.unparse(held))


def _terms(a: int | Expr) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(a, Expr):
        return a.terms
    return (((), int(a)),) if a else ()


def _made(terms: dict[Monomial, int]) -> int | Expr:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    return Expr(kept)


def _plain(name: str) -> bool:
    return all(c.isalnum() or c in "_.?" for c in name) or name.startswith("floor(")
