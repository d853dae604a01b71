"""Writes down what tables of numbers and ensembles of trees compute, as ONNX nodes of a certificate's source.

Each threshold is pulled back through the rising steps before it (a scaler of single columns, the rounding to float32),
so that it is the largest number of the input itself that goes the lower way: `decided`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxtool.errors import UnsupportedError
from onnxtool.model.spec import TensorSpec, row_width

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class TracedColumn:
    """One column of a tensor, as a rising function of a column of an input.

    Attributes:
        tensor, place: that column; of a computed one, itself.
        steps: what is done to its numbers, in order.
    """

    tensor: str
    place: int
    steps: tuple[Any, ...] = ()

    def value(self, x: Doubles) -> Doubles:
        """The column's numbers for those of the input."""
        with np.errstate(all="ignore"):
            for step in self.steps:
                x = step(x)
        return x


@dataclass(frozen=True)
class TracedTable:
    """Columns side by side.

    Attributes:
        name: of the tensor [rows, columns] that they are; "" where each is still a tensor of its own.
        columns: where each comes from.
    """

    name: str
    columns: tuple[TracedColumn, ...]

    @property
    def width(self) -> int:
        """How many columns."""
        return len(self.columns)

    def after(self, name: str, steps: Sequence[Any]) -> TracedTable:
        """What a rising function of each column makes of it."""
        pairs = zip(self.columns, steps, strict=True)
        return TracedTable(name, tuple(replace(c, steps=(*c.steps, s)) for c, s in pairs))


@dataclass(frozen=True)
class TracedTree:
    """One tree; a row goes to `low` where its number is at most the threshold, or below it.

    Attributes:
        features, thresholds, strict, missing_low: of each node.
        low, high: nodes; below zero at leaves.
        values: [nodes, targets], of which the leaves' count.
        target: the only target that it adds to; -1 for all.
    """

    features: Any
    thresholds: Any
    strict: bool
    missing_low: Any
    low: Any
    high: Any
    values: Any
    target: int = -1


def to_float32(x: Doubles) -> Doubles:
    """As scikit-learn's trees and XGBoost round what they are given."""
    return x.astype(np.float32).astype(np.float64)


