"""What the runtime's own kernels may be off: measured here again, and held to that alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from onnxtool.equality.compare_runners import compare_runners
from onnxtool.equality.reference import reference_of_source
from onnxtool.equality.rule.difference import Difference
from onnxtool.equality.rule.kernel_errors import kernel_errors
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.model.ir.queries import attribute
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.runner import OnnxRunner


def _sigmoid(nodes: list[onnx.NodeProto], outputs: list[str]) -> ir.Model:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, 1, ["b", 4]) for n in ("x", "z")],
        [helper.make_tensor_value_info(n, 1, None) for n in outputs],
    )
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))


def test_only_what_comes_from_sigmoid_itself_has_its_error() -> None:
    node = helper.make_node
    nodes = [
        node("Sigmoid", ["x"], ["p"]),
        node("Transpose", ["p"], ["turned"]),
        node("Concat", ["z", "p"], ["joined"], axis=1),
        node("Log", ["p"], ["log"]),
        node("Mul", ["p", "z"], ["weighed"]),
        node("Tanh", ["x"], ["t"]),
        node("Gather", ["z", "i"], ["chosen"]),
        node("Cast", ["p"], ["i"], to=7),
        node("Sigmoid", ["z"], ["objectness"]),
        node("Mul", ["p", "objectness"], ["score"]),
        node("ReduceMax", ["score"], ["best"], keepdims=0),
        node("TopK", ["p", "k"], ["top", "place"]),
        node("Mul", ["p", "x"], ["silu"]),
        node("Pad", ["p", "k"], ["padded"]),  # the numbers that are added are exact, the others are not
        node("Identity", ["x"], ["same"]),
        node("Mul", ["same", "p"], ["swish"]),
    ]
    # The nodes in an order that they can run in: the runtime and the walk both need it.
    nodes.insert(nodes.index(nodes[6]), nodes.pop(7))
    outputs = [
        "p",
        "turned",
        "joined",
        "log",
        "weighed",
        "t",
        "chosen",
        "score",
        "best",
        "top",
        "place",
        "silu",
        "swish",
        "padded",
    ]
    found = kernel_errors(_sigmoid(nodes, outputs))
    assert set(found) == {"p", "turned", "joined", "score", "best", "top", "silu", "swish", "padded"}
    assert found["best"] == found["score"] == 2 * found["p"]
    assert found["silu"] == found["swish"] == 18 * found["p"]


node = helper.make_node
ERF = [node("Mul", ["x", "root"], ["u"]), node("Erf", ["u"], ["e"]), node("Add", ["e", "one"], ["g"])]
SILU = [node("Sigmoid", ["x"], ["s"]), node("Identity", ["x"], ["same"]), node("Mul", ["same", "s"], ["y"])]
TANH = [
    node("Mul", ["x", "x"], ["x2"]),
    node("Mul", ["x", "x2"], ["x3"]),
    node("Mul", ["x3", "cubic"], ["c"]),
    node("Add", ["x", "c"], ["a"]),
    node("Mul", ["a", "slope"], ["u"]),
    node("Tanh", ["u"], ["t"]),
    node("Add", ["one", "t"], ["g"]),
]
TAILS: dict[str, tuple[list[onnx.NodeProto], float]] = {  # -> where the tail is at its worst
    "SiLU": (SILU, -16.5),
    "steep SiLU": (
        [node("Mul", ["x", "two"], ["t"]), node("Sigmoid", ["t"], ["s"]), node("Mul", ["s", "x"], ["y"])],
        -8.25,
    ),
    "half SiLU": ([*SILU[:2], node("Mul", ["same", "s"], ["f"]), node("Mul", ["half", "f"], ["y"])], -16.5),
    "GELU": ([*ERF, node("Mul", ["x", "half"], ["h"]), node("Mul", ["h", "g"], ["y"])], -5.2),
    "GELU, halved last": ([*ERF, node("Mul", ["x", "g"], ["d"]), node("Mul", ["d", "half"], ["y"])], -5.2),
    "GELU by Tanh": ([*TANH, node("Mul", ["x", "half"], ["h"]), node("Mul", ["h", "g"], ["y"])], -4.5),
    "GELU by Tanh as one operator": ([node("Gelu", ["x"], ["y"], approximate="tanh")], -4.5),
    "GELU as one operator": ([node("Gelu", ["x"], ["y"])], -5.2),
    "erfc": (
        [node("Neg", ["x"], ["n"]), node("Erf", ["n"], ["e"]), node("Sub", ["one", "e"], ["y"])],
        -3.8,
    ),
}


def _exact(model: ir.Model, x: np.ndarray) -> np.ndarray:
    """The graph in float64."""
    from math import erf

    values: dict[str, np.ndarray] = {
        n: v.const_value.numpy().astype(float) for n, v in model.graph.initializers.items() if v.const_value is not None
    }
    values["x"] = x.astype(float)
    act = np.vectorize(erf)

    def gelu(a: np.ndarray) -> np.ndarray:
        by_tanh = any(attribute(step, "approximate", "none") == "tanh" for step in model.graph)
        inner = np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)) if by_tanh else act(a / np.sqrt(2))
        return np.asarray(a / 2 * (1 + inner))

    for step in model.graph:
        given = [values[v.name or ""] for v in step.inputs if v is not None]
        with np.errstate(over="ignore"):
            values[step.outputs[0].name or ""] = {
                "Mul": lambda a, b: a * b,
                "Add": lambda a, b: a + b,
                "Sub": lambda a, b: a - b,
                "Neg": lambda a: -a,
                "Identity": lambda a: a,
                "Sigmoid": lambda a: 1 / (1 + np.exp(-a)),
                "Erf": act,
                "Tanh": np.tanh,
                "Gelu": gelu,
            }[step.op_type](*given)
    return values["y"]


@pytest.mark.parametrize("name", TAILS)
def test_the_tail_of_an_activation_may_be_off_by_what_its_kernel_is(name: str) -> None:
    nodes, center = TAILS[name]
    numbers = {"one": 1.0, "two": 2.0, "half": 0.5, "root": 0.5**0.5, "cubic": 0.044715, "slope": (2 / np.pi) ** 0.5}
    used = {i for n in nodes for i in n.input}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, ["b", 4])],
        [helper.make_tensor_value_info("y", 1, ["b", 4])],
        [numpy_helper.from_array(np.array(v, np.float32), k) for k, v in numbers.items() if k in used],
    )
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    (allowed,) = kernel_errors(model).values()
    x = np.random.default_rng(0).uniform(center - 1, center + 1, (256, 4)).astype(np.float32)
    exact, found = _exact(model, x).astype(np.float32), OnnxRunner.open(model).run({"x": x})["y"]

    def equal(least: float, more: float = 0.0) -> bool:
        difference = Difference("y", replace(Tolerance(), floor=least))
        difference.add(exact, found + np.float32(more))
        return difference.result().ok

    assert equal(allowed) and not equal(0.0), float(np.abs(exact - found).max())
    assert allowed < 12 * float(np.abs(exact - found).max()), "allows much more than it is off"
    assert not equal(allowed, 3 * allowed)


def test_a_gate_of_something_else_is_no_tail() -> None:
    nodes = [
        node("Sigmoid", ["z"], ["s"]),
        node("Mul", ["x", "s"], ["y"]),
        node("Erf", ["x"], ["e"]),
        node("Add", ["e", "z"], ["w"]),
    ]
    assert kernel_errors(_sigmoid(nodes, ["y", "w"])) == {}


class _Exact:
    """Sigmoid in float64, rounded once, as frameworks give it; and with an error of its own."""

    def __init__(self, error: float) -> None:
        self.inputs = (TensorSpec("x", np.dtype(np.float32), ("b", 4)),)
        self.outputs = (TensorSpec("p", np.dtype(np.float32), ("b", 4)),)
        self._error = error

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        x = feeds["x"].astype(np.float64)
        return {"p": (1 / (1 + np.exp(-x)) + self._error).astype(np.float32)}


@pytest.mark.parametrize(
    ("error", "center", "ok"), [(0, -17, True), (6e-7, -17, False), (0, -8, True), (2e-6, -8, False), (2e-5, 0, True)]
)
def test_a_small_probability_may_be_off_by_the_error_of_the_runtimes_sigmoid(
    error: float, center: float, ok: bool
) -> None:
    graph = helper.make_graph(
        [helper.make_node("Sigmoid", ["x"], ["p"])],
        "g",
        [helper.make_tensor_value_info("x", 1, ["b", 4])],
        [helper.make_tensor_value_info("p", 1, ["b", 4])],
    )
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    source: Any = _Exact(error)
    feeds = [{"x": np.random.default_rng(0).uniform(center - 1, center + 1, (32, 4)).astype(np.float32)}]
    report = compare_runners(reference_of_source(source, model), OnnxRunner.open(model), feeds)
    assert report.ok is ok
    assert "2.4e-07 more where they come from Sigmoid, Erf or Tanh" in report.rule
    assert bool(report.warnings) is (center == -17)  # within ten times the error nothing can be told
