"""What stays float between integers as the runtime's own fused operators: the same results, fewer nodes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import onnxtool
from onnxtool.errors import UsageError
from onnxtool.model import io
from onnxtool.quantization.algorithms.float_fusions import fuse_gelus
from onnxtool.quantization.apply_recipe import apply
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.runner import OnnxRunner
from tests.quantization.quant_models import build, weights

LENGTH, WIDTH, HEADS = 16, 64, 4
DATA = np.random.default_rng(5).standard_normal((8, LENGTH, WIDTH)).astype(np.float32)


def attention_proto() -> onnx.ModelProto:
    """Multi-head attention with a residual and a normalization behind it, in parts, as exporters write it."""
    node = helper.make_node
    nodes = []
    for name in "qkv":
        nodes += [
            node("MatMul", ["x", f"w{name}"], [f"{name}_projected"]),
            node("Reshape", [f"{name}_projected", "heads"], [f"{name}_heads"]),
            node("Transpose", [f"{name}_heads"], [name], perm=[0, 2, 1, 3]),
        ]
    nodes += [
        node("Transpose", ["k"], ["k_turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "k_turned"], ["scores"]),
        node("Mul", ["scores", "scale"], ["scaled"]),
        node("Softmax", ["scaled"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "joined"], ["flat"]),
        node("MatMul", ["flat", "wo"], ["out"]),
        node("Add", ["x", "out"], ["sum"]),
        node("LayerNormalization", ["sum", "gamma", "beta"], ["y"], axis=-1),
    ]
    arrays = {f"w{name}": weights(WIDTH, WIDTH) for name in "qkvo"}
    arrays |= {
        "heads": np.array([0, LENGTH, HEADS, WIDTH // HEADS]),
        "joined": np.array([0, LENGTH, WIDTH]),
        "scale": np.array((WIDTH // HEADS) ** -0.5, np.float32),
        "gamma": 1 + weights(WIDTH),
        "beta": weights(WIDTH),
    }
    return build(nodes, arrays, {"x": ["n", LENGTH, WIDTH]}, {"y": ["n", LENGTH, WIDTH]})


def operators(model: ir.Model) -> Counter[str]:
    return Counter(n.op_type for n in model.graph)


EXPECTED = [("attention", {"MultiHeadAttention"}), ("all", {"MultiHeadAttention", "SkipLayerNormalization"})]


@pytest.mark.parametrize(("fuse", "expected"), EXPECTED)
def test_fusions_leave_the_results_as_they_are(fuse: str, expected: set[str]) -> None:
    prepared = prepare(io.from_proto(attention_proto()))
    recipe = QuantRecipe(mode="dynamic")
    plain, fused = apply(prepared, recipe), apply(prepared, QuantRecipe(mode="dynamic", fuse=fuse))  # type: ignore[arg-type]
    found = operators(fused)
    assert set(found) & EXPECTED[-1][1] == expected
    assert "Softmax" not in found and operators(plain)["Softmax"] == 1
    assert found["MatMulInteger"] == operators(plain)["MatMulInteger"] > 0
    for sample in DATA:
        left, right = (OnnxRunner.open(m).run({"x": sample[None]})["y"] for m in (plain, fused))
        assert np.abs(left - right).max() < 0.05 * np.abs(left).max()


@pytest.mark.parametrize(
    ("fuse", "expected"), [("", (0, 1)), ("attention", (1, 0)), ("all", (0, 1))], ids=["nothing", "attention", "all"]
)
def test_attention_keeps_sums_apart_from_normalizations(fuse: str, expected: tuple[int, int], tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(attention_proto(), model)
    report = onnxtool.quantize(model, tmp_path / "out.onnx", mode="dynamic", fuse=fuse)  # type: ignore[arg-type]
    run = tuple(report.kernels.get(kind, 0) for kind in ("LayerNormalization", "SkipLayerNormalization"))
    assert run == expected


def test_a_fused_recipe_is_replayed_to_the_same_bytes(tmp_path: Path) -> None:
    model, recipe = tmp_path / "m.onnx", tmp_path / "recipe.json"
    onnx.save(attention_proto(), model)
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    report = onnxtool.quantize(model, first, mode="dynamic", fuse="all", recipe_file=recipe)
    assert "fused all" in report.summary
    onnxtool.quantize(model, second, recipe_file=recipe)
    assert first.read_bytes() == second.read_bytes()


def test_float16_has_no_fusions() -> None:
    with pytest.raises(UsageError, match="--fuse"):
        QuantRecipe(mode="float16", fuse="all")


def gelu_proto(form: str) -> onnx.ModelProto:
    """A convolution, Gelu in parts, and a convolution behind it."""
    node = helper.make_node
    parts = {
        "erf": [
            node("Div", ["c", "root"], ["d"]),
            node("Erf", ["d"], ["e"]),
            node("Add", ["e", "one"], ["a"]),
            node("Mul", ["c", "a"], ["m"]),
            node("Mul", ["m", "half"], ["g"]),
        ],
        "tanh": [
            node("Pow", ["c", "three"], ["p"]),
            node("Mul", ["p", "k"], ["pk"]),
            node("Add", ["c", "pk"], ["s"]),
            node("Mul", ["s", "r"], ["sr"]),
            node("Tanh", ["sr"], ["t"]),
            node("Add", ["t", "one"], ["a"]),
            node("Mul", ["c", "a"], ["m"]),
            node("Mul", ["m", "half"], ["g"]),
        ],
    }
    constants = {"root": 2**0.5, "one": 1, "half": 0.5, "three": 3, "k": 0.044715, "r": (2 / np.pi) ** 0.5}
    arrays = {name: np.array(value, np.float32) for name, value in constants.items()}
    arrays |= {"w": weights(16, 8, 3, 3), "v": weights(8, 16, 1, 1)}
    nodes = [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), *parts[form], node("Conv", ["g", "v"], ["y"])]
    used = {name for n in nodes for name in n.input}
    kept = {name: array for name, array in arrays.items() if name in used}
    return build(nodes, kept, {"x": ["n", 8, 12, 12]}, {"y": ["n", 8, 12, 12]}, opset=17)


@pytest.mark.parametrize(("form", "operator"), [("erf", "Gelu"), ("tanh", "FastGelu")])
def test_gelu_in_parts_behind_integers_is_one_operator(form: str, operator: str, tmp_path: Path) -> None:
    data = np.random.default_rng(1).standard_normal((16, 8, 12, 12)).astype(np.float32)
    source = tmp_path / "gelu.onnx"
    onnx.save(gelu_proto(form), source)
    report = onnxtool.quantize(source, tmp_path / "out.onnx", mode="static", data={"x": data})
    assert report.kernels["QLinearConv"] == 2 and report.kernels[operator] == 1
    assert report.fidelity is not None and report.fidelity.sqnr_db > 25
    result = onnx.load(tmp_path / "out.onnx")
    assert {o.domain: o.version for o in result.opset_import}["com.microsoft"] == 1
    written = [n.op_type for n in result.graph.node]
    assert operator in written and "Erf" not in written and "Tanh" not in written


def test_gelu_that_the_runtime_fuses_by_itself_is_left_to_it(tmp_path: Path) -> None:
    data = np.random.default_rng(1).standard_normal((16, 8, 12, 12)).astype(np.float32)
    source = tmp_path / "gelu.onnx"
    onnx.save(gelu_proto("erf"), source)
    report = onnxtool.quantize(source, tmp_path / "out.onnx", mode="static", data={"x": data}, exclude=("c",))
    assert report.kernels["Gelu"] == 1 and report.kernels["QLinearConv"] == 1
    written = onnx.load(tmp_path / "out.onnx")
    assert "Erf" in [n.op_type for n in written.graph.node], "standard operators where it can"
    assert fuse_gelus(io.load(tmp_path / "out.onnx")) == 0


def test_attention_between_dynamic_products_is_fused_with_any_length() -> None:
    """ONNX's own inference has other names for what DynamicQuantizeLinear gives than for what it takes."""
    proto = attention_proto()
    for array in proto.graph.initializer:
        if array.name == "heads":
            array.CopyFrom(onnx.numpy_helper.from_array(np.array([0, -1, HEADS, WIDTH // HEADS]), "heads"))
        elif array.name == "joined":
            array.CopyFrom(onnx.numpy_helper.from_array(np.array([0, -1, WIDTH]), "joined"))
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[1].dim_param = "s"
    fused = apply(prepare(io.from_proto(proto), "extended"), QuantRecipe(mode="dynamic", fuse="all").with_ranges({}))
    assert {"MultiHeadAttention", "SkipLayerNormalization", "MatMulInteger"} <= set(operators(fused))