class TableTraceWriter:
    """Collects nodes and constants.

    Args:
        inputs: with their types, tensors of [rows, columns].
    """

    def __init__(self, inputs: Sequence[TensorSpec]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._types = {s.name: s.dtype for s in inputs}
        self._widths = {s.name: row_width(s) or 0 for s in inputs}
        self._exact = {s.name for s in inputs}

    def is_text(self, column: TracedColumn) -> bool:
        """Whether a column is of texts."""
        return self._types.get(column.tensor) == "string"

    def given(self, name: str) -> TracedTable:
        """An input; integers as doubles, which hold all that estimators do with them."""
        width, dtype = self._widths[name], self._types[name]
        if isinstance(dtype, np.dtype) and dtype.kind in "iub":
            return self.computed(self.add("Cast", name, to=TensorProto.DOUBLE), width, exact=True)
        return TracedTable(name, tuple(TracedColumn(name, i) for i in range(width)))

    def computed(self, name: str, width: int, dtype: np.dtype[Any] | str = "", *, exact: bool = False) -> TracedTable:
        """A tensor [rows, width] that nodes make; exact if no rounding is in it: codes, and whether something is so."""
        self._widths[name] = width
        if exact:
            self._exact.add(name)
        if dtype:
            self._types[name] = dtype
        return TracedTable(name, tuple(TracedColumn(name, i) for i in range(width)))

    def refuse_rounded(self, columns: Iterable[TracedColumn]) -> None:
        """For what jumps at a number: of numbers that are computed, the last digit may decide on which side they are.

        Raises:
            UnsupportedError: some are no columns of an input, and no codes.
        """
        if any(c.tensor not in self._exact for c in columns):
            raise UnsupportedError("thresholds on numbers that are computed have no exact form here")

    def column(self, table: TracedTable, place: int) -> str:
        """One column of a table, [rows, 1]."""
        own = table.columns[place]
        tensor, at = (table.name, place) if table.name else (own.tensor, own.place)
        width = table.width if table.name else self._widths[tensor]
        return tensor if width == 1 else self.add("Gather", tensor, np.array([at]), axis=1)

    def matrix(self, table: TracedTable) -> str:
        """All columns as one tensor of numbers.

        Raises:
            UnsupportedError: some are texts.
        """
        if any(self.is_text(c) for c in table.columns):
            raise UnsupportedError("texts that no encoder takes have no exact form here")
        if table.name:
            return table.name
        columns = [self.column(table, i) for i in range(table.width)]
        return columns[0] if len(columns) == 1 else self.add("Concat", *columns, axis=1)

    def select(self, table: TracedTable, places: Sequence[int]) -> TracedTable:
        """Some columns, in a new order."""
        places = [int(p) for p in places]
        if places == list(range(table.width)):
            return table
        name = self.add("Gather", table.name, np.array(places), axis=1) if table.name else ""
        return TracedTable(name, tuple(table.columns[p] for p in places))

    def side_by_side(self, tables: Sequence[TracedTable]) -> TracedTable:
        """The columns of several tables."""
        if len(tables) == 1:
            return tables[0]
        columns = tuple(c for t in tables for c in t.columns)
        texts = any(self.is_text(c) for c in columns)
        if texts and any(t.name and not self.is_text(c) for t in tables for c in t.columns):
            raise UnsupportedError("texts beside numbers that were computed have no exact form here")
        return TracedTable("" if texts else self.add("Concat", *map(self.matrix, tables), axis=1), columns)

    def number(self, value: Any) -> str:
        """A constant; floats in doubles, whatever the inputs are."""
        array = np.asarray(value)
        array = array.astype(np.float64) if array.dtype.kind == "f" else array
        array = array.astype(object) if array.dtype.kind in "OU" else array
        name = f"number_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, kind: str, *inputs: Any, domain: str = "", **attributes: Any) -> str:
        """A node of one output; what is no name is a constant."""
        names = [i if isinstance(i, str) else self.number(i) for i in inputs]
        output = f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [output], domain=domain, **attributes))
        return output

    @property
    def double(self) -> bool:
        """Whether the estimator's inputs are doubles, and with them what is computed."""
        return all(t != np.float32 for t in self._types.values())

    def type_of(self, tensor: str) -> np.dtype[Any]:
        """Of numbers; what nodes make is in doubles."""
        found = self._types.get(tensor)
        return found if isinstance(found, np.dtype) and found.kind == "f" else np.dtype(np.float64)

    def trees(self, table: TracedTable, trees: Sequence[TracedTree], targets: int, before: Any = None) -> str:
        """The sums of leaves.

        Args:
            table: what the trees are given.
            trees: of an ensemble, in its order.
            targets: how many sums.
            before: a step before comparisons: the rounding to float32.
        """
        used = sorted({int(f) for t in trees for f in np.asarray(t.features)[np.asarray(t.low) >= 0]})
        seen = {f: table.columns[f] for f in used}
        if any(self.is_text(c) for c in seen.values()):
            raise UnsupportedError("trees on texts have no exact form here")
        self.refuse_rounded(seen.values())
        tensors = list(dict.fromkeys(c.tensor for c in seen.values())) or [self.matrix(table)]
        widths = [self._widths.get(t, table.width) for t in tensors]
        begins = dict(zip(tensors, np.cumsum([0, *widths])[:-1].tolist(), strict=True))
        matrix = tensors[0] if len(tensors) == 1 else self.add("Concat", *tensors, axis=1)
        attributes: dict[str, list[Any]] = {}

        def put(kind: str, **row: Any) -> None:
            for name, values in row.items():
                attributes.setdefault(f"{kind}_{name}", []).extend(values)

        for number, tree in enumerate(trees):
            low, high = np.asarray(tree.low), np.asarray(tree.high)
            leaf, count = low < 0, len(low)
            limits, missing = np.zeros(count), np.asarray(tree.missing_low, bool).copy()
            places = np.zeros(count, np.int64)
            for feature in np.unique(np.asarray(tree.features)[~leaf]):
                column = seen[int(feature)]
                at = np.flatnonzero(~leaf & (np.asarray(tree.features) == feature))
                column = replace(column, steps=(*column.steps, before)) if before else column
                given = np.asarray(tree.thresholds, np.float64)[at]
                limits[at] = decided(column, given, tree.strict, self.type_of(column.tensor))
                places[at] = begins[column.tensor] + column.place
                gap = column.value(np.full(len(at), np.nan))
                passes = gap < given if tree.strict else gap <= given
                missing[at] = np.where(np.isnan(gap), missing[at], passes)
            never = np.isnan(limits)
            modes = np.where(leaf, "LEAF", np.where(never, "BRANCH_LT", "BRANCH_LEQ"))
            put(
                "nodes",
                treeids=[number] * count,
                nodeids=range(count),
                featureids=places.tolist(),
                values=np.where(never, -np.inf, limits).tolist(),
                modes=modes.tolist(),
                truenodeids=np.where(leaf, 0, low).tolist(),
                falsenodeids=np.where(leaf, 0, high).tolist(),
                missing_value_tracks_true=missing.astype(int).tolist(),
            )
            ids = list(range(targets)) if tree.target < 0 else [tree.target]
            leaves = np.flatnonzero(leaf)
            put(
                "target",
                treeids=[number] * (len(leaves) * len(ids)),
                nodeids=np.repeat(leaves, len(ids)).tolist(),
                ids=ids * len(leaves),
                weights=np.asarray(tree.values, np.float64).reshape(count, -1)[leaves].ravel().tolist(),
            )
        plain: dict[str, Any] = dict(attributes)
        for name in ("nodes_values", "target_weights"):
            numbers = np.array(plain.pop(name), np.float64)
            plain[f"{name}_as_tensor"] = numpy_helper.from_array(numbers, name)
        return self.add("TreeEnsembleRegressor", matrix, domain="ai.onnx.ml", n_targets=targets, **plain)


