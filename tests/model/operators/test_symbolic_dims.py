"""Arithmetic on dims, held against numbers put in for the symbols."""

from __future__ import annotations

import random

import pytest

from onnxtool.model.operators.broadcasting import broadcast, smaller_of
from onnxtool.model.operators.layout_rules import reshaped, slice_size
from onnxtool.model.operators.symbolic_dims import (
    Expr,
    add,
    exact_divide,
    floor_divide,
    multiply,
    product,
    subtract,
    symbol,
)
from onnxtool.model.operators.value_facts import Size
from onnxtool.optimization.passes.layout.reshapes import reshape_target

B, S = symbol("b"), symbol("s")


def value(size: Size, b: int, s: int) -> int:
    """Put numbers in; quotients and minima are read from the symbol's name."""
    if isinstance(size, int):
        return size
    total = 0
    for monomial, times in size.terms:
        factor = times
        for name in monomial:
            text = name.replace("floor(", "(").replace("/", "//")
            factor *= eval(text, {"b": b, "s": s, "min": min})
        total += factor
    return total


def test_sums_and_products_keep_their_value() -> None:
    chance = random.Random(0)
    for _ in range(300):
        made: list[Size] = [B, S, 1, 2, 3]
        wanted = [lambda b, s: b, lambda b, s: s, lambda b, s: 1, lambda b, s: 2, lambda b, s: 3]
        for _ in range(4):
            i, j = chance.randrange(len(made)), chance.randrange(len(made))
            kind = chance.randrange(3)
            made.append((add, subtract, multiply)[kind](made[i], made[j]))
            x, y = wanted[i], wanted[j]
            wanted.append(
                [
                    lambda b, s, x=x, y=y: x(b, s) + y(b, s),
                    lambda b, s, x=x, y=y: x(b, s) - y(b, s),
                    lambda b, s, x=x, y=y: x(b, s) * y(b, s),
                ][kind]
            )
        for b, s in ((1, 1), (2, 7), (5, 3)):
            assert value(made[-1], b, s) == wanted[-1](b, s)


@pytest.mark.parametrize("divisor", [1, 2, 3, 4, 6, 8])
def test_quotients_keep_their_value(divisor: int) -> None:
    for top in (B, add(B, 5), add(multiply(B, 4), 6), add(multiply(B, 8), S), multiply(add(B, 1), 12), subtract(B, 3)):
        quotient = floor_divide(top, divisor)
        assert quotient is not None
        for b, s in ((1, 1), (2, 7), (9, 3), (0, 0)):
            assert value(quotient, b, s) == value(top, b, s) // divisor, str(top)


def test_even_division_only() -> None:
    assert exact_divide(multiply(B, multiply(S, 12)), multiply(S, 3)) == multiply(B, 4)
    assert exact_divide(add(multiply(B, 6), 9), 3) == add(multiply(B, 2), 3)
    assert exact_divide(add(B, 1), 2) is None
    assert exact_divide(B, S) is None
    assert exact_divide(B, 0) is None
    product_of_sums = multiply(subtract(B, 2), add(multiply(S, 3), 1))
    assert exact_divide(product_of_sums, subtract(B, 2)) == add(multiply(S, 3), 1)
    assert exact_divide(add(product_of_sums, 1), subtract(B, 2)) is None
    assert floor_divide(B, -1) is None
    assert floor_divide(subtract(B, 10), S) is None  # below zero for a small b, and a symbol never is


def test_equal_expressions_are_equal_however_made() -> None:
    assert multiply(add(B, 1), 2) == add(add(B, B), 2)
    assert subtract(add(B, S), S) == B
    assert subtract(B, B) == 0
    assert product([]) == 1
    assert isinstance(add(B, 0), Expr)


def test_broadcasting_never_guesses() -> None:
    assert broadcast((B, 1, 4), (S, 4)) == (B, S, 4)
    assert broadcast((B,), (4,)) == (4,)
    assert broadcast((B,), (S,)) == (symbol("broadcast(b, s)"),)
    assert broadcast((B,), None) is None
    assert broadcast((2,), (3,)) == (None,)


@pytest.mark.parametrize("limit", [1, 3, 512])
def test_the_smaller_of_a_limit_and_a_size_broadcasts_to_the_size(limit: int) -> None:
    smaller = smaller_of(limit, S)
    assert broadcast((smaller,), (S,)) == (S,)
    assert broadcast((smaller,), (B,)) not in ((smaller,), (B,))
    for s in range(1, 6):  # wherever numpy accepts the two, the result is s
        m = min(limit, s)
        if m in (1, s) or s == 1:
            assert max(m, s) == s


@pytest.mark.parametrize(
    ("dim", "start", "end", "step", "wanted"),
    [
        (10, 2, 5, 1, 3),
        (10, -3, 100, 1, 3),
        (10, 2, 9, 3, 3),
        (10, 7, 3, 1, 0),
        (B, 0, 1 << 40, 1, B),
        (B, 0, B, 1, B),
        (B, 0, add(B, 1), 1, B),
        (add(B, 4), 0, B, 1, B),
        (B, 0, 1 << 40, 2, "floor((b + 1)/2)"),
        (B, 3, 1 << 40, 1, "max(b - 3, 0)"),
        (B, -1, 1 << 40, 1, "min(1, b)"),
        (B, 0, -2, 1, "max(b - 2, 0)"),
        (B, 1, -2, 1, "max(b - 3, 0)"),
        (B, subtract(B, 2), 1 << 40, 1, None),
        (B, 0, 3, 1, "min(3, b)"),
        (512, 0, S, 1, "min(512, s)"),
        (B, 0, None, 1, None),
        (10, 5, 0, -1, None),
    ],
)
def test_slice_sizes(dim: Size, start: Size | None, end: Size | None, step: int, wanted: Size | str | None) -> None:
    found = slice_size(dim, start, end, step)
    assert found == (symbol(wanted) if isinstance(wanted, str) else wanted)


def test_reshaped_finds_the_open_dim() -> None:
    assert reshaped((B, S, 12), (0, 0, 3, -1), True) == (B, S, 3, 4)
    assert reshaped((B, S, 12), (B, -1), True) == (B, multiply(S, 12))
    assert reshaped((B, 6), (-1, 4), True) is None or value(reshaped((B, 6), (-1, 4), True)[0], 4, 1) == 6  # type: ignore[index]
    assert reshaped((B, S), (-1, -1), True) is None


def test_targets_name_at_most_one_open_dim() -> None:
    assert reshape_target((B, S, 12), (B, S, 3, 4)) == [0, 0, 3, 4]
    # What remains of an empty batch is not determined, and the runtime refuses it.
    assert reshape_target((B, S, 12), (B, multiply(S, 12))) is None
    assert reshape_target((B, S, 12), (B, multiply(S, 12)), refuses_empty=True) == [0, -1]
    assert reshape_target((B, S, 12), (multiply(B, S), 12)) == [-1, 12]
    assert reshape_target((B, S), (S, B)) is None
    assert reshape_target((B, 0), (0, B)) is None
