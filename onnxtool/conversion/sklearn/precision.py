"""Graphs that compute in the source's own precision: float64, except where the source rounds to float32 itself.

scikit-learn computes in float64. Its trees, XGBoost and CatBoost round what they are given to float32 and then compare;
histogram gradient boosting and LightGBM compare in float64. A graph that is exported from float64 inputs keeps that by
three rules: each ensemble compares doubles, by the thresholds at which its source's decisions change; operators without
a kernel for float64 get float32 and nothing after them does; constants and casts that skl2onnx writes in float32 all
the same become float64. Where the user's rows are in float32, and with them what the source computes, the thresholds
are those of that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxtool.conversion.patches import LibraryPatch, Patch, replaced
from onnxtool.conversion.sklearn.converters.node_writer import ROUNDED
from onnxtool.conversion.sklearn.raw_thresholds import (
    TREES,
    compare_raw_columns,
    compared_in_float32,
    rounded_down,
)
from onnxtool.conversion.sklearn.source_columns import SourceColumns

# Operators that take or give float32 alone in ONNX Runtime 1.31, whatever the graph computes in.
_TAKE_FLOATS = ("Imputer", "Binarizer", "LinearRegressor", "SVMRegressor", "ZipMap", "Softplus", "Erf")
_GIVE_FLOATS = (
    *("LinearRegressor", "LinearClassifier", "SVMRegressor", "SVMClassifier", "Imputer", "Binarizer", "Softplus"),
    *("Scaler", "Normalizer", "OneHotEncoder", "FeatureVectorizer", "TfIdfVectorizer", "DictVectorizer", "Erf", *TREES),
)
_THRESHOLDS = "exact_thresholds"  # what nodes compare with
_MEMBERS = "members"  # how many trees' chances are added, of which the mean is wanted
_WEIGHTS = "exact_weights"  # what the leaves hold
_COPY = "add_tree_to_attribute_pairs"  # what skl2onnx 1.20 copies trees by
_MISSING = "nodes_missing_value_tracks_true"
_NUMBERS = ("nodes_values", "target_weights", "class_weights", "base_values")


def _copied(plain: Callable[..., Any], *, isolates: bool) -> Callable[..., Any]:
    """skl2onnx's way to copy a tree, with thresholds as they are, the chances of all classes in the leaves, and the way
    of missing values, which it leaves out.

    It rounds thresholds for classifiers, and of two classes keeps the second's chance alone, over the number of trees:
    where trees vote evenly, the last digit of that sum decides.

    Args:
        plain: skl2onnx's own.
        isolates: for isolation forests, which refuse attributes that their operator does not have.
    """

    def copied(attributes: dict[str, Any], classifies: bool, tree: Any, number: int, *more: Any, **options: Any) -> Any:
        start = len(attributes["class_ids"]) if classifies else 0
        first = len(attributes["nodes_treeids"])
        result = plain(attributes, classifies, tree, number, *more, **options)
        if (left := getattr(tree, "missing_go_to_left", None)) is not None:
            attributes[_MISSING][first:] = [int(v) for v in np.asarray(left)]
        if isolates:
            return result
        values = np.where(tree.children_left >= 0, tree.threshold, 0.0)
        attributes[_THRESHOLDS] = [*attributes.get(_THRESHOLDS, ()), values]
        weight, _, counts = more[:3]
        if classifies and counts and tree.value.shape[1] == 1:
            leaves, classes = np.flatnonzero(tree.children_left < 0), tree.value.shape[2]
            written = {
                "class_treeids": [number] * (len(leaves) * classes),
                "class_nodeids": np.repeat(leaves, classes).tolist(),
                "class_ids": [*range(classes)] * len(leaves),
                "class_weights": tree.value[leaves, 0].ravel().tolist(),
            }
            for name, numbers in written.items():
                attributes[name][start:] = numbers
            attributes[_MEMBERS] = round(1 / weight)
        # The list goes on to grow, and skl2onnx puts an array of float32 in its place before it adds the node.
        attributes[_WEIGHTS] = attributes["class_weights" if classifies else "target_weights"]
        return result

    return copied


def _given(plain: Callable[..., Any], source: SourceColumns) -> Callable[..., Any]:
    """A container's way to add a node, by which ensembles of trees decide as their source does."""

    def add_node(self: Any, kind: str, inputs: Any, outputs: Any, *more: Any, **attributes: Any) -> Any:
        if kind not in TREES:
            return plain(self, kind, inputs, outputs, *more, **attributes)
        thresholds = attributes.pop(_THRESHOLDS, ())
        weights, members = attributes.pop(_WEIGHTS, ()), attributes.pop(_MEMBERS, 0)
        if thresholds:
            attributes["nodes_values"] = np.concatenate(thresholds)
        (given,) = [inputs] if isinstance(inputs, str) else inputs
        for name in _NUMBERS:
            if attributes.get(name) is None:
                continue
            numbers = np.asarray(attributes.pop(name), np.float64).ravel()
            if name.endswith("_weights") and np.array_equal(np.float32(weights), np.float32(numbers)):
                numbers = np.asarray(weights, np.float64)
            if name == "nodes_values":
                modes = [m if isinstance(m, str) else m.decode() for m in attributes["nodes_modes"]]
                numbers = np.array([compared_in_float32(v, m) for v, m in zip(numbers, modes, strict=True)])
            attributes[f"{name}_as_tensor"] = helper.make_tensor(name, TensorProto.DOUBLE, [len(numbers)], numbers)
        attributes["op_version"] = 3  # the first that has doubles
        attributes[_MISSING] = [int(v) for v in attributes.get(_MISSING) or ()]  # booleans, in skl2onnx 1.20
        given = compare_raw_columns(self, plain, attributes, given, source)
        if not members:
            return plain(self, kind, [given], outputs, *more, **attributes)
        label, scores = outputs
        total, count = f"{scores}_total", f"{scores}_members"
        # Of two classes ONNX Runtime asks whether the second's sum is above zero, of three which is the largest.
        labels = next(n for n in ("classlabels_int64s", "classlabels_strings") if attributes.get(n))
        kept = np.arange(len(attributes[labels]))
        if len(kept) == 2:
            attributes[labels] = [*attributes[labels], "" if labels.endswith("strings") else -1]
        self.add_initializer(count, TensorProto.FLOAT, [1], [float(members)])
        self.add_initializer(f"{count}_kept", TensorProto.INT64, [len(kept)], kept.tolist())
        plain(self, kind, [given], [label, total], *more, **attributes)
        plain(self, "Gather", [total, f"{count}_kept"], [f"{total}_kept"], op_version=13, axis=1)
        return plain(self, "Div", [f"{total}_kept", count], [scores], op_version=13)

    return add_node


