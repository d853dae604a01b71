"""`compare` finds pairs that are equal on usual random inputs and differ on others, and only those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtool

F, I64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
RNG = np.random.default_rng(5)
WEIGHT = RNG.standard_normal((8, 4)).astype(np.float32)
TABLE = RNG.standard_normal((512, 8)).astype(np.float32)
EMBEDDING = RNG.standard_normal((5000, 8)).astype(np.float32)
node = helper.make_node
Model = Callable[..., onnx.ModelProto]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[tuple[str, int, list[Any]]],
    output: tuple[str, int, list[Any] | None],
    weights: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*output)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


ROWS = [("x", F, ["b", 8])]


def masked(used: bool) -> onnx.ModelProto:
    """Attention mask that is used, or multiplied by zero."""
    nodes = [node("Cast", ["attention_mask"], ["f"], to=F), node("Unsqueeze", ["f", "last"], ["m"])]
    nodes += (
        [node("Mul", ["x", "m"], ["xm"])]
        if used
        else [node("Mul", ["m", "zero"], ["z"]), node("Add", ["x", "z"], ["xm"])]
    )
    nodes += [node("ReduceSum", ["xm", "first"], ["y"], keepdims=0)]
    inputs = [("x", F, ["b", "s", 8]), ("attention_mask", I64, ["b", "s"])]
    return model(nodes, inputs, ("y", F, ["b", 8]), {"last": [2], "first": [1], "zero": np.float32(0)})


def clipped(high: float, kind: int = F) -> onnx.ModelProto:
    nodes = [node("Cast", ["x"], ["f"], to=F), node("Min", ["f", "high"], ["y"])]
    return model(nodes, [("x", kind, ["b", 8])], ("y", F, ["b", 8]), {"high": np.float32(high)})


def absolute(taken: bool) -> onnx.ModelProto:
    return model([node("Abs" if taken else "Identity", ["x"], ["y"])], [("x", I64, ["n"])], ("y", I64, ["n"]))


def positions(rows: int) -> onnx.ModelProto:
    """A table of positions of which only the first rows are right."""
    table = np.where(np.arange(512)[:, None] < rows, TABLE, 0).astype(np.float32)
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["length"]),
        node("Range", ["zero", "length", "one"], ["places"]),
        node("Gather", ["table", "places"], ["p"]),
        node("Add", ["x", "p"], ["y"]),
    ]
    weights = {"table": table, "one": np.array(1), "zero": np.array(0)}
    return model(nodes, [("x", F, ["b", "s", 8])], ("y", F, ["b", "s", 8]), weights)


def above_batch(limit: int) -> onnx.ModelProto:
    """Twice as large where the batch is above a limit."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"]),
        node("Greater", ["batch", "limit"], ["large"]),
        node("Where", ["large", "two", "one"], ["k"]),
        node("Mul", ["x", "k"], ["y"]),
    ]
    weights = {"zero": np.array(0), "limit": np.array(limit), "two": np.float32(2), "one": np.float32(1)}
    return model(nodes, ROWS, ("y", F, ["b", 8]), weights)


def embedded(row: int | None) -> onnx.ModelProto:
    table = EMBEDDING.copy()
    if row is not None:
        table[row] += 1
    return model(
        [node("Gather", ["t", "ids"], ["y"])], [("ids", I64, ["b", "s"])], ("y", F, ["b", "s", 8]), {"t": table}
    )


def branching(weight: np.ndarray, limit: float, reduction: str = "ReduceMax") -> onnx.ModelProto:
    """An If whose first branch needs unusual values."""

    def branch(name: str, array: np.ndarray) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(name, F, None)
        return helper.make_graph(
            [node("MatMul", ["x", f"w{name}"], [name])], name, [], [out], [numpy_helper.from_array(array, f"w{name}")]
        )

    nodes = [
        node(reduction, ["x"], ["r"], keepdims=0),
        node("Greater" if limit > 0 else "Less", ["r", "limit"], ["c"]),
        node("If", ["c"], ["y"], then_branch=branch("t", weight), else_branch=branch("e", WEIGHT)),
    ]
    return model(nodes, ROWS, ("y", F, ["b", 4]), {"limit": np.float32(limit)})


