"""Adding nodes to a graph that skl2onnx is building, in a converter of our own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator

FLOAT, INT64, DOUBLE = 1, 7, 11  # as onnx.TensorProto counts them
STRING, BOOL = 8, 9
ROUNDED = "rounded_to_float32"  # in the names of what stays float32 in a graph that computes in doubles
_KINDS = {"float32": FLOAT, "float64": DOUBLE, "int64": INT64, "bool": BOOL}
_ML = "ai.onnx.ml"
_KIND_OF = {"DoubleTensorType": DOUBLE, "Int64TensorType": INT64}
_OLDER = {"TopK": 11, "Equal": 11, "Where": 9}  # operators that are older than version 13
_SMALL = 8  # numbers of a constant that is written once

Operand = str | float | np.ndarray  # the name of a value; else a constant, of which a number is a double


class NodeWriter:
    """Adds nodes to a container of skl2onnx, and gives the names of their outputs.

    Attributes:
        scope, operator, container: what skl2onnx gives to a converter.
    """

    def __init__(self, scope: Any, operator: Any, container: Any) -> None:
        self.scope, self.operator, self.container = scope, operator, container
        self._prefix = type(operator.raw_operator).__name__
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    @property
    def step(self) -> Any:
        """The fitted estimator."""
        return self.operator.raw_operator

    @property
    def inputs(self) -> Sequence[Any]:
        """Variables of skl2onnx that the estimator is given."""
        return list(self.operator.inputs)

    @property
    def outputs(self) -> Sequence[Any]:
        """Likewise, that it gives."""
        return list(self.operator.outputs)

    @property
    def takes_numbers(self) -> bool:
        """Whether all inputs are numbers or booleans."""
        kinds = {"DoubleTensorType", "FloatTensorType", "Int64TensorType", "BooleanTensorType"}
        return {type(variable.type).__name__ for variable in self.inputs} <= kinds

    @property
    def gives_scores(self) -> bool:
        """Whether a classifier gives its decision function: it was asked for, or there are no probabilities."""
        return self.asks_scores or not hasattr(self.step, "predict_proba")

    @property
    def asks_scores(self) -> bool:
        """Whether another estimator asks a classifier for its decision function."""
        return bool(self.container.get_options(self.step, {"raw_scores": False})["raw_scores"])

    @contextmanager
    def standing_in(
        self, estimator: Estimator, outputs: Sequence[Any] = (), inputs: Sequence[Any] = ()
    ) -> Iterator[None]:
        """Inside the block, another converter finds a changed estimator, and other inputs and outputs where given."""
        operator = self.operator
        before = operator.raw_operator, operator.inputs, operator.outputs
        operator.raw_operator = estimator
        operator.inputs, operator.outputs = list(inputs) or before[1], list(outputs) or before[2]
        try:
            yield
        finally:
            operator.raw_operator, operator.inputs, operator.outputs = before

    def note(self, function: str) -> None:
        """Nothing: a function is noted where it is followed for its name alone."""

    def variable(self, name: str, kind: Any) -> Any:
        """A variable of skl2onnx's, of one of its types."""
        return self.scope.declare_local_variable(name, kind)

    def constant(self, array: np.ndarray | float) -> str:
        """Floats, doubles, int64 or texts, as NumPy has them; a number is [1], in double."""
        values = np.array([array]) if isinstance(array, float) else np.asarray(array)
        key = values.dtype.str, values.shape, values.tobytes() if values.size <= _SMALL else b""
        if key in self._known:
            return self._known[key]
        name = self._name("constant")
        if values.size <= _SMALL and values.dtype.kind != "O":
            self._known[key] = name
        if values.dtype.kind in "OU":
            texts = [str(text).encode() for text in values.reshape(-1)]
            self.container.add_initializer(name, STRING, list(values.shape), texts)
        else:
            numbers = values.reshape(-1).tolist()
            self.container.add_initializer(name, _KINDS[values.dtype.name], list(values.shape), numbers)
        return name

    def add(self, kind: str, *inputs: Operand, name: str | None = None, **attributes: Any) -> str:
        """A node of one output.

        Args:
            kind: an operator of the standard.
            inputs: values.
            name: of its output, where that is known.
            attributes: of the operator.
        """
        return self._node(kind, inputs, [name or self._name(kind)], attributes)[0]

    def add_several(self, count: int, kind: str, *inputs: Operand, **attributes: Any) -> list[str]:
        """A node of several outputs."""
        return self._node(kind, inputs, [self._name(kind) for _ in range(count)], attributes)

    def add_of(self, domain: str, version: int, kind: str, *inputs: Operand, **attributes: Any) -> str:
        """A node of one output, of an operator that the standard does not have."""
        return self._node(kind, inputs, [self._name(kind)], {**attributes, "op_domain": domain}, version)[0]

    def looked_up(self, value: str, **tables: Any) -> str:
        """What a table of keys (`keys_strings`, ...) has for values (`values_floats`, ...), else its default."""
        return self.add_of(_ML, 2, "LabelEncoder", value, **tables)

    def columns(self, parts: Sequence[str]) -> str:
        """Matrices side by side, as one."""
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=1)

    def joined(self) -> str:
        """The columns of all inputs as one matrix of doubles."""
        return self.columns([self.cast(given.full_name, DOUBLE) for given in self.inputs])

    def on_all_rows(self, row: np.ndarray) -> str:
        """[rows, columns]: [1, columns] of constants, as often as the inputs have rows."""
        count = self.add("Slice", self.add("Shape", self.inputs[0].full_name), np.array([0]), np.array([1]))
        return self.add("Expand", row, self.add("Concat", count, np.array([row.shape[1]]), axis=0))

    def give(self, value: str, output: Any = None) -> None:
        """Make a value one of the outputs (the first unless given), in the type that was declared for it."""
        output = self.outputs[0] if output is None else output
        self.cast(value, _KIND_OF.get(type(output.type).__name__, FLOAT), output.full_name)

    def give_labels(self, places: str, classes: Any) -> None:
        """Make labels of the places of classes, [rows], the first output."""
        self.labels(places, classes, self.outputs[0].full_name)

    def labels(self, places: str, classes: Any, name: str | None = None) -> str:
        """Labels of the places of classes: texts or int64."""
        texts = np.asarray(classes).dtype.kind in "OU"
        labels = np.asarray(classes) if texts else np.asarray(classes).astype(np.int64)
        return self.add("Gather", labels, places, axis=0, name=name)

    def give_most_likely(self, chances: str, classes: Any) -> None:
        """Make chances [rows, classes], and the labels of the largest, a classifier's outputs."""
        self.give_labels(self.add("ArgMax", chances, axis=1, keepdims=0), classes)
        self.give(chances, self.outputs[1])

    def give_inliers(self, scores: str, least: float = 0.0) -> None:
        """Make scores [rows, 1], and for labels 1 where they are at least so much and -1 elsewhere, the outputs."""
        inside = self.cast(self.add("GreaterOrEqual", scores, least), INT64)
        self.give_labels(self.add("Reshape", inside, np.array([-1])), [-1, 1])
        self.give(scores, self.outputs[1])

    def cast(self, value: str, kind: int, name: str | None = None) -> str:
        """A value in another type."""
        return self.add("Cast", value, name=name, to=kind)

    def in_float32(self, value: str) -> str:
        """A double, rounded as a source rounds it that computes in float32."""
        return self.cast(self.cast(value, FLOAT, self._name(ROUNDED)), DOUBLE)

    def smallest(self, value: str, count: int) -> tuple[str, str]:
        """The smallest of each row, and where they stand."""
        values, places = self.add_several(2, "TopK", value, np.array([count]), axis=1, largest=0, sorted=1)
        return values, places

    def largest(self, value: str) -> str:
        """[rows, 1]; the same in all versions of the standard, as ReduceMax is not."""
        return self.add_several(2, "TopK", value, np.array([1]), axis=1, largest=1, sorted=1)[0]

    def split(self, value: str, sizes: Sequence[int]) -> list[str]:
        """Columns, so many in each part."""
        return self.add_several(len(sizes), "Split", value, np.array(sizes), axis=1)

    def _name(self, what: str) -> str:
        return str(self.scope.get_unique_variable_name(f"{self._prefix}_{what}"))

    def _node(
        self, kind: str, inputs: Sequence[Operand], names: list[str], attributes: dict[str, Any], version: int = 0
    ) -> list[str]:
        own = self.scope.get_unique_operator_name(f"{self._prefix}_{kind}")
        version = version or _OLDER.get(kind, 13)
        given = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self.container.add_node(kind, given, names, op_version=version, name=own, **attributes)
        return names
