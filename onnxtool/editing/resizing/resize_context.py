"""What the rewriting of a model works with: sizes before and after, and tensors that hold the new ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import lcm
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from onnxtool.editing.resizing.sizes import OldSizes
from onnxtool.errors import UnsupportedError
from onnxtool.model.ir.queries import constant_array
from onnxtool.model.operators.symbolic_dims import Expr
from onnxtool.model.operators.table import operator_of
from onnxtool.model.operators.value_facts import KnownElements as Elements
from onnxtool.model.operators.value_facts import Size, set_elements, set_sizes, sizes_of
from onnxtool.optimization.pass_context import PassContext

MOST_SEEN = 1 << 22  # elements of a tensor that is looked at
_MOST_STRIDE = 64
_OF_SIZES = ("Shape", "Size")


def node_label(node: ir.Node) -> str:
    """How messages call a node: "Reshape 'flatten'", or by what it makes."""
    made = next((v.name for v in node.outputs if v.name), "")
    return f"{node.op_type} {node.name or made!r}"


def node_key(node: ir.Node) -> str:
    """What tells a node from others in all attempts."""
    return node.name or node.outputs[0].name or ""


def hangs_on(node: ir.Node, moving: Collection[ir.Value | None]) -> bool:
    """False for a node that constants alone decide, given what inputs decide; a body may capture anything."""
    return operator_of(node).has_bodies or any(v in moving for v in node.inputs)


class BakedSizeError(UnsupportedError):
    """A size is part of a weight, or of what a node does, so that no constant can be rewritten.

    Attributes:
        ambiguous: nodes that were passed on the way where a size fits in several places.
        node: the name of the node at which it showed.
    """

    ambiguous: Mapping[str, int] = MappingProxyType({})
    node: str = ""


class Resizing:
    """The state of one attempt.

    Args:
        model: changed in place.
        old: sizes as they were.
        choices: for nodes where a size fits in several places, which alternative to take (0 is the likeliest).
        indices: what computed indices are, by name, where they are the same for every input.
        origins: (node, operand) -> the axes along which a constant goes on for all that is made of it.

    Attributes:
        ambiguous: node name -> number of alternatives, for nodes that have several.
        suspects: nodes that mix or drop the dim that changes, with what they do.
        assumed: nodes of which something is taken for granted that no run shows, with what it is.
        whole: nodes that took all of a dim, by its number, with the axis: they may stop there at other sizes.
        rewritten: one line for each change.
        sizes: tensors that hold sizes which are computed now.
        limits: symbol -> the largest size for which a table has rows.
        computed: constants of functions of places, by name; each number of them may be made of the old size.
        bases: of frequencies, with the node that reads the table; they may be made of the old size, too.
        rounded: constants are computed, which rounds otherwise than what exporters wrote.
        position: the node of the main graph before which new nodes go.
    """

    def __init__(
        self,
        model: ir.Model,
        context: PassContext,
        old: OldSizes,
        choices: Mapping[str, int],
        indices: Mapping[str, np.ndarray] | None = None,
        origins: Mapping[tuple[str, int], Mapping[int, Size]] | None = None,
    ) -> None:
        self._indices = indices or {}
        self.origins = origins or {}
        self.model, self.context, self.old, self.choices = model, context, old, choices
        self.ambiguous: dict[str, int] = {}
        self.suspects: list[tuple[ir.Node, str]] = []
        self.assumed: list[tuple[ir.Node, str]] = []
        self.whole: list[tuple[ir.Node, int]] = []
        self.rewritten: list[str] = []
        self.position: ir.Node | None = None
        self.sizes: set[ir.Value] = set()
        self.limits: dict[str, int] = {}
        self.computed: set[str] = set()
        self.bases: list[tuple[ir.Node, float]] = []
        self.rounded = False
        self._moving: set[ir.Value] = set(model.graph.inputs)  # what hangs on inputs, or on their sizes
        self._valued: set[ir.Value] = set(model.graph.inputs)  # what hangs on the values of inputs
        self._seen: list[ir.Value] = []
        self._anchors: dict[Expr, tuple[ir.Value, int]] = {}
        self._scalars: dict[Expr, ir.Value] = {}
        self._vectors: dict[tuple[Size, ...], ir.Value] = {}

    @property
    def opset(self) -> int:
        """Version of the standard operator set."""
        return self.context.opset

    def array(self, value: ir.Value | None) -> np.ndarray | None:
        """A constant, or computed indices that are the same for every input and were made for the old sizes."""
        found = constant_array(value)
        if found is None and value is not None and (value not in self._moving or not self.changed(value)):
            found = self._indices.get(value.name or "")
        return found

    def is_of_sizes(self, value: ir.Value | None) -> bool:
        """Whether constants and sizes alone decide a value of the main graph."""
        return value not in self._valued

    def stride(self, symbol: str) -> int:
        """How many elements of a dim make one behind all strides; the model may take multiples of it only."""
        root, found = self.old.roots[symbol], 1
        for inner in {d for value in self._seen for d in self._old_changed(value, symbol)}:
            if 0 < inner < root and root % inner == 0 and lcm(found, root // inner) <= _MOST_STRIDE:
                found = lcm(found, root // inner)
        return found

    def limit(self, sizes: Iterable[Size], rows: Size, indices: np.ndarray) -> None:
        """Note that indices which go on with sizes end with the rows of a table."""
        for symbol, root in self.old.roots.items():
            if isinstance(rows, int) and Expr({(symbol,): 1}) in sizes:
                most = root + rows - 1 - int(indices.max())
                self.limits[symbol] = min(most, self.limits.get(symbol, most))

    def _old_changed(self, value: ir.Value, symbol: str) -> list[int]:
        old, sizes = self.old.of(value) or (), sizes_of(value) or ()
        return [old[axis] for axis in self.changed(value) if axis < len(old) and self.old.hangs_on(sizes[axis], symbol)]

    def passed(self, node: ir.Node) -> None:
        """Note what a node makes, and whether that hangs on an input."""
        if hangs_on(node, self._moving):
            self._moving |= set(node.outputs)
        if node.op_type not in _OF_SIZES and hangs_on(node, self._valued):
            self._valued |= set(node.outputs)
        if node.op_type in ("Reshape", "Flatten"):
            self.old.merge(sizes_of(node.inputs[0]) or (), sizes_of(node.outputs[0]) or ())
        for value in node.outputs:
            self.anchor(value)

    def anchor(self, value: ir.Value) -> None:
        """Note a value of the main graph whose dims can be read where they are needed."""
        self._seen.append(value)
        old = self.old.of(value) or ()
        for axis, size in enumerate(sizes_of(value) or ()):
            if isinstance(size, Expr):
                self._anchors.setdefault(size, (value, axis))
                if axis < len(old):
                    self.old.note(size, old[axis])

    def changed(self, value: ir.Value | None) -> list[int]:
        """The axes of a value that change."""
        return [i for i, d in enumerate(sizes_of(value) or ()) if self.old.changes(d)]

    def insert(
        self, op_type: str, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr], base: str
    ) -> ir.Value:
        """A node of the main graph, before the one that is being looked at."""
        assert self.position is not None
        value = self.context.insert(self.position, op_type, inputs, attributes, base=base)
        value.dtype = ir.DataType.INT64
        if any(v in self._moving for v in inputs):
            self._moving.add(value)
        if op_type not in _OF_SIZES and any(v in self._valued for v in inputs):
            self._valued.add(value)
        return value

    def constant(self, numbers: Sequence[int] | np.ndarray, base: str) -> ir.Value:
        """An int64 tensor."""
        return self.context.initializer(np.asarray(numbers, np.int64), base)

    def scalar(self, size: Size, node: ir.Node) -> ir.Value:
        """A size as an int64 tensor of shape [1].

        Raises:
            UnsupportedError: nothing in the graph has this size.
        """
        if isinstance(size, int):
            return self.constant([size], f"size_{size}")
        if size not in self._scalars:
            self._scalars[size] = self._computed(size, node)
            set_sizes(self._scalars[size], (1,))
            set_elements(self._scalars[size], Elements((size,), False))
        return self._scalars[size]

    def _computed(self, size: Expr, node: ir.Node) -> ir.Value:
        if size in self._anchors:
            return self._read(*self._anchors[size])
        if size in self.old.quotients:
            whole, divisor = self.old.quotients[size]
            return self._size("Div", self.scalar(whole, node), self.constant([divisor], f"size_{divisor}"))
        total: ir.Value | None = None
        for monomial, factor in size.terms:
            part: ir.Value | None = None
            for name in monomial:
                symbol = Expr({(name,): 1})
                if symbol not in self._anchors and symbol not in self.old.quotients:
                    raise UnsupportedError(f"{node_label(node)} needs the size {size}, which no tensor before it has.")
                own = self.scalar(symbol, node)
                part = own if part is None else self._size("Mul", part, own)
            if part is None:
                part = self.constant([factor], f"size_{factor}")
            elif factor != 1:
                part = self._size("Mul", part, self.constant([factor], f"size_{factor}"))
            total = part if total is None else self._size("Add", total, part)
        assert total is not None
        return total

    def _size(self, op_type: str, a: ir.Value, b: ir.Value) -> ir.Value:
        made = self.insert(op_type, [a, b], [], "size")
        self.sizes.add(made)
        return made

    def _read(self, value: ir.Value, axis: int) -> ir.Value:
        if self.opset >= 15:
            bounds = [ir.AttrInt64("start", axis), ir.AttrInt64("end", axis + 1)]
            return self.insert("Shape", [value], bounds, f"{value.name}_size_{axis}")
        shape = self.insert("Shape", [value], [], f"{value.name}_shape")
        index = self.constant([axis], f"axis_{axis}")
        return self.insert("Gather", [shape, index], [ir.AttrInt64("axis", 0)], f"{value.name}_size_{axis}")

    def vector(self, sizes: Sequence[Size], node: ir.Node, base: str) -> ir.Value:
        """Sizes as a 1-D int64 tensor: a constant where they are numbers."""
        key = tuple(sizes)
        if key in self._vectors:
            return self._vectors[key]
        numbers = [d for d in key if isinstance(d, int)]
        if len(numbers) == len(key):
            made = self.constant(numbers, base)
        else:
            parts: list[ir.Value] = []
            run: list[int] = []
            for size in key:
                if isinstance(size, int):
                    run.append(size)
                    continue
                if run:
                    parts.append(self.constant(run, f"{base}_part"))
                    run = []
                parts.append(self.scalar(size, node))
            if run:
                parts.append(self.constant(run, f"{base}_part"))
            made = parts[0] if len(parts) == 1 else self.insert("Concat", parts, [ir.AttrInt64("axis", 0)], base)
        if made.const_value is None:
            set_sizes(made, (len(key),))
            set_elements(made, Elements(key, False))
        self._vectors[key] = made
        return made

    def count_to(self, size: Size, node: ir.Node) -> ir.Value:
        """0, 1, 2, ... up to a size, int64."""
        axes: list[ir.Value | None] = [self.scalar(size, node)]
        if self.opset >= 13:
            limit = self.insert("Squeeze", [*axes, self.constant([0], "axes")], [], "limit")
        else:
            limit = self.insert("Squeeze", axes, [ir.AttrInt64s("axes", [0])], "limit")
        bounds = [self.context.initializer(np.array(n, np.int64), f"count_{n}") for n in (0, 1)]
        counted = self.insert("Range", [bounds[0], limit, bounds[1]], [], "positions")
        set_sizes(counted, (size,))
        return counted

    def note(self, node: ir.Node, text: str) -> None:
        """Record a change."""
        self.rewritten.append(f"{node_label(node)}: {text}")

    def choose(self, node: ir.Node, count: int) -> int:
        """Which of several alternatives to take at a node."""
        if count > 1:
            self.ambiguous[node_key(node)] = count
        return min(self.choices.get(node_key(node), 0), count - 1)