def column(scale: float, other: float = 1e6) -> onnx.ModelProto:
    weight = np.array([[other, 0], [0, scale]], np.float32)
    return model([node("MatMul", ["x", "w"], ["y"])], [("x", F, ["b", 2])], ("y", F, ["b", 2]), {"w": weight})


def words(known: list[str]) -> onnx.ModelProto:
    encoder = node(
        "LabelEncoder",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        keys_strings=known,
        values_int64s=list(range(1, len(known) + 1)),
        default_int64=0,
    )
    return model([encoder], [("x", STRING, ["b"])], ("y", I64, ["b"]))


def mode(factor: float) -> onnx.ModelProto:
    """Another factor for one number of a mode."""
    nodes = [node("Equal", ["k", "c"], ["e"]), node("Where", ["e", "v", "o"], ["s"]), node("Mul", ["x", "s"], ["y"])]
    weights = {"c": np.array(37), "v": np.float32(factor), "o": np.float32(1)}
    return model(nodes, [*ROWS, ("k", I64, [])], ("y", F, ["b", 8]), weights)


def looping(limit: float) -> onnx.ModelProto:
    """A sum that stops growing after so many turns."""
    scalar = [("i", I64, []), ("c", TensorProto.BOOL, []), ("a", F, [])]
    body = helper.make_graph(
        [node("Identity", ["c"], ["co"]), node("Add", ["a", "one"], ["more"]), node("Min", ["more", "limit"], ["ao"])],
        "body",
        [helper.make_tensor_value_info(*s) for s in scalar],
        [helper.make_tensor_value_info("co", TensorProto.BOOL, []), helper.make_tensor_value_info("ao", F, [])],
    )
    nodes = [node("Loop", ["n", "", "a0"], ["af"], body=body), node("Add", ["x", "af"], ["y"])]
    weights = {"a0": np.float32(0), "one": np.float32(1), "limit": np.float32(limit)}
    return model(nodes, [*ROWS, ("n", I64, [])], ("y", F, ["b", 8]), weights)


def tree(threshold: float, rule: str = "BRANCH_LEQ") -> onnx.ModelProto:
    regressor = node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[2, 0, 0],
        nodes_values=[threshold, 0.0, 0.0],
        nodes_modes=[rule, "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0],
        target_nodeids=[1, 2],
        target_ids=[0, 0],
        target_weights=[1.0, 2.0],
        n_targets=1,
    )
    return model([regressor], [("x", F, ["b", 4])], ("y", F, ["b", 1]))


def flattened(order: list[int]) -> onnx.ModelProto:
    nodes = [node("Transpose", ["x"], ["t"], perm=order), node("Reshape", ["t", "shape"], ["y"])]
    return model(nodes, [("x", F, ["b", "h", "w"])], ("y", F, ["b", None]), {"shape": np.array([0, -1])})


def leaky(slope: float) -> onnx.ModelProto:
    return model([node("LeakyRelu", ["x"], ["y"], alpha=slope)], ROWS, ("y", F, ["b", 8]))


def filled(used: bool) -> onnx.ModelProto:
    """NaN replaced by zero, or left."""
    nodes = (
        [node("IsNaN", ["x"], ["i"]), node("Where", ["i", "z", "x"], ["y"])]
        if used
        else [node("Identity", ["x"], ["y"])]
    )
    return model(nodes, ROWS, ("y", F, ["b", 8]), {"z": np.float32(0)} if used else {})


