"""compare --layers: which weight of a folded chain was another one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.equality.layers.compare_layers import compare_layers
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.report.layers import Suspect

EPSILON = 1e-3
Weights = dict[str, np.ndarray]


def drawn(kernel: tuple[int, ...], channels: int) -> Weights:
    generator = np.random.default_rng(0)

    def some(*shape: int) -> np.ndarray:
        return generator.uniform(0.5, 1.5, shape) * generator.choice([-1.0, 1.0], shape)

    return {
        "w": some(*kernel),
        "b": some(channels),
        "gamma": some(channels),
        "beta": some(channels),
        "mean": some(channels),
        "variance": generator.uniform(0.5, 1.5, channels),
        "factor": some(channels),
        "offset": some(1),
    }


def written(path: Path, nodes: list[onnx.NodeProto], weights: Weights, rank: int) -> Path:
    """x -> nodes -> y."""
    graph = helper.make_graph(
        nodes,
        "folding",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, *[5] * (rank - 2)])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return path


def damaged(weights: Weights, name: str) -> Weights:
    changed = weights[name].copy()
    changed.reshape(-1)[-1] += 0.7
    return {**weights, name: changed}


def suspects(a: Path, b: Path, rank: int) -> tuple[Suspect, ...]:
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 4, *[5] * (rank - 2))).astype(np.float32)}
    found = compare_layers(a, b, feeds, Tolerance())
    return found.culprit.suspects if found.culprit else ()


def normalized(linear: str, last: str, **attributes: int) -> list[onnx.NodeProto]:
    return [
        helper.make_node(linear, ["x", "w", "b"], ["z"], "linear", **attributes),
        helper.make_node(
            "BatchNormalization", ["z", "gamma", "beta", "mean", "variance"], [last], "norm", epsilon=EPSILON
        ),
    ]


def folded(weights: Weights, transposed_groups: int = 0) -> Weights:
    """The normalization inside the linear operator, by the formula of the specification."""
    scale = weights["gamma"] / np.sqrt(weights["variance"] + EPSILON)
    kernel = weights["w"]
    if transposed_groups:  # [in, out / groups, ...]: each group of inputs makes its own outputs
        parts = zip(np.split(kernel, transposed_groups), np.split(scale, transposed_groups), strict=True)
        kernel = np.concatenate([part * own.reshape(1, -1, 1, 1) for part, own in parts])
    else:
        kernel = kernel * scale.reshape(-1, *[1] * (kernel.ndim - 1))
    return {"w2": kernel, "b2": (weights["b"] - weights["mean"]) * scale + weights["beta"]}


@pytest.mark.parametrize(
    ("weight", "node", "explaining"),
    [
        ("w", "linear", ("w",)),
        ("gamma", "norm", ("gamma", "variance")),
        ("variance", "norm", ("gamma", "variance")),
        # Bias, mean and beta move the same numbers: the node with two that could comes first.
        ("mean", "norm", ("beta", "mean")),
        ("beta", "norm", ("beta", "mean")),
    ],
)
@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose", "Gemm"])
def test_a_folded_normalization(kind: str, weight: str, node: str, explaining: tuple[str, ...], tmp_path: Path) -> None:
    kernel = {"Conv": (6, 2, 3, 3), "ConvTranspose": (4, 3, 3, 3), "Gemm": (6, 4)}[kind]
    attributes = {"Conv": {"group": 2}, "ConvTranspose": {"group": 2}, "Gemm": {"transB": 1}}[kind]
    groups = 2 if kind == "ConvTranspose" else 0
    weights = drawn(kernel, 6)
    rank = len(kernel)
    del weights["factor"], weights["offset"]
    a = written(
        tmp_path / "a.onnx",
        [*normalized(kind, "n", **attributes), helper.make_node("Relu", ["n"], ["y"])],
        weights,
        rank,
    )
    fused = [
        helper.make_node(kind, ["x", "w2", "b2"], ["n"], "linear", **attributes),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    right = written(tmp_path / "right.onnx", fused, folded(weights, groups), rank)
    assert suspects(a, right, rank) == ()
    wrong = folded(damaged(weights, weight), groups)
    first = suspects(a, written(tmp_path / "b.onnx", fused, wrong, rank), rank)[0]
    assert first.node == node
    assert set(first.explaining_weights) == set(explaining)


@pytest.mark.parametrize(("weight", "node"), [("w", "linear"), ("factor", "times"), ("offset", "plus")])
def test_a_folded_product_and_sum(weight: str, node: str, tmp_path: Path) -> None:
    weights = {n: v for n, v in drawn((4, 6), 6).items() if n in ("w", "factor", "offset")}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "linear"),
        helper.make_node("Add", ["offset", "m"], ["p"], "plus"),
        helper.make_node("Mul", ["p", "factor"], ["y"], "times"),
    ]
    a = written(tmp_path / "a.onnx", nodes, weights, 2)
    other = damaged(weights, weight)
    gemm = {"w2": other["w"] * other["factor"], "b2": other["offset"] * other["factor"]}
    b = written(tmp_path / "b.onnx", [helper.make_node("Gemm", ["x", "w2", "b2"], ["y"], "gemm")], gemm, 2)
    first = next(s for s in suspects(a, b, 2) if s.explaining_weights)
    assert (first.node, first.explaining_weights) == (node, (weight,))


def test_two_changed_weights_are_explained_by_neither(tmp_path: Path) -> None:
    weights = {n: v for n, v in drawn((6, 4, 3, 3), 6).items() if n not in ("factor", "offset")}
    a = written(tmp_path / "a.onnx", normalized("Conv", "y"), weights, 4)
    wrong = folded(damaged(damaged(weights, "w"), "beta"))
    b = written(tmp_path / "b.onnx", [helper.make_node("Conv", ["x", "w2", "b2"], ["y"], "linear")], wrong, 4)
    found = suspects(a, b, 4)
    assert {s.node for s in found} == {"linear", "norm"}
    assert not any(s.explaining_weights for s in found)
