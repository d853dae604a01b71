"""What is known of each value: its dims as numbers or expressions, and the elements of small integer tensors.

A rewrite gives the same tensors under the same values, so a fact once true of a value stays true.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

import onnx_ir as ir

from onnxtool.model.ir.queries import constant_tensor
from onnxtool.model.operators.symbolic_dims import Expr, symbol
from onnxtool.model.spec import is_placeholder

Fact = TypeVar("Fact")
Size = int | Expr
Sizes = tuple[Size, ...]
MAX_ITEMS = 64

_SIZES = "onnxtool.sizes"
_ITEMS = "onnxtool.items"
_UNTRUE = "onnxtool.untrue_names"
_GIVEN = "onnxtool.given"


@dataclass(frozen=True)
class KnownElements:
    """The elements of a small integer tensor of rank 0 or 1, as far as they are known as sizes.

    Attributes:
        elements: one number or expression each; None where an element is not known.
        scalar: True for rank 0.
    """

    elements: tuple[Size | None, ...]
    scalar: bool

    @property
    def complete(self) -> bool:
        """True when every element is known, as a number or as an expression."""
        return None not in self.elements

    @property
    def sizes(self) -> Sizes:
        """Every element; raises UnknownValueError where one is not known."""
        if not self.complete:
            raise UnknownValueError
        return tuple(e for e in self.elements if e is not None)


def sizes_of(value: ir.Value | None) -> Sizes | None:
    """The dims of a value; None when its rank is not known."""
    if value is None:
        return None
    if value.const_value is not None and not value.is_graph_input():
        return tuple(d for d in value.const_value.shape if isinstance(d, int))
    if _SIZES not in value.meta:
        value.meta[_SIZES] = declared_sizes(value)
    found: Sizes | None = value.meta[_SIZES]
    return found


class UnknownValueError(Exception):
    """A rule needs what is not known of a value."""


def known(fact: Fact | None) -> Fact:
    """What a rule cannot do without; raises UnknownValueError where it is None."""
    if fact is None:
        raise UnknownValueError
    return fact


def forget_sizes(value: ir.Value) -> None:
    """Do not believe the declared shape."""
    value.meta[_SIZES] = None


def declared_sizes(value: ir.Value) -> Sizes | None:
    """The dims of a value's declared shape, where unnamed dims become symbols of their own."""
    if value.shape is None:
        return None
    dims = [d if isinstance(d, int) else d.value for d in value.shape]
    untrue: Collection[str] = value.meta.get(_UNTRUE, ())
    return tuple(
        d if isinstance(d, int) and d >= 0 else symbol(_symbol_name(d, f"?{value.name}.{i}", own=d in untrue))
        for i, d in enumerate(dims)
    )


def _symbol_name(name: object, otherwise: str, *, own: bool) -> str:
    return name if isinstance(name, str) and not own and not is_placeholder(name) else otherwise


def remember_given(value: ir.Value, shape: ir.Shape | None) -> None:
    """Keep the shape that ONNX's own inference gives a value."""
    value.meta[_GIVEN] = shape


def given_sizes(value: ir.Value) -> Sizes | None:
    """The dims that ONNX's own inference gave a value; None where it did not know."""
    shape = value.meta.get(_GIVEN)
    if shape is None:
        return None
    dims = [d if isinstance(d, int) else d.value for d in shape]
    return tuple(d if isinstance(d, int) else symbol(_given_name(d, f"{value.name}.{i}")) for i, d in enumerate(dims))


def _given_name(name: str | None, place: str) -> str:
    if not name:
        return f"?{place}"
    return f"?{name}" if name.startswith("unk__") else name  # what ONNX's inference makes up is not a name to keep


def distrust_names(values: Iterable[ir.Value], names: Collection[str]) -> None:
    """Do not believe these names of dims: the model may take inputs in which dims of one name differ."""
    for value in values:
        value.meta[_UNTRUE] = names


def set_sizes(value: ir.Value, sizes: Iterable[Size]) -> None:
    """Record the dims, and show them in the value's shape as far as they have names in the file."""
    sizes = tuple(sizes)
    if value.meta.get(_SIZES) == sizes and value.shape is not None:
        return
    value.meta[_SIZES] = sizes
    if not value.is_graph_output() and not value.is_graph_input():
        value.shape = ir.Shape([s if isinstance(s, int) else None if s.anonymous else str(s) for s in sizes])


def elements_of(value: ir.Value | None) -> KnownElements | None:
    """The elements of a small integer tensor; None when nothing is known."""
    if value is None:
        return None
    found: KnownElements | None = value.meta.get(_ITEMS)
    if found is not None:
        return found
    tensor = constant_tensor(value)
    if tensor is not None and tensor.size <= MAX_ITEMS and len(tensor.shape) <= 1:
        if not (tensor.dtype.is_integer() or tensor.dtype == ir.DataType.BOOL):
            return None
        array = tensor.numpy()
        found = KnownElements(tuple(int(i) for i in array.reshape(-1)), array.ndim == 0)
        value.meta[_ITEMS] = found
    return found


def set_elements(value: ir.Value, items: KnownElements | None) -> None:
    """Record the elements (None: nothing is known)."""
    if items is not None and len(items.elements) <= MAX_ITEMS and any(e is not None for e in items.elements):
        value.meta[_ITEMS] = items
    else:
        value.meta.pop(_ITEMS, None)


def integers(value: ir.Value | None) -> tuple[int, ...] | None:
    """All elements of a small integer tensor when they are numbers."""
    items = elements_of(value)
    if items is None or not all(isinstance(e, int) for e in items.elements):
        return None
    return tuple(e for e in items.elements if isinstance(e, int))


def rank_of(value: ir.Value | None) -> int | None:
    """Number of dims, None when unknown."""
    sizes = sizes_of(value)
    return None if sizes is None else len(sizes)


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape when every dim is a number."""
    sizes = sizes_of(value)
    if sizes is None or not all(isinstance(d, int) for d in sizes):
        return None
    return tuple(d for d in sizes if isinstance(d, int))
