"""What the runtime's own kernels are off is told by the same graph with exact ones, and nothing else is excused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper, parser

from onnxtool.equality.compare_runners import compare_runners
from onnxtool.equality.reference import reference_of_source
from onnxtool.equality.rule.difference import Difference
from onnxtool.equality.rule.exact_kernels import exact_kernels, with_exact_kernels
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.model.ir.queries import attribute
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

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
    "product with another number": ([node("Sigmoid", ["x"], ["s"]), node("Mul", ["s", "two"], ["y"])], -16.5),
    "product with several numbers": (
        [
            node("Sigmoid", ["x"], ["s"]),
            node("Constant", [], ["c"], value_floats=[1.0, 2.0, 3.0, 4.0]),
            node("Mul", ["s", "c"], ["y"]),
        ],
        -16.5,
    ),
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
                "Constant": lambda: np.arange(1.0, 5.0),
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
    x = np.random.default_rng(0).uniform(center - 1, center + 1, (256, 4)).astype(np.float32)
    right, found = _exact(model, x).astype(np.float32), OnnxRunner.open(model).run({"x": x})["y"]
    with_exact_kernels(model)
    exact = OnnxRunner.open(model).run({"x": x})["y"]

    def equal(given: np.ndarray, same_graph: np.ndarray | None) -> bool:
        difference = Difference("y", Tolerance(), usual_scale=1.0)
        difference.add(right, given, exact=lambda: same_graph)
        return difference.result().ok

    assert np.allclose(exact, right, rtol=1e-4, atol=1e-10)
    assert equal(found, exact) and not equal(found, None), float(np.abs(right - found).max())
    assert not equal(found, exact * np.float32(1.01)), "another function"
    assert not equal(found + np.float32(0.02), exact), "further off than a hundredth of the usual scale"


@pytest.mark.parametrize("body", ["s = Sigmoid(x) big = Add(s, many) y = Sub(big, many)", "s = Sigmoid(x) y = Log(s)"])
def test_a_sum_that_loses_what_the_kernel_gave_is_the_graphs_own_fault(body: str) -> None:
    """Only the kernel is exact, and what it is multiplied by; sums round as the runtime rounds them."""
    text = '<ir_version: 10, opset_import: ["": 20]> g (float[n] x) => (float[n] y)'
    model = ir.from_proto(parser.parse_model(f"{text} <float many = {{1000.0}}> {{ {body} }}"))
    x = np.linspace(-15, 0, 50, dtype=np.float32)
    before = OnnxRunner.open(model).run({"x": x})["y"]
    with_exact_kernels(model)
    after = OnnxRunner.open(model).run({"x": x})["y"]
    right = 1 / (1 + np.exp(-x.astype(np.float64)))
    if "Sub" in body:
        assert np.abs(after - right).max() > 1e-5, "the sum is in float32"
    else:
        difference = Difference("y", Tolerance(), usual_scale=1.0)
        infinite = np.where(x < -14, -np.inf, before)
        difference.add(np.log(right).astype(np.float32), infinite.astype(np.float32), exact=lambda: after)
        assert not difference.result().ok, "an infinity is no rounding"


@pytest.mark.parametrize(
    "body",
    [
        "t = Tanh(x) y = Mul(x, x)",
        "t = Tanh(x) e = Erf(x) y = Add(t, e)",
        "t = Tanh(x) y = Add(t, x)",
        "t = Tanh(x) y = Add(t, two)",
        "t = Tanh(x) y = Add(t, many)",
        "s = Sigmoid(x) y = Sub(one, s)",
        "s = Sigmoid(x) y = custom.Mul(s, x)",
    ],
    ids=["input", "sum of two", "sum with an input", "with two", "with several", "Sigmoid", "of another domain"],
)
def test_what_is_no_product_of_a_kernel_stays_as_it_is(body: str) -> None:
    numbers = "<float one = {1.0}, float two = {2.0}, float[2] many = {1.0, 1.0}>"
    text = f'<ir_version: 10, opset_import: ["": 20, "custom": 1]> g (float[n] x) => (float[n] y) {numbers}'
    model = ir.from_proto(parser.parse_model(f"{text} {{ {body} }}"))
    with_exact_kernels(model)
    made = model.graph.outputs[0].producer()
    assert made is not None and made.op_type == body.split(" = ")[-1].split("(")[0].split(".")[-1]


def test_a_graph_without_such_kernels_has_no_second_one() -> None:
    model = ir.from_proto(
        parser.parse_model('<ir_version: 10, opset_import: ["": 20]> g (float[n] x) => (float[n] y) { y = Exp(x) }')
    )
    assert exact_kernels(model, model.clone, SessionOptions()) is None


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
    ("error", "center", "ok"), [(0, -17, True), (2e-5, -17, False), (0, -8, True), (2e-5, -8, False), (2e-5, 0, True)]
)
def test_a_small_probability_may_be_off_by_the_error_of_the_runtimes_sigmoid(
    error: float, center: float, ok: bool
) -> None:
    text = '<ir_version: 10, opset_import: ["": 20]> g (float[b, 4] x) => (float[b, 4] p) { p = Sigmoid(x) }'
    model = ir.from_proto(parser.parse_model(text))
    source: Any = _Exact(error)
    generator = np.random.default_rng(0)
    feeds = [{"x": generator.uniform(c - 1, c + 1, (32, 4)).astype(np.float32)} for c in (0, center)]
    report = compare_runners(reference_of_source(source, model), OnnxRunner.open(model), feeds)
    assert report.ok is ok
