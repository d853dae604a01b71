"""Two models with random operators, so that they can be compared: both draw the same fixed numbers.

Each random operator is replaced by a formula of standard operators whose numbers depend on its place and on the shape
alone. What is computed of the draws, and what decides their distribution, is compared like anything else. Which node of
the one model stands for which of the other is told by the distribution, then by the kind; in each case by the name, and
then by the order: nodes of one distribution may change places, since nobody could tell their draws apart. A draw that
only one model makes has numbers of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from onnxtool.model.ir.editing import inline_functions
from onnxtool.model.ir.queries import attribute, constant_array
from onnxtool.model.randomness import is_random, random_nodes

_OLDEST = 13  # opset: older ones lack operators that the formulas use, or have them in another form
_CAST_LIKE = 15  # opset
_PARAMETERS = ("mean", "scale", "low", "high", "shape", "sample_size")
_FLOAT = int(ir.DataType.FLOAT)
_INT32 = int(ir.DataType.INT32)


@dataclass(frozen=True)
class FixedDraws:
    """Copies of two models that draw the same numbers.

    Attributes:
        a, b: the copies.
        operators: what was replaced ("Dropout", "RandomNormal").
    """

    a: ir.Model
    b: ir.Model
    operators: tuple[str, ...]

    @property
    def note(self) -> str:
        """For the reports."""
        listed = ", ".join(self.operators)
        return f"the models draw random numbers ({listed}): they were compared with the same fixed draws in both"


def with_fixed_draws(a: ir.Model, b: ir.Model) -> FixedDraws | None:
    """Copies of two models whose random operators give the same numbers.

    Args:
        a, b: left as they are.

    Returns:
        None where neither draws anything, where one of them alone makes draws that its own values decide (Dropout,
        Bernoulli, Multinomial), and where a draw is made more than once in a run (loop bodies): then its numbers cannot
        be fixed without changing what they mean.
    """
    if not any(random_nodes(model) for model in (a, b)):
        return None
    copies = [c for c in map(_prepared, (a, b)) if c is not None]
    if len(copies) < 2:
        return None
    drawn = [[n for n in copy.graph.all_nodes() if is_random(n)] for copy in copies]
    if any(is_random(n) for copy in copies for n in _in_loops(copy.graph)):
        return None
    partners, alone = _partners(*drawn), count(len(drawn[0]))
    numbers = [range(len(drawn[0])), [next(alone) if place is None else place for place in partners]]
    operators = tuple(sorted({n.op_type for nodes in drawn for n in nodes}))
    for copy, nodes, own in zip(copies, drawn, numbers, strict=True):
        for node, number in zip(nodes, own, strict=True):
            if not _Formula(copy, node, number).replace(has_partner=number in partners):
                return None
    return FixedDraws(copies[0], copies[1], operators)


def _prepared(model: ir.Model) -> ir.Model | None:
    copy = model.clone()
    if any(is_random(n) for f in copy.functions.values() for n in f.all_nodes()) and not inline_functions(copy):
        return None
    RemoveUnusedNodesPass()(copy)
    return copy


def _in_loops(graph: ir.Graph, inside: bool = False) -> Iterator[ir.Node]:
    """The nodes of bodies that may run several times: all but those of the branches of If."""
    for node in graph:
        if inside:
            yield node
        for item in node.attributes.values():
            if item.type == ir.AttributeType.GRAPH and not item.is_ref():
                yield from _in_loops(item.as_graph(), inside or node.op_type != "If")


def _partners(a: Sequence[ir.Node], b: Sequence[ir.Node]) -> list[int | None]:
    """For each node of B the place of the one of A that it stands for: of the same distribution if there is one, else
    of the same kind, so that another mean or scale shows in what the same draws become.
    """
    found: list[int | None] = [None] * len(b)
    draws = [[_Draw.of(node) for node in nodes] for nodes in (a, b)]
    names = [[node.outputs[0].name for node in nodes] for nodes in (a, b)]
    for whole, same_name in ((True, True), (True, False), (False, True), (False, False)):
        for place, (draw, name) in enumerate(zip(draws[1], names[1], strict=True)):
            alike = (
                i
                for i, (other, its) in enumerate(zip(draws[0], names[0], strict=True))
                if i not in found and (other == draw if whole else other.kind == draw.kind)
                if its == name or not same_name
            )
            if found[place] is None:
                found[place] = next(alike, None)
    return found


class _Draw(NamedTuple):
    """What a node draws, as far as its attributes and constants tell; the seed is no part of it."""

    kind: str
    parameters: tuple[Any, ...]

    @classmethod
    def of(cls, node: ir.Node) -> _Draw:
        """The kind of numbers (a shape may be given in two ways) and what they are scaled to."""
        ratio = constant_array(node.inputs[1]) if node.op_type == "Dropout" else None
        named = tuple((name, attribute(node, name)) for name in _PARAMETERS)
        return cls(node.op_type.removesuffix("Like"), (named, None if ratio is None else float(ratio.reshape(-1)[0])))


class _Formula:
    """The numbers of one random node, by standard operators that stand in its place.

    Args:
        model: in which the node is.
        node: replaced.
        number: the place of its draws among all.
    """

    def __init__(self, model: ir.Model, node: ir.Node, number: int) -> None:
        self._model, self._node, self._number = model, node, number
        self._opset = model.graph.opset_imports.get("", 0)
        self._made: list[ir.Node] = []
        self._hidden = self._shown = False

    def replace(self, *, has_partner: bool) -> bool:
        """Put the formula in the node's place.

        Args:
            has_partner: whether the other model has the same draws. Without one there is nothing to compare what
                decides about them with.

        Returns:
            False where there is no formula.
        """
        node, graph = self._node, self._node.graph
        results = self._results() if self._opset >= _OLDEST and isinstance(graph, ir.Graph) else None
        if results is None or graph is None or self._hidden or (self._shown and not has_partner):
            return False
        graph.insert_before(node, self._made)
        for old, new in zip(node.outputs, results, strict=False):
            new.name, old.name = old.name, f"{old.name}_drawn"
            new.type, new.shape = old.type, old.shape
            ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        return True

    def _results(self) -> list[ir.Value] | None:
        node, kind = self._node, self._node.op_type
        if node.domain == "com.microsoft":
            return None
        if kind == "Dropout":
            return self._dropout()
        if kind == "Bernoulli":
            chance = self._double(self._input(0))
            self._compared(chance)
            below = self._op("Less", self._uniform(self._op("Shape", self._input(0))), chance)
            return self._typed(below)
        if kind == "Multinomial":
            return self._multinomial()
        shape = attribute(node, "shape")
        dims = self._constant(np.array(shape, np.int64)) if shape is not None else self._op("Shape", self._input(0))
        first = self._uniform(dims)
        if kind.startswith("RandomUniform"):
            low, high = attribute(node, "low", 0.0), attribute(node, "high", 1.0)
            return self._typed(self._scaled(first, high - low, low))
        second = self._uniform(dims, salt=1)
        # Box and Muller 1958: two uniform numbers make a normal one.
        length = self._op("Sqrt", self._scaled(self._op("Log", self._scaled(first, 1 - 1e-12, 1e-12)), -2.0, 0.0))
        # Cos of doubles has no kernel in the runtime; Sin has.
        wave = self._op("Sin", self._scaled(second, 2 * np.pi, 0.0))
        normal = self._op("Mul", length, wave)
        return self._typed(self._scaled(normal, attribute(node, "scale", 1.0), attribute(node, "mean", 0.0)))

    def _dropout(self) -> list[ir.Value]:
        """Kept elements times 1 / (1 - ratio), and which those are; everything where the mode is off at run time."""
        given = self._node.inputs
        data, training = self._input(0), self._input(2)
        ratio = self._double(given[1]) if given[1] is not None else self._constant(np.array(0.5))
        self._compared(ratio)
        # What is dropped would be compared nowhere.
        self._compared(self._double(data), "input")
        drawn = self._uniform(self._op("Shape", data))
        kept = self._op("Or", self._op("GreaterOrEqual", drawn, ratio), self._op("Not", training))
        one = self._constant(np.array(1.0))
        factor = self._op("Where", training, self._op("Div", one, self._op("Sub", one, ratio)), one)
        scaled = self._op("Mul", self._double(data), factor)
        result = self._op("Where", kept, scaled, self._constant(np.array(0.0)))
        typed = self._like(result, data)
        return [typed, kept]

    def _multinomial(self) -> list[ir.Value] | None:
        """Of each row, so many classes as were asked for: where a uniform number falls among the summed chances."""
        samples = attribute(self._node, "sample_size", 1)
        chances = self._op("Softmax", self._double(self._input(0)), axis=-1)
        self._compared(chances)
        rows = self._op("Shape", self._input(0), start=0, end=1) if self._opset >= _CAST_LIKE else None
        if rows is None:
            return None
        dims = self._op("Concat", rows, self._constant(np.array([samples], np.int64)), axis=0)
        last, middle = (self._constant(np.array([axis], np.int64)) for axis in (2, 1))
        drawn = self._op("Unsqueeze", self._uniform(dims), last)
        summed = self._op("CumSum", chances, self._constant(np.array(1, np.int64)))
        passed = self._op("GreaterOrEqual", drawn, self._op("Unsqueeze", summed, middle))
        index = self._op("ReduceSum", self._op("Cast", passed, to=_INT32), last, keepdims=0)
        return [self._op("Cast", index, to=attribute(self._node, "dtype", _INT32))]

    def _uniform(self, dims: ir.Value, salt: int = 0) -> ir.Value:
        """Numbers of at least 0 and below 1, float64, that depend on their place and on which draw it is."""
        count = self._op("ReduceProd", dims, keepdims=0)
        zero, one = (self._constant(np.array(i, np.int64)) for i in (0, 1))
        place = self._double(self._op("Range", zero, count, one))
        start = 78.233 * (2 * self._number + salt + 1)
        wave = self._scaled(self._op("Sin", self._scaled(place, 12.9898, start)), 43758.5453, 0.0)
        flat = self._op("Sub", wave, self._op("Floor", wave))
        return self._op("Reshape", flat, dims, **({"allowzero": 1} if self._opset > _OLDEST else {}))

    def _typed(self, value: ir.Value) -> list[ir.Value] | None:
        """In the type that the node gives."""
        to = attribute(self._node, "dtype")
        if to is not None or not self._node.inputs:
            return [self._op("Cast", value, to=_FLOAT if to is None else to)]
        source = self._input(0)
        return [self._like(value, source)] if self._opset >= _CAST_LIKE or source.dtype is not None else None

    def _like(self, value: ir.Value, source: ir.Value) -> ir.Value:
        if self._opset >= _CAST_LIKE:
            return self._op("CastLike", value, source)
        return self._op("Cast", value, to=int(source.dtype or ir.DataType.FLOAT))

    def _compared(self, value: ir.Value, what: str = "distribution") -> None:
        """Make what decides about draws an output: the draws alone would hardly show it. Inside a branch, nothing
        can be made an output of the model, and there is no formula.
        """
        if self._node.graph is not self._model.graph:
            self._hidden = True
            return
        shown = self._op("Identity", value)
        shown.name = f"{self._node.op_type}_{self._number}_{what}"
        shown.type = ir.TensorType(ir.DataType.DOUBLE)
        self._shown = True
        self._model.graph.outputs.append(shown)

    def _input(self, index: int) -> ir.Value:
        value = self._node.inputs[index]
        assert value is not None
        return value

    def _double(self, value: ir.Value) -> ir.Value:
        return self._op("Cast", value, to=int(ir.DataType.DOUBLE))

    def _scaled(self, value: ir.Value, factor: float, offset: float) -> ir.Value:
        times = self._op("Mul", value, self._constant(np.array(factor, np.float64)))
        return self._op("Add", times, self._constant(np.array(offset, np.float64)))

    def _constant(self, array: np.ndarray) -> ir.Value:
        return self._op("Constant", value=ir.tensor(array))

    def _op(self, op_type: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        made = ir.node(op_type, list(inputs), attributes=attributes or None)
        made.outputs[0].name = f"draw_{self._number}_{len(self._made)}"
        made.name = made.outputs[0].name
        self._made.append(made)
        return made.outputs[0]