@contextmanager
def _applied(singles: Collection[str]) -> Iterator[None]:
    container = import_module("skl2onnx.common._container").ModelComponentContainer
    source = SourceColumns(singles)
    with ExitStack() as stack:
        stack.enter_context(source.watching())
        stack.enter_context(replaced(container, "add_node", _given(container.add_node, source)))
        # skl2onnx 1.20 seeks a threshold's neighbour in float32 without an end where it is infinite; ours stay.
        trees = import_module("skl2onnx.common.tree_ensemble")
        stack.enter_context(replaced(trees, "sklearn_threshold", lambda threshold, *_: rounded_down(threshold)))
        for name, module in list(sys.modules.items()):
            if name.startswith("skl2onnx.operator_converters") and hasattr(module, _COPY):
                copied = _copied(getattr(module, _COPY), isolates=name.endswith("isolation_forest"))
                stack.enter_context(replaced(module, _COPY, copied))
        yield


@contextmanager
def exact_constants(wanted: bool) -> Iterator[None]:
    """Inside the block, constants that converters declare float32 are written as the doubles that the estimator has."""
    container = import_module("skl2onnx.common._container").ModelComponentContainer
    plain = container.add_initializer

    def add_initializer(self: Any, name: str, kind: int, shape: Any, content: Any) -> Any:
        widened = wanted and kind == TensorProto.FLOAT and shape is not None
        return plain(self, name, TensorProto.DOUBLE if widened else kind, shape, content)

    with replaced(container, "add_initializer", add_initializer):
        yield


def exact_thresholds(singles: Collection[str] = ()) -> LibraryPatch:
    """Thresholds by which the file decides as its source.

    Args:
        singles: names of the graph's inputs that the source is given in float32.
    """
    trouble = "skl2onnx 1.20 rounds trees or does not, whatever their source does"
    return Patch("skl2onnx", "", trouble, partial(_applied, tuple(singles)))


def widen(proto: onnx.ModelProto) -> None:
    """Make what a graph of float64 inputs computes in float32 float64, in place, except in its ensembles of trees."""
    graph = proto.graph
    for constant in graph.initializer:
        constant.CopyFrom(_as_double(constant))
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        _widen_inside(node)
        if node.op_type in _TAKE_FLOATS or _is_looked_up(node, "keys_floats"):
            narrow = f"{node.input[0]}_float32_{len(graph.node)}"
            graph.node.append(helper.make_node("Cast", [node.input[0]], [narrow], to=TensorProto.FLOAT))
            node.input[0] = narrow
        scores = ""
        if node.op_type in _GIVE_FLOATS or _is_looked_up(node, "values_floats"):
            scores = node.output[-1]
            node.output[len(node.output) - 1] = f"{scores}_float32"
        graph.node.append(node)
        if scores:
            graph.node.append(helper.make_node("Cast", [f"{scores}_float32"], [scores], to=TensorProto.DOUBLE))
    for output in graph.output:
        if output.type.tensor_type.elem_type == TensorProto.FLOAT:
            output.type.tensor_type.elem_type = TensorProto.DOUBLE
        if output.type.HasField("sequence_type"):
            item = output.type.sequence_type.elem_type
            if item.HasField("map_type"):  # of a ZipMap
                item.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
            elif item.tensor_type.elem_type == TensorProto.FLOAT:
                item.tensor_type.elem_type = TensorProto.DOUBLE


def _is_looked_up(node: onnx.NodeProto, table: str) -> bool:
    return node.op_type == "LabelEncoder" and any(a.name == table for a in node.attribute)


def _widen_inside(node: onnx.NodeProto) -> None:
    """The constants and the type that a node has as attributes, and those of the nodes inside it."""
    for attribute in node.attribute:
        if attribute.name == "to" and attribute.i == TensorProto.FLOAT and ROUNDED not in node.output[0]:
            attribute.i = TensorProto.DOUBLE
        if attribute.name == "value" and attribute.HasField("t"):
            attribute.t.CopyFrom(_as_double(attribute.t))
        if attribute.HasField("g"):
            for constant in attribute.g.initializer:
                constant.CopyFrom(_as_double(constant))
            for value in (*attribute.g.input, *attribute.g.output):
                if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                    value.type.tensor_type.elem_type = TensorProto.DOUBLE
            for inner in attribute.g.node:
                _widen_inside(inner)


def _as_double(tensor: onnx.TensorProto) -> onnx.TensorProto:
    if tensor.data_type != TensorProto.FLOAT:
        return tensor
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)
