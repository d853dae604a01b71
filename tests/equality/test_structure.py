"""Equal digests for equal computations, and only for these."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.equality.structure import digests

WEIGHT = np.arange(16, dtype=np.float32).reshape(4, 4)


def digest(body: str, weight: np.ndarray = WEIGHT, head: str = "float[b,4] x") -> bytes:
    model = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 20]> g ({head}) => (float[b,4] y) <float[4,4] w> '
        f"{{ unused = Identity(w)  {body} }}",
        initializers=[ir.tensor(weight, name="w")],
    )
    return digests(model)["y"]


def test_names_of_inner_values_do_not_matter() -> None:
    assert digest("p = MatMul(x, w)  y = Relu(p)") == digest("other = MatMul(x, w)  y = Relu(other)")


@pytest.mark.parametrize(
    "body", ["p = MatMul(x, w)  y = Tanh(p)", "p = MatMul(w, x)  y = Relu(p)", "p = Gemm(x, w)  y = Relu(p)"]
)
def test_another_operator_or_order_is_another_digest(body: str) -> None:
    assert digest("p = MatMul(x, w)  y = Relu(p)") != digest(body)


def test_one_weight_makes_another_digest() -> None:
    other = WEIGHT.copy()
    other[3, 3] += 1e-4
    assert digest("y = MatMul(x, w)") != digest("y = MatMul(x, w)", other)


def test_attributes_count() -> None:
    assert digest("y = LeakyRelu <alpha = 0.1> (x)") != digest("y = LeakyRelu <alpha = 0.2> (x)")


def test_inputs_are_told_apart_by_place() -> None:
    head = "float[b,4] x, float[b,4] z"
    assert digest("y = Neg(x)", head=head) != digest("y = Neg(z)", head=head)


def test_a_body_counts_with_what_it_captures() -> None:
    body = (
        "s = ReduceSum <keepdims = 0> (x)  k = Constant <value_float = 1.0> ()  c = Greater(s, k)  "
        "y = If (c) <then_branch = t () => (p) {{ p = {} }}, else_branch = e () => (q) {{ q = Identity(x) }}>"
    )
    assert digest(body.format("MatMul(x, w)")) != digest(body.format("Neg(x)"))
    other = WEIGHT + 1
    assert digest(body.format("MatMul(x, w)")) != digest(body.format("MatMul(x, w)"), other)


def test_a_constant_inside_a_body_counts() -> None:
    body = (
        "s = ReduceSum <keepdims = 0> (x)  k = Constant <value_float = 1.0> ()  c = Greater(s, k)  "
        "y = If (c) <then_branch = t () => (p) {{ v = Constant <value = float[1] {{{}}}> ()  p = Mul(x, v) }}, "
        "else_branch = e () => (q) {{ q = Identity(x) }}>"
    )
    assert digest(body.format("2.0")) != digest(body.format("3.0"))
    assert digest(body.format("2.0")) == digest(body.format("2.0"))


def test_what_a_node_of_a_body_reads_counts() -> None:
    body = (
        "s = ReduceSum <keepdims = 0> (x)  k = Constant <value_float = 1.0> ()  c = Greater(s, k)  "
        "y = If (c) <then_branch = t () => (p) {{ a = Neg(x)  d = Exp(x)  p = Sub({}) }}, "
        "else_branch = e () => (q) {{ q = Identity(x) }}>"
    )
    assert digest(body.format("a, d")) != digest(body.format("d, a"))
    assert digest(body.format("a, d")) == digest(body.format("a, d"))
    assert digest(body.format("a, d")) == digest(body.format("a, d").replace("d = ", "z = ").replace("a, d", "a, z"))


def test_which_result_a_body_gives_counts() -> None:
    body = (
        "s = ReduceSum <keepdims = 0> (x)  k = Constant <value_float = 1.0> ()  c = Greater(s, k)  "
        "y = If (c) <then_branch = t () => ({}) {{ a = Neg(x)  d = Exp(x) }}, "
        "else_branch = e () => (q) {{ q = Identity(x) }}>"
    )
    assert digest(body.format("a")) != digest(body.format("d"))


def test_weights_and_tensors_inside_a_body_count() -> None:
    def of(weight: float, constant: float) -> bytes:
        from onnx import TensorProto, helper, numpy_helper

        one = numpy_helper.from_array(np.array(weight, np.float32), "inner")
        two = numpy_helper.from_array(np.array(constant, np.float32), "tensor")
        kind = helper.make_tensor_type_proto(TensorProto.FLOAT, ["b", 4])
        then = helper.make_graph(
            [
                helper.make_node("Constant", [], ["k"], value=two),
                helper.make_node("Mul", ["x", "inner"], ["m"]),
                helper.make_node("Add", ["m", "k"], ["p"]),
            ],
            "then",
            [],
            [helper.make_value_info("p", kind)],
            [one],
        )
        other = helper.make_graph(
            [helper.make_node("Neg", ["x"], ["q"])], "else", [], [helper.make_value_info("q", kind)]
        )
        node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
        flag = helper.make_value_info("c", helper.make_tensor_type_proto(TensorProto.BOOL, []))
        made = helper.make_graph(
            [node], "g", [helper.make_value_info("x", kind), flag], [helper.make_value_info("y", kind)]
        )
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        return digests(ir.from_proto(model))["y"]

    assert of(1.0, 2.0) == of(1.0, 2.0)
    assert of(1.0, 2.0) != of(1.5, 2.0)
    assert of(1.0, 2.0) != of(1.0, 2.5)


def test_a_table_as_an_attribute_inside_a_body_counts_by_its_values() -> None:
    """Two graphs read from a file hold it in objects of their own."""
    body = (
        "s = ReduceSum <keepdims = 0> (x)  k = Constant <value_float = 1.0> ()  c = Greater(s, k)  "
        "y = If (c) <then_branch = t () => (p) { v = Constant <value = float[4] {1.0, 2.0, 3.0, 4.0}> ()  "
        "p = Mul(x, v) }, else_branch = e () => (q) { q = Identity(x) }>"
    )
    assert digest(body) == digest(body)
    assert digest(body) != digest(body.replace("4.0}", "5.0}"))


def test_what_a_body_gives_of_the_graph_around_it_counts() -> None:
    body = (
        "s = ReduceSum <keepdims = 0> (x)  k = Constant <value_float = 1.0> ()  c = Greater(s, k)  a = Neg(x)  "
        "y = If (c) <then_branch = t () => (float[b,4] a) { }, else_branch = e () => (q) { q = Identity(x) }>"
    )
    assert digest(body) == digest(body)
    assert digest(body) != digest(body.replace("(float[b,4] a)", "(float[b,4] x)"))
