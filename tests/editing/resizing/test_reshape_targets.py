"""Where the changing dims of Reshape's input go in its target."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxtool.editing.resizing.reshape_targets import placements
from onnxtool.editing.resizing.sizes import OldSizes
from onnxtool.model.operators.symbolic_dims import multiply, subtract, symbol

B = symbol("batch")


def old(size: int) -> OldSizes:
    return OldSizes(ir.Model(ir.Graph([], [], nodes=[]), ir_version=9), {"batch": size})


@pytest.mark.parametrize(
    ("data", "before", "target", "wanted"),
    [
        ((B, 3, 4), (1, 3, 4), (1, 12), (B, 12)),
        ((B, 3, 4), (1, 3, 4), (3, 4), (multiply(B, 3), 4)),
        ((B, 784), (1, 784), (1, 1, 28, 28), (B, 1, 28, 28)),
        ((7, B, 64), (7, 1, 64), (7, 4, 16), (7, multiply(B, 4), 16)),
        ((7, B, 64), (7, 1, 64), (7, 64), (multiply(B, 7), 64)),
        ((multiply(B, 12), 5, 5), (12, 5, 5), (1, 12, 5, 5), (B, 12, 5, 5)),
        ((multiply(B, 4), 9), (4, 9), (1, 2, 2, 9), (B, 2, 2, 9)),
        ((5, B, 8), (5, 1, 8), (40,), (multiply(B, 40),)),
        ((B, 16), (1, 16), (16,), (multiply(B, 16),)),
    ],
)
def test_of_a_batch_of_one(data: object, before: object, target: object, wanted: object) -> None:
    assert placements(data, before, target, old(1))[0] == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "before", "target", "wanted"),
    [
        ((B, 6), (4, 6), (4, 2, 3), (B, 2, 3)),
        ((B, 6), (4, 6), (24,), (multiply(B, 6),)),
        ((B, 6), (4, 6), (2, 2, 6), (symbol("floor((batch)/2)"), 2, 6)),
        ((multiply(B, 3), 2), (12, 2), (4, 3, 2), (B, 3, 2)),
    ],
)
def test_of_a_larger_batch(data: object, before: object, target: object, wanted: object) -> None:
    found = placements(data, before, target, old(4))  # type: ignore[arg-type]
    assert (found[0] if found else None) == wanted


def test_leaves_other_places_as_alternatives() -> None:
    found = placements((B, 1, 8), (1, 1, 8), (1, 1, 8), old(1))
    assert found[0] == (B, 1, 8)
    assert (1, B, 8) in found


def test_two_dims_change_at_once() -> None:
    height, width = symbol("h"), symbol("w")
    sizes = OldSizes(ir.Model(ir.Graph([], [], nodes=[]), ir_version=9), {"h": 4, "w": 6})
    found = placements((2, height, width), (2, 4, 6), (2, 24), sizes)
    assert found[0] == (2, multiply(height, width))


def test_a_product_is_split_into_dims_that_were_seen() -> None:
    """[3, (h - 2) * floor(w / 2)] is 4 * 5 places, and 4 * (h - 2) lies in a dim of 8 and one of 2."""
    height, width = subtract(symbol("h"), 2), symbol("floor((w)/2)")
    sizes = OldSizes(ir.Model(ir.Graph([], [], nodes=[]), ir_version=9), {"h": 6, "w": 11})
    sizes.note(height, 4)
    sizes.note(width, 5)
    assert placements((3, multiply(height, width)), (3, 20), (3, 4, 5), sizes)[0] == (3, height, width)
    assert placements((multiply(height, 4),), (16,), (2, 8), sizes)[0] == (2, multiply(height, 2))


def test_dims_of_one_size_are_split_in_the_order_in_which_they_were_seen() -> None:
    rows, columns = symbol("rows"), symbol("columns")
    sizes = OldSizes(ir.Model(ir.Graph([], [], nodes=[]), ir_version=9), {"rows": 4, "columns": 4})
    assert placements((multiply(rows, columns),), (16,), (4, 4), sizes)[0] == (rows, columns)
