"""Graphs of one matrix of features: ensembles of trees, and what a booster makes of their sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.raw_thresholds import rounded_down
from onnxtool.errors import UnsupportedError

# What onnxruntime and skl2onnx both take; version 5 of ai.onnx.ml has another operator for trees.
OPSET, _ML_OPSET = 15, 3


class TreeEnsemble:
    """The attributes of a TreeEnsembleRegressor, as they are filled."""

    def __init__(self) -> None:
        self._nodes: dict[str, list[Any]] = {}
        self._leaves: dict[str, list[Any]] = {"target_treeids": []}

    @property
    def targets(self) -> int:
        """How many sums the leaves add to."""
        return max(self._leaves.get("target_ids", ()), default=0) + 1

    def add_node(self, tree: int, number: int, **given: Any) -> None:
        """A node by its number in its tree, with the standard's attributes without "nodes_"; a leaf's are the usual."""
        usual = {"featureids": 0, "values": 0.0, "modes": "LEAF", "truenodeids": 0, "falsenodeids": 0}
        row = {**usual, "missing_value_tracks_true": 0, **given, "treeids": tree, "nodeids": number}
        for name, value in row.items():
            self._nodes.setdefault(f"nodes_{name}", []).append(value)

    def add_set(
        self,
        tree: int,
        number: int,
        following: int,
        categories: Sequence[float | str],
        inside: int,
        outside: int,
        **given: Any,
    ) -> int:
        """A question for categories: a node for each, of which all lead on to one.

        Args:
            tree, number: of the first.
            following: the next number that is free in the tree.
            categories: at least one.
            inside, outside: where what is one of them goes, and all else.
            given: as of `add_node`.

        Returns:
            The next number that is free now.
        """
        *before, last = map(float, categories)
        asked = {**given, "modes": "BRANCH_EQ", "truenodeids": inside}
        for category in before:
            self.add_node(tree, number, **asked, values=category, falsenodeids=following)
            number, following = following, following + 1
        self.add_node(tree, number, **asked, values=last, falsenodeids=outside)
        return following

    def add_leaf(self, tree: int, number: int, values: Mapping[int, float]) -> None:
        """A leaf with what it adds to each target."""
        self.add_node(tree, number)
        for target, value in values.items():
            row = {"treeids": tree, "nodeids": number, "ids": target, "weights": float(value)}
            for name, entry in row.items():
                self._leaves.setdefault(f"target_{name}", []).append(entry)

    @property
    def attributes(self) -> dict[str, Any]:
        """All of them, with numbers as they were given."""
        return {**self._nodes, **self._leaves, "n_targets": self.targets}

    def of_floats(self) -> dict[str, Any]:
        """All of them, for inputs of float32: a number is at most a threshold where it is at most the float32 below."""
        pairs = zip(self._nodes["nodes_values"], self._nodes["nodes_modes"], strict=True)
        values = [rounded_down(v) if mode == "BRANCH_LEQ" else v for v, mode in pairs]
        return {**self.attributes, "nodes_values": values}

    def of_doubles(self) -> dict[str, Any]:
        """All of them, with numbers as tensors of doubles."""
        found = self.attributes
        for name in ("nodes_values", "target_weights"):
            numbers = found.pop(name)
            found[f"{name}_as_tensor"] = helper.make_tensor(name, TensorProto.DOUBLE, [len(numbers)], numbers)
        return found


class BoosterGraph:
    """Collects the nodes of a graph that takes a matrix "X" [rows, features].

    Attributes:
        dtype: of the numbers that are computed.
    """

    def __init__(self, dtype: type[np.floating[Any]] = np.float32) -> None:
        self.dtype = dtype
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def add(self, kind: str, *inputs: str | float | np.ndarray, name: str = "", **attributes: Any) -> str:
        """A node: the name of its output, which may be given. What is no name is a constant."""
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        output = name or f"value_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, names, [output], **attributes))
        return output

    def _constant(self, value: float | np.ndarray) -> str:
        array = np.array([value], self.dtype) if isinstance(value, float) else np.asarray(value)
        self._constants.append(numpy_helper.from_array(array, f"constant_{len(self._constants)}"))
        return self._constants[-1].name

    def trees(self, x: str, ensemble: TreeEnsemble, begin: Sequence[float] = ()) -> str:
        """The sums of trees [rows, targets], and numbers that they begin with.

        Args:
            x: what the trees compare.
            ensemble: the trees; their numbers are doubles where the graph computes in these.
            begin: one number for each target.
        """
        attributes = ensemble.of_floats() if self.dtype is np.float32 else ensemble.of_doubles()
        if any(begin) and self.dtype is np.float32:
            attributes["base_values"] = [float(number) for number in begin]
        elif any(begin):
            attributes["base_values_as_tensor"] = helper.make_tensor("begin", TensorProto.DOUBLE, [len(begin)], begin)
        attributes["n_targets"] = max(ensemble.targets, len(begin))
        sums = self.add("TreeEnsembleRegressor", x, domain="ai.onnx.ml", **attributes)
        return sums if self.dtype is np.float32 else self.add("Cast", sums, to=TensorProto.DOUBLE)

    def linked(self, sums: str, kind: str) -> str:
        """What an operator makes of sums [rows, targets]; the sums themselves for ""."""
        if kind == "Softmax":
            return self.add(kind, sums, axis=1)
        return self.add(kind, sums) if kind else sums

    def both(self, second: str) -> str:
        """The chances of two classes, of the second's [rows, 1]."""
        return self.add("Concat", self.add("Sub", 1.0, second), second, axis=1)

    def above(self, sums: str, bound: float, targets: int) -> str:
        """Which of the sums are above a bound, as int64: [rows, targets]; [rows] of one target."""
        places = self.add("Cast", self.add("Greater", sums, bound), to=TensorProto.INT64)
        return places if targets > 1 else self.add("Reshape", places, np.array([-1]))

    def give_prediction(self, value: str) -> None:
        """Make numbers [rows, targets] the only output."""
        self._give("variable", value, TensorProto.FLOAT, 2)

    def largest(self, sums: str) -> str:
        """Where the largest of the sums of a row stands, [rows]: chances may be equal where sums are not."""
        return self.add("ArgMax", sums, axis=1, keepdims=0)

    def give_classes(self, chances: str, classes: Sequence[Any], place: str, labels: int = 1) -> None:
        """Make labels and chances [rows, classes] the outputs.

        Args:
            chances: of all classes.
            classes: texts or whole numbers, booleans among these.
            place: which class it is.
            labels: how many each row has.

        Raises:
            UnsupportedError: classes that are fractions.
        """
        known = np.asarray(classes)
        texts = known.dtype.kind in "OU"
        if not texts and (known != known.astype(np.int64)).any():
            raise UnsupportedError("classes that are fractions have no ONNX form; number them before the fit.")
        label = place
        if texts or known.tolist() != [0, 1] or labels > 1:  # else it is the place
            label = self.add("Gather", known.astype(object if texts else np.int64), place, axis=0)
        self._give("label", label, TensorProto.STRING if texts else TensorProto.INT64, min(labels, 2))
        self._give("probabilities", chances, TensorProto.FLOAT, 2)

    def give_decided(self, sums: str, classes: Sequence[Any], several: bool, chances: str = "") -> None:
        """Make labels and chances the outputs, where the largest of several sums decides, or the sign of a single one.

        Args:
            sums: [rows, classes], or [rows, 1] of two classes.
            classes: as of `give_classes`.
            several: the sums are one for each class.
            chances: of all classes; what a decision function gives unless they are there.
        """
        if not chances:
            chances = sums if several else self.add("Concat", self.add("Neg", sums), sums, axis=1)
        self.give_classes(chances, classes, self.largest(sums) if several else self.above(sums, 0.0, 1))

    def _give(self, name: str, value: str, kind: int, rank: int) -> None:
        narrows = kind == TensorProto.FLOAT and self.dtype is not np.float32
        self.add("Cast" if narrows else "Identity", value, name=name, **({"to": kind} if narrows else {}))
        self._outputs.append(helper.make_tensor_value_info(name, kind, [None] * rank))

    def model(self, kind: int, width: int, opset: int = OPSET) -> onnx.ModelProto:
        """The graph, of an input of this element type and so many columns."""
        given = helper.make_tensor_value_info("X", kind, [None, width])
        graph = helper.make_graph(self._nodes, "booster", [given], self._outputs, self._constants)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def add_as_step(write: NodeWriter, proto: onnx.ModelProto, given: str = "") -> None:
    """Copy a whole graph with one input of floats or doubles into a pipeline's graph, as one of its steps.

    Args:
        write: of the step.
        proto: made by a `BoosterGraph`.
        given: the matrix; what the step is given unless it is another.
    """
    (start,) = proto.graph.input
    names = {start.name: write.cast(given or write.inputs[0].full_name, start.type.tensor_type.elem_type)}
    names |= {tensor.name: write.constant(numpy_helper.to_array(tensor)) for tensor in proto.graph.initializer}
    ends = {o.name: own.full_name for o, own in zip(proto.graph.output, write.outputs, strict=True)}
    for node in proto.graph.node:
        inputs, (output,) = [names[name] for name in node.input], node.output
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.domain:
            names[output] = write.add_of(node.domain, _ML_OPSET, node.op_type, *inputs, **attributes)
        else:
            names[output] = write.add(node.op_type, *inputs, name=ends.get(output), **attributes)
