"""Weight-only quantization: our block layout through the runtime's MatMulNBits, against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import onnxtool
from onnxtool.errors import UsageError
from onnxtool.model import io
from onnxtool.quantization.algorithms.weight_only import quantize_blocks
from onnxtool.quantization.apply_recipe import apply
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.runner import OnnxRunner
from tests.quantization.quant_models import build, weights


def restored(weight: np.ndarray, bits: int, size: int, symmetric: bool, search: bool = False) -> np.ndarray:
    """Undo the packing in plain numpy: [K, N] float32."""
    rows, columns = weight.shape
    blocks = quantize_blocks(weight, bits, size, symmetric=symmetric, search=search)
    count = -(-rows // size)
    packed = blocks.packed
    if bits == 4:
        packed = np.stack([packed & 15, packed >> 4], axis=-1).reshape(columns, count, size)
    scales = blocks.scales.reshape(columns, count, 1)
    if blocks.zero_points is None:
        zero: np.ndarray | float = 2 ** (bits - 1)
    elif bits == 4:
        pairs = blocks.zero_points.reshape(columns, -1)
        zero = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(columns, -1)[:, :count, None]
    else:
        zero = blocks.zero_points.reshape(columns, count, 1)
    return ((packed.astype(np.float32) - zero) * scales).reshape(columns, -1)[:, :rows].T


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("rows", "size"), [(64, 32), (80, 32), (256, 128), (96, 64)])
def test_the_runtime_reads_our_blocks_as_numpy_does(bits: int, symmetric: bool, rows: int, size: int) -> None:
    weight = weights(rows, 24)
    bias = weights(24)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Gemm", ["m2", "v", "b"], ["g"], transB=1)]
    proto = build(
        nodes,
        {"w": weight, "v": weight.T.copy(), "b": bias},
        {"x": [3, rows], "m2": [3, rows]},
        {"m": [3, 24], "g": [3, 24]},
    )
    recipe = QuantRecipe(mode="int8" if bits == 8 else "int4", block_size=size, symmetric=symmetric, search_scale=False)
    model = apply(prepare(io.from_proto(proto)), recipe)
    x = np.random.default_rng(0).standard_normal((3, rows)).astype(np.float32)
    got = OnnxRunner.open(model).run({"x": x, "m2": x})
    expected = x @ restored(weight, bits, size, symmetric)
    # the kernels round activations to int8 block by block
    np.testing.assert_allclose(got["m"], expected, atol=0.03 * np.abs(expected).max())
    np.testing.assert_allclose(got["g"], expected + bias, atol=0.03 * np.abs(expected).max())


@pytest.mark.parametrize(("bits", "share"), [(4, 0.02), (8, 1e-4)])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_error_is_what_the_bits_allow(bits: int, share: float, symmetric: bool) -> None:
    weight = weights(256, 64)
    error = restored(weight, bits, 32, symmetric) - weight
    assert (error**2).sum() < share * (weight**2).sum()


@pytest.mark.parametrize("symmetric", [True, False])
def test_searching_scales_lessens_the_error(symmetric: bool) -> None:
    weight = weights(256, 64)
    errors = [((restored(weight, 4, 32, symmetric, search) - weight) ** 2).sum() for search in (False, True)]
    assert errors[1] < 0.97 * errors[0]


def test_int4_through_the_command_keeps_accuracy(fixtures: Path, digits_onnx: Path, tmp_path: Path) -> None:
    report = onnxtool.quantize(
        digits_onnx,
        tmp_path / "q.onnx",
        mode="int4",
        data=fixtures / "calib.npz",
        eval_data=fixtures / "eval.npz",
        labels="label",
    )
    assert report.kernels["MatMulNBits"] == 2
    assert report.metric.drop <= 0.01
    assert report.quantized["Gemm"] == (2, 2)


def test_external_weights_are_never_all_in_memory(tmp_path: Path) -> None:
    size = 1024
    nodes = [helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"h{i + 1}"]) for i in range(8)]
    arrays = {f"w{i}": weights(size, size) for i in range(8)}
    proto = build(nodes, arrays, {"h0": [1, size]}, {"h8": [1, size]})
    io.save(io.from_proto(proto), tmp_path / "big.onnx", external=True)
    model = apply(prepare(io.load(tmp_path / "big.onnx")), QuantRecipe(mode="int4", search_scale=False))
    import tracemalloc

    tracemalloc.start()
    io.save(model, tmp_path / "small.onnx", external=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    one = size * size * 4
    assert peak < 8 * one * 0.9, "8 weights of 4 MB passed through a few buffers of one"
    assert (tmp_path / "small.onnx.data").stat().st_size < 8 * one / 6
    OnnxRunner.open(tmp_path / "small.onnx").run({"h0": np.ones((1, size), np.float32)})


@pytest.mark.parametrize(("mode", "ratio"), [("int4", 0.2), ("float16", 0.55)])
def test_models_over_memory_are_written_without_running_the_float_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, ratio: float
) -> None:
    monkeypatch.setattr("onnxtool.quantization.inputs.LARGE", 1000)
    nodes = [helper.make_node("MatMul", ["x", "v"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    arrays = {"v": weights(128, 128), "w": weights(128, 128)}
    io.save(
        io.from_proto(build(nodes, arrays, {"x": ["n", 128]}, {"y": ["n", 128]})), tmp_path / "m.onnx", external=True
    )
    report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode=mode, keep_io=True)
    assert report.fidelity is None
    assert report.size_ratio < ratio
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data", "q.onnx", "q.onnx.data"]
    x = np.random.default_rng(0).standard_normal((3, 128)).astype(np.float32)
    expected = OnnxRunner.open(tmp_path / "m.onnx").run({"x": x})["y"]
    error = OnnxRunner.open(tmp_path / "q.onnx").run({"x": x})["y"] - expected
    assert (error**2).sum() < 0.03 * (expected**2).sum()
    with pytest.raises(UsageError, match="choose --mode int4"):
        onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "r.onnx")


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("size", [32, 64, 128])
def test_blocks_are_what_onnx_itself_dequantizes(bits: int, symmetric: bool, size: int) -> None:
    # DequantizeLinear with block_size (opset 21) in the reference evaluator, fed with our integers and scales.
    rows, columns = 2 * size, 12
    weight = weights(rows, columns)
    blocks = quantize_blocks(weight, bits, size, symmetric=symmetric, search=False)
    packed = blocks.packed
    if bits == 4:
        packed = np.stack([packed & 15, packed >> 4], axis=-1).reshape(columns, 2, size)
    scales = blocks.scales.reshape(columns, 2)
    zero = np.full((columns, 2), 2 ** (bits - 1), np.uint8)
    if blocks.zero_points is not None:
        raw = blocks.zero_points
        zero = raw.reshape(columns, 2) if bits == 8 else np.stack([raw & 15, raw >> 4], axis=-1).reshape(columns, 2)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=1, block_size=size),
        helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "wt"], ["y"]),
    ]
    arrays = {"q": packed.reshape(columns, rows), "s": scales, "z": np.ascontiguousarray(zero)}
    proto = build(nodes, arrays, {"x": ["n", rows]}, {"y": ["n", columns]}, opset=21)
    x = np.random.default_rng(0).standard_normal((5, rows)).astype(np.float32)
    expected = ReferenceEvaluator(proto).run(None, {"x": x})[0]
    np.testing.assert_allclose(x @ restored(weight, bits, size, symmetric), expected, rtol=1e-4, atol=1e-4)
    plain = build(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weight}, {"x": ["n", rows]}, {"y": ["n", columns]}
    )
    recipe = QuantRecipe(mode="int8" if bits == 8 else "int4", block_size=size, symmetric=symmetric, search_scale=False)
    got = OnnxRunner.open(apply(prepare(io.from_proto(plain)), recipe)).run({"x": x})["y"]
    np.testing.assert_allclose(got, expected, atol=0.03 * np.abs(expected).max())  # activations rounded to int8


@pytest.mark.parametrize("bits", [4, 8])
def test_round_to_nearest_is_the_textbook_formula(bits: int) -> None:
    weight = weights(64, 8)
    columns = weight.T.reshape(8, 2, 32)
    low, high = np.minimum(columns.min(-1), 0), np.maximum(columns.max(-1), 0)
    scale = (high - low) / (2**bits - 1)
    zero = np.rint(-low / scale)
    steps = np.clip(np.rint(columns / scale[..., None]) + zero[..., None], 0, 2**bits - 1)
    expected = ((steps - zero[..., None]) * scale[..., None]).reshape(8, 64).T
    np.testing.assert_allclose(restored(weight, bits, 32, symmetric=False), expected, rtol=1e-5, atol=1e-6)


def test_larger_blocks_lose_more() -> None:
    weight = weights(512, 16)
    errors = [((restored(weight, 4, size, True) - weight) ** 2).sum() for size in (32, 64, 128)]
    assert errors == sorted(errors)
    assert errors[2] > 1.1 * errors[0]