def hidden(offset: float) -> onnx.ModelProto:
    """A term behind a Relu that only a very negative feature switches on."""
    feature = np.zeros((8, 4), np.float32)
    feature[3] = -1
    nodes = [
        node("MatMul", ["x", "w"], ["y0"]),
        node("MatMul", ["x", "f"], ["r0"]),
        node("Sub", ["r0", "k"], ["r1"]),
        node("Relu", ["r1"], ["r"]),
        node("Add", ["y0", "r"], ["y"]),
    ]
    return model(nodes, ROWS, ("y", F, ["b", 4]), {"w": WEIGHT, "f": feature, "k": np.float32(offset)})


def typed(kind: int) -> onnx.ModelProto:
    return model([node("Cast", ["x"], ["y"], to=kind)], ROWS, ("y", kind, ["b", 8]))


ZERO = np.zeros_like(WEIGHT)
DIFFERENT = {
    "a mask that is ignored": (masked(True), masked(False)),
    "pictures above 100": (clipped(255, TensorProto.UINT8), clipped(100, TensorProto.UINT8)),
    "integers below zero": (absolute(True), absolute(False)),
    "positions from 70 on": (positions(512), positions(70)),
    "batches above 8": (above_batch(10**6), above_batch(8)),
    "batches above 37": (above_batch(10**6), above_batch(37)),
    "batches above 299": (above_batch(10**6), above_batch(299)),
    "one row of a table": (embedded(None), embedded(4321)),
    "a branch for large values": (branching(WEIGHT, 50.0), branching(ZERO, 50.0)),
    "a branch for a very negative sum": (
        branching(WEIGHT, -1234.0, "ReduceSum"),
        branching(ZERO, -1234.0, "ReduceSum"),
    ),
    "values above 40": (clipped(1e9), clipped(40)),
    "a rate beside a large column": (column(1.0), column(0.6)),
    "a small column": (column(1e-6, 1.0), column(0.0, 1.0)),
    "a word that one model knows": (words(["cat", "dog"]), words(["cat", "dog", "bird"])),
    "one number of a mode": (mode(1.0), mode(2.0)),
    "many turns of a loop": (looping(1e9), looping(25)),
    "a value at the threshold": (tree(1234.5), tree(1234.5, "BRANCH_LT")),
    "another threshold": (tree(1234.5), tree(1235.0)),
    "height and width": (flattened([0, 1, 2]), flattened([0, 2, 1])),
    "the slope below zero": (leaky(0.0), leaky(0.01)),
    "missing values": (filled(True), filled(False)),
    "a very negative feature": (hidden(1e9), hidden(300)),
    "the type of the output": (typed(F), typed(TensorProto.DOUBLE)),
}
SOUND = {
    "positions": (positions(512), positions(512)),
    "branches": (branching(WEIGHT, 50.0), branching(WEIGHT, 50.0)),
    "a mask": (masked(True), masked(True)),
    "words": (words(["cat", "dog"]), words(["cat", "dog"])),
    "large and small columns": (column(1.0), column(1.0)),
    "a loop": (looping(25), looping(25)),
    "trees": (tree(0.5), tree(0.5)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_difference_that_usual_inputs_hide_is_found(name: str) -> None:
    a, b = DIFFERENT[name]
    report = onnxtool.compare(a, b)
    assert not report.ok


@pytest.mark.parametrize("name", SOUND)
def test_equal_models_are_equal(name: str) -> None:
    a, b = SOUND[name]
    report = onnxtool.compare(a, b)
    assert report.ok, report.outputs


def test_nothing_but_nan_proves_nothing_and_is_said() -> None:
    nodes = [node("Mul", ["x", "s"], ["a"]), node("Add", ["a", "nan"], ["y"])]
    pair = [model(nodes, ROWS, ("y", F, ["b", 8]), {"s": np.float32(s), "nan": np.float32("nan")}) for s in (1, 2)]
    report = onnxtool.compare(*pair)
    assert any("no finite number" in line for line in report.warnings)