def decided(column: TracedColumn, thresholds: Doubles, strict: bool, dtype: np.dtype[Any]) -> Doubles:
    """The largest number of a type for which a column is at most a threshold, or below it; NaN where there is none.

    The column rises, so numbers are halved by their order among all floats.
    """
    kind = np.int32 if dtype == np.float32 else np.int64
    float_kind = np.float32 if dtype == np.float32 else np.float64
    top = int(np.array(np.inf, float_kind).view(kind))

    def number(places: NDArray[np.int64]) -> Doubles:
        sizes = np.abs(places).astype(kind).view(float_kind)
        return np.where(places < 0, np.negative(sizes), sizes).astype(np.float64)

    def passes(places: NDArray[np.int64]) -> NDArray[np.bool_]:
        value = column.value(number(places))
        return value < thresholds if strict else value <= thresholds

    low, high = np.full(len(thresholds), -top - 1), np.full(len(thresholds), top + 1)
    while (high > low + 1).any():
        middle = low // 2 + high // 2 + (low % 2 + high % 2) // 2
        middle = np.clip(middle, -top, top)
        good = passes(middle) & (middle > low)
        low, high = np.where(good, middle, low), np.where(good | (middle <= low), high, middle)
    return np.where(low < -top, np.nan, number(np.maximum(low, -top))) + 0.0


def widened(write: TableTraceWriter, name: str) -> str:
    """Sums of trees as doubles, where the estimator is given doubles."""
    return write.add("Cast", name, to=TensorProto.DOUBLE) if write.double else name


def chosen_labels(write: TableTraceWriter, classes: Any, place: str) -> str:
    """Labels of the numbers of classes."""
    classes = np.asarray(classes)
    if classes.dtype.kind in "bf":
        classes = classes.astype(np.int64)
    return write.add("Gather", classes.astype(np.int64) if classes.dtype.kind in "iu" else classes, place, axis=0)


def decided_label(write: TableTraceWriter, above: str, classes: Any) -> str:
    """One of two labels: the second where a condition [rows, 1] holds."""
    place = write.add("Squeeze", write.add("Cast", above, to=TensorProto.INT64), np.array([1]))
    return chosen_labels(write, classes, place)


def most_likely(write: TableTraceWriter, scores: str, classes: Any) -> str:
    """Labels of the largest scores."""
    return chosen_labels(write, classes, write.add("ArgMax", scores, axis=1, keepdims=0))


def classified(write: TableTraceWriter, sums: str, count: int, classes: Any, *, equal: bool) -> list[str]:
    """Labels and chances of one sum, or of one for each class.

    Args:
        write: adds nodes.
        sums: [rows, count].
        count: of sums.
        classes: labels.
        equal: a sum of zero is for the second of two classes.
    """
    if count > 1:
        return [most_likely(write, sums, classes), write.add("Softmax", sums, axis=1)]
    chances = write.add("Sigmoid", write.add("Concat", write.add("Neg", sums), sums, axis=1))
    above = write.add("GreaterOrEqual" if equal else "Greater", sums, 0.0)
    return [decided_label(write, above, classes), chances]
