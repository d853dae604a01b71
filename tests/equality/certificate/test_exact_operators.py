"""Operators in the field against ONNX Runtime on whole numbers, where its floats are exact, and against fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from onnxtool.equality.certificate import operators
from onnxtool.equality.certificate.field import Field
from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.values import Value

operators.register()
FIELD = Field(3)
RNG = np.random.default_rng(5)


def whole(*shape: int) -> np.ndarray:
    return RNG.integers(-4, 5, shape).astype(np.float32)


X, W = whole(2, 4, 6, 5), whole(6, 2, 3, 2)
CASES: dict[str, tuple[str, list[np.ndarray], dict[str, object]]] = {
    "Add": ("Add", [whole(2, 3), whole(3)], {}),
    "Sub": ("Sub", [whole(2, 3), whole(2, 1)], {}),
    "Mul": ("Mul", [whole(2, 3), whole(3)], {}),
    "Div": ("Div", [whole(2, 3), np.float32([2, -4, 8])], {}),
    "Neg": ("Neg", [whole(3)], {}),
    "Sum": ("Sum", [whole(2, 3), whole(3), whole(2, 1)], {}),
    "Mean": ("Mean", [whole(2, 3), whole(3)], {}),
    "Reciprocal": ("Reciprocal", [np.float32([2, -8, 0.5])], {}),
    "Pow": ("Pow", [whole(4), np.array(3, np.float32)], {}),
    "MatMul": ("MatMul", [whole(2, 3, 4), whole(4, 5)], {}),
    "MatMul of vectors": ("MatMul", [whole(4), whole(4)], {}),
    "Gemm": ("Gemm", [whole(4, 3), whole(5, 4), whole(5)], {"transA": 1, "transB": 1, "alpha": 2.0, "beta": -0.5}),
    "Einsum": ("Einsum", [whole(2, 3, 4), whole(2, 4, 5)], {"equation": "bij,bjk->bki"}),
    "Conv": (
        "Conv",
        [X, W, whole(6)],
        {"group": 2, "strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 1]},
    ),
    "Conv that keeps the size": ("Conv", [X, W], {"group": 2, "strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    "Conv that pads before": ("Conv", [X, W], {"group": 2, "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    "depthwise Conv": ("Conv", [X, whole(4, 1, 3, 3)], {"group": 4}),
    "ConvTranspose": (
        "ConvTranspose",
        [X, whole(4, 3, 3, 2), whole(6)],
        {"group": 2, "strides": [2, 1], "pads": [1, 0, 0, 1], "output_padding": [1, 0]},
    ),
    "ConvTranspose to a size": ("ConvTranspose", [X, whole(4, 3, 3, 2)], {"strides": [2, 2], "output_shape": [12, 10]}),
    "ConvTranspose to a larger size": (
        "ConvTranspose",
        [X, whole(4, 3, 3, 2), whole(3)],
        {"strides": [2, 3], "output_shape": [14, 15]},
    ),
    "AveragePool": ("AveragePool", [X], {"kernel_shape": [2, 2], "strides": [2, 1]}),
    "AveragePool with pads": (
        "AveragePool",
        [X],
        {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1], "count_include_pad": 1},
    ),
    "AveragePool without pads": ("AveragePool", [X], {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "GlobalAveragePool": ("GlobalAveragePool", [whole(2, 3, 4, 8)], {}),
    "ReduceSum": ("ReduceSum", [whole(2, 3, 4), np.array([0, -1])], {"keepdims": 0}),
    "ReduceMean": ("ReduceMean", [whole(2, 3, 4), np.array([0, 2])], {}),
    "ReduceProd": ("ReduceProd", [whole(2, 3, 4), np.array([1, 2])], {}),
    "ReduceSumSquare": ("ReduceSumSquare", [whole(2, 3, 4)], {"keepdims": 0}),
    "CumSum": ("CumSum", [whole(3, 4), np.array(1)], {"exclusive": 1, "reverse": 1}),
    "Transpose": ("Transpose", [whole(2, 3, 4)], {"perm": [2, 0, 1]}),
    "Slice": ("Slice", [whole(5, 6), np.array([4, 1]), np.array([0, 6]), np.array([0, 1]), np.array([-2, 2])], {}),
    "Pad": ("Pad", [whole(3, 4), np.array([1, 0, 0, 2]), np.array(7, np.float32)], {}),
    "Pad by reflection": ("Pad", [whole(3, 4), np.array([1, 2, 0, 1])], {"mode": "reflect"}),
    "Gather": ("Gather", [whole(5, 3), np.array([[4, -1], [0, 2]])], {}),
    "GatherElements": ("GatherElements", [whole(3, 3), np.array([[0, 2, 1]])], {}),
    "GatherND": ("GatherND", [whole(3, 4, 2), np.array([[2, 3], [0, 1]])], {}),
    "ScatterND": ("ScatterND", [whole(5, 2), np.array([[1], [4]]), whole(2, 2)], {}),
    "DepthToSpace": ("DepthToSpace", [whole(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    "Tile": ("Tile", [whole(2, 3), np.array([2, 1])], {}),
    "Expand": ("Expand", [whole(2, 1), np.array([3, 2, 4])], {}),
    "Trilu": ("Trilu", [whole(4, 5), np.array(1)], {"upper": 0}),
    "Where": ("Where", [np.array([True, False, True]), whole(2, 3), whole(3)], {}),
    "Concat": ("Concat", [whole(2, 3), whole(2, 2)], {"axis": -1}),
    "Resize to the nearest": ("Resize", [whole(1, 2, 3, 4), None, np.float32([1, 1, 2, 2])], {"mode": "nearest"}),  # type: ignore[list-item]
    "Resize linear": (
        "Resize",
        [whole(1, 2, 3, 4), None, np.float32([1, 1, 2, 4])],  # type: ignore[list-item]
        {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
    ),
}


def model(kind: str, arrays: list[np.ndarray], attributes: dict[str, object]) -> onnx.ModelProto:
    names = ["" if a is None else f"i{k}" for k, a in enumerate(arrays)]
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, arrays, strict=True)
        if a is not None
    ]
    node = helper.make_node(kind, names, ["y"], **attributes)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def in_field(made: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> Value:
    """Floats are symbols, as if nothing were known of them."""
    values = {
        n: Value(FIELD.from_float(a), a.dtype, False) if a.dtype == np.float32 else Value(a, a.dtype)
        for n, a in feeds.items()
    }
    found = Interpreter(made, FIELD).run(values)["y"]
    assert isinstance(found, Value)
    return found


@pytest.mark.parametrize("name", CASES)
def test_whole_numbers_are_those_of_the_runtime(name: str) -> None:
    kind, arrays, attributes = CASES[name]
    made = model(kind, arrays, attributes)
    feeds = {f"i{k}": a for k, a in enumerate(arrays) if a is not None}
    expected = ort.InferenceSession(made.SerializeToString()).run(None, feeds)[0]
    if kind == "Resize":  # its scales decide the shape, so they are a constant
        scales = onnx.numpy_helper.from_array(feeds.pop("i2"), "i2")
        made.graph.initializer.append(scales)
    if kind == "Pow":
        made.graph.initializer.append(onnx.numpy_helper.from_array(feeds.pop("i1"), "i1"))
    found = in_field(made, feeds)
    assert found.data.shape == expected.shape
    assert (found.data == FIELD.from_float(expected)).all()


def test_normalizations_are_their_fractions() -> None:
    """By Python's fractions; the root, which is a hash, of the same fraction."""
    x = RNG.normal(size=(2, 6)).astype(np.float32)
    scale, bias = (RNG.normal(size=6).astype(np.float32) for _ in range(2))
    made = model("LayerNormalization", [x, scale, bias], {"epsilon": 0.5})
    found = in_field(made, {"i0": x, "i1": scale, "i2": bias}).data
    for row in range(2):
        values = [Fraction(float(v)) for v in x[row]]
        mean = sum(values, Fraction(0)) / 6
        variance = sum(((v - mean) ** 2 for v in values), Fraction(0)) / 6 + Fraction(1, 2)
        root = int(FIELD.sqrt(np.array(_residue(variance))))
        for k, v in enumerate(values):
            top = _residue((v - mean) * Fraction(float(scale[k])))
            wanted = (top * pow(root, -1, FIELD.p) + _residue(Fraction(float(bias[k])))) % FIELD.p
            assert found[row, k] == wanted


def _residue(x: Fraction) -> int:
    return x.numerator * pow(x.denominator, -1, FIELD.p) % FIELD.p
