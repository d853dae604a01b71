"""The row of one operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ALL = None  # of `Operator.carried` and `by_rows`: every input


@dataclass(frozen=True, slots=True)
class Operator:
    """What an operator does, whatever its attributes say.

    Attributes:
        name: as nodes have it.
        domain: "" for the standard one.
        shape: name of the rule in `shape_rules.RULES` that gives the dims of its outputs; "" where only ONNX's own
            inference knows.
        elementwise: each element of the result is a function of the elements at its place in the inputs, which
            broadcast as in numpy.
        compares: gives a boolean for two numbers.
        has_bodies: runs graphs that are its attributes.
        random: may draw random numbers (Dropout: in training alone, see `randomness`).
        passes_through: what becomes of the elements of the inputs in `carried`. "order": the first output has the same
            ones in the same order. "values": its elements are some of theirs, picked or repeated by place or by an
            index. "chosen": likewise, but picked by comparing them. "no": anything else.
        carried: places of the inputs whose elements are passed through.
        accumulates: adds or multiplies up many elements, so that the order in which it does shows in the last digits.
        packed: places of the inputs that the runtime packs where they are constant: products then round differently.
        sizes: places of the inputs that say how large something is, or where, and are no values like others.
        cost: name of the rule in `cost` that counts its operations; "" for `flops`.
        flops: floating-point operations for each element of its first output, by the usual count; 0 for none.
        never_negative: no element of its result is below zero.
        integer: "computes" on quantized integers in place of floats, or "converts" to or from them.
        by_rows: places of the inputs that have rows along axis 0, where they have two axes or more: a row of each
            output is made of their rows at that place, and of the other inputs as they are.
        runs_empty: ONNX Runtime 1.31 was seen to run it on inputs without a row.
    """

    name: str
    domain: str = ""
    shape: str = ""
    elementwise: bool = False
    compares: bool = False
    has_bodies: bool = False
    random: bool = False
    passes_through: Literal["no", "order", "values", "chosen"] = "no"
    carried: tuple[int, ...] | None = (0,)
    accumulates: bool = False
    packed: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    cost: str = ""
    flops: int = 0
    never_negative: bool = False
    integer: Literal["no", "computes", "converts"] = "no"
    by_rows: tuple[int, ...] | None = ()
    runs_empty: bool = False

    @property
    def moves(self) -> bool:
        """Whether its result consists of elements of its input, whatever these are."""
        return self.passes_through in ("order", "values")

    def carries(self, place: int) -> bool:
        """Whether elements of the input at this place are passed through."""
        return self.passes_through != "no" and (self.carried is ALL or place in self.carried)

    def has_rows(self, place: int) -> bool:
        """Whether a row of each output is made of the row of the input at this place."""
        return self.by_rows is ALL or place in self.by_rows
