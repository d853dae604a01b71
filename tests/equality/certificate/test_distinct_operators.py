"""No operator passes for another one: what each makes of the same inputs in the field is its own."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxtool.equality.certificate import operators
from onnxtool.equality.certificate.certify import certify
from onnxtool.equality.certificate.field import Field
from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.values import NotCoveredError, Value

operators.register()
FIELD = Field(5)
UNARY = """
Abs Neg Ceil Floor Round Sign Relu Exp Log Sqrt Reciprocal Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh
Atanh Sigmoid Softplus Softsign HardSwish Mish Gelu Elu Selu LeakyRelu HardSigmoid ThresholdedRelu Identity Softmax
LogSoftmax Hardmax Swish IsNaN IsInf LpNormalization GlobalMaxPool GlobalAveragePool GlobalLpPool ReduceSum ReduceMean
ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare ArgMax ArgMin
"""
BITWISE = "BitwiseAnd BitwiseOr BitwiseXor"
BINARY = {
    "f4": "Add Sub Mul Div Pow Mod Min Max PRelu Equal Less Greater LessOrEqual GreaterOrEqual Mean MatMul",
    "i4": "Add Sub Mul Div Pow Mod Min Max Equal Less Greater LessOrEqual GreaterOrEqual " + BITWISE,
    "?": "And Or Xor Equal",
}
ATTRIBUTES: dict[str, dict[str, object]] = {"Mod": {"fmod": 1}}


def evaluated(kind: str, inputs: dict[str, tuple[str, tuple[int, ...]]], **attributes: object) -> bytes:
    """The elements that one operator makes of drawn inputs, with their shape."""
    node = helper.make_node(kind, list(inputs), ["y"], **attributes)
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    feeds = {
        n: Value(FIELD.draw(n, shape) % (2 if dtype == "?" else FIELD.p), np.dtype(dtype), False)
        for n, (dtype, shape) in inputs.items()
    }
    found = Interpreter(model, FIELD).run(feeds)["y"]
    return repr(found.data.shape).encode() + np.ascontiguousarray(found.data).tobytes()


def assert_distinct(found: dict[str, bytes]) -> None:
    names = sorted(found, key=lambda n: found[n])
    assert [pair for pair in pairwise(names) if found[pair[0]] == found[pair[1]]] == []
    assert len(found) > 3


def test_operators_of_one_input_are_distinct() -> None:
    assert_distinct({kind: evaluated(kind, {"x": ("f4", (2, 3, 4, 4))}) for kind in UNARY.split()})


@pytest.mark.parametrize("dtype", BINARY)
def test_operators_of_two_inputs_are_distinct(dtype: str) -> None:
    shapes = {"a": (dtype, (4, 4)), "b": (dtype, (4, 4))}
    found = {}
    for kind in BINARY[dtype].split():
        own = ATTRIBUTES.get(kind, {}) if dtype == "f4" else {}
        found[kind] = evaluated(kind, shapes, **own)
        if kind not in ("Add", "Mul", "Max", "Min", "Mean", "And", "Or", "Xor", "Equal"):
            found[f"{kind} turned"] = evaluated(kind, dict(reversed(shapes.items())), **own)
    # a < b and b > a are the same
    for one, other in (("Less", "Greater"), ("LessOrEqual", "GreaterOrEqual")):
        if one in found:
            assert found[one] == found.pop(f"{other} turned")
            assert found[other] == found.pop(f"{one} turned")
    for kind in BITWISE.split():
        found.pop(f"{kind} turned", None)
    assert_distinct(found)


def of_weight(node: str, opset: int = 20, kind: str = "float") -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}]> g ({kind}[1, 2, 6, 6] x) => (float y) {{ {node} }}'
    )
    values = {"w": np.ones((2, 2, 3, 3), np.float32), "s": np.float32([1, 1, 2, 2])}
    model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in values.items() if f" {n}" in node)
    return model


@pytest.mark.parametrize(
    "node", ["y = Conv<spectral = 3>(x, w)", "y = Relu<slope = 0.5>(x)", "y = Add<axis = 1>(x, x)"]
)
def test_an_attribute_that_nobody_looked_at_certifies_nothing(node: str) -> None:
    found = certify(of_weight(node), of_weight(node))
    assert found.verdict == "not tested"
    assert "with" in found.reason


def test_an_input_that_nobody_looked_at_certifies_nothing() -> None:
    node = helper.make_node("Exp", ["x", "more"], ["y"])
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    x = Value(FIELD.draw("x", (2,)), np.dtype("f4"), False)
    with pytest.raises(NotCoveredError, match="2 inputs"):
        Interpreter(model, FIELD).run({"x": x, "more": x})


@pytest.mark.parametrize("old", [("Upsample", 9, "x, s"), ("Resize", 10, "x, s")])
def test_resizing_of_old_opsets_counts_from_the_edge(old: tuple[str, int, str]) -> None:
    kind, opset, inputs = old
    before = of_weight(f'y = {kind}<mode = "linear">({inputs})', opset)
    for place, verdict in (("asymmetric", "certified"), ("half_pixel", "not tested"), ("align_corners", "not tested")):
        node = f'y = Resize<mode = "linear", coordinate_transformation_mode = "{place}">(x, , s)'
        assert certify(before, of_weight(node, 13)).verdict == verdict


def test_formats_of_the_same_width_hold_different_numbers() -> None:
    plain = of_weight("y = Cast<to = 1>(x)", kind="float16")
    assert certify(plain, of_weight("a = Cast<to = 16>(x) y = Cast<to = 1>(a)", kind="float16")).verdict != "certified"
    through = of_weight("a = Cast<to = 11>(x) b = Cast<to = 10>(a) y = Cast<to = 1>(b)", kind="float16")
    assert certify(plain, through).verdict == "certified"
