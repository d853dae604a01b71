"""Which precision a provider computed in. Providers are stood in for; the last tests need the OpenVINO plugin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.equality import provider_proof as module
from onnxtool.equality.provider_proof import (
    prove_on_provider,
    recognise,
    relative_error,
    rounded,
)
from onnxtool.errors import UnsupportedError
from onnxtool.report.compare import PrecisionLevels
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

LEVELS = PrecisionLevels(float32=1e-7, float16=4e-4, bfloat16=3e-3)
FULL = SessionOptions("openvino:INFERENCE_PRECISION_HINT=f32")


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """Two layers with real numbers in them."""
    numbers = np.random.default_rng(0)
    weights = [numbers.normal(size=(64, 64)).astype(np.float32) for _ in range(2)]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w0"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "w1"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )
    path = tmp_path / "network.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


class Rounding(OnnxRunner):
    """Computes on the CPU, and rounds what it gives as a provider with smaller floats would."""

    bits = 24

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {n: rounded(np.asarray(a), self.bits) for n, a in super().run(feeds).items()}


def stand_in(monkeypatch: pytest.MonkeyPatch, bits: Mapping[str, int]) -> None:
    """Each provider text opens a runner that rounds to so many bits."""
    opened = OnnxRunner.open

    def open_(model: Any, options: SessionOptions = SessionOptions(), *_: Any) -> OnnxRunner:  # noqa: B008
        texts = (options.provider,) if isinstance(options.provider, str) else options.provider
        key = " ".join(texts)
        if key not in bits:
            return opened(model, options)
        if bits[key] == 0:
            raise UnsupportedError("it crashed")
        runner = Rounding(opened(model, SessionOptions(optimization="off")).session)
        runner.bits = bits[key]
        return runner

    monkeypatch.setattr(module.OnnxRunner, "open", open_)
    monkeypatch.setattr(module, "requested_providers", lambda _: ("OpenVINOExecutionProvider",))


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (2e-7, "float32"),
        (2.9e-6, "float32"),
        (4e-4, "tf32 or float16"),
        (1e-3, "tf32 or float16"),
        (2e-3, "bfloat16"),
        (2e-2, "bfloat16"),
        (0.2, "other"),
        (float("inf"), "other"),
    ],
)
def test_the_nearest_format_is_named(error: float, name: str) -> None:
    assert recognise(error, LEVELS, SessionOptions("webgpu")) == name


@pytest.mark.parametrize(("provider", "name"), [("cuda", "tf32"), ("qnn", "float16"), ("openvino", "float16")])
def test_formats_of_one_size_are_told_apart_by_what_a_provider_has(provider: str, name: str) -> None:
    assert recognise(4e-4, LEVELS, SessionOptions(provider)) == name


@pytest.mark.parametrize(("error", "name"), [(4e-5, "float32"), (6e-5, "tf32 or float16")])
def test_an_error_of_an_eighth_of_half_precision_is_still_one_of_it(error: float, name: str) -> None:
    assert recognise(error, LEVELS, SessionOptions("webgpu")) == name


def test_levels_are_those_of_rounding_this_model(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three bits less give eight times the error; what is too large to try is held against the formats alone."""
    plain = SessionOptions(optimization="off")
    runner = OnnxRunner.open(network, plain)
    feeds = [{"x": np.random.default_rng(1).normal(size=(4, 64)).astype(np.float32)}]
    expected = [{"y": runner.run(feeds[0])["y"]}]
    levels = module.precision_levels(network, feeds, expected, plain)
    assert levels.float32 < 1e-6 and 1e-4 < levels.float16 < 1e-3
    assert 4 < levels.bfloat16 / levels.float16 < 16
    monkeypatch.setattr(module, "_LARGEST", 0)
    steps = module.precision_levels(network, feeds, expected, plain)
    named = [recognise(2.0**-bits, steps, SessionOptions("openvino")) for bits in (22, 12, 9)]
    assert named == ["float32", "float16", "bfloat16"]


@pytest.mark.parametrize(("option", "precision"), [("f32", "other"), ("bf16", "bfloat16")])
def test_an_error_in_spite_of_full_precision_is_none_of_a_format(
    option: str, precision: str, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = f"openvino:INFERENCE_PRECISION_HINT={option}"
    stand_in(monkeypatch, {provider: 8})
    assert prove_on_provider(network, SessionOptions(provider)).precision == precision


def test_the_format_that_gives_the_very_same_error_is_named(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its size the error of eight bits is one of bfloat16."""
    hint = "openvino:INFERENCE_PRECISION_HINT="
    stand_in(monkeypatch, {"openvino": 8, f"{hint}f32": 24, f"{hint}bf16": 7, f"{hint}f16": 8})
    assert prove_on_provider(network, SessionOptions("openvino")).precision == "float16"


@pytest.mark.parametrize(
    ("told", "precision", "confirmed"), [("bfloat16", "bfloat16", False), ("float32", "other", False)]
)
def test_what_the_kernels_tell_of_themselves_stands(
    told: str, precision: str, confirmed: bool, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, {"openvino": 8, str(FULL.provider): 8})
    monkeypatch.setattr(module, "kernel_precision", lambda *_: told)
    proof = prove_on_provider(network, SessionOptions("openvino"))
    assert (proof.ok, proof.precision, proof.confirmed) == (False, precision, confirmed)


def test_the_error_is_that_of_the_worst_output() -> None:
    a = {"x": np.ones(4, np.float32), "y": np.ones(4, np.float32), "i": np.ones(2, np.int64)}
    b = {"x": a["x"] * 1.01, "y": a["y"] * 1.1, "i": a["i"] * 7}
    assert relative_error([a], [b]) == pytest.approx(0.1, rel=1e-5)
    assert relative_error([a], [{**a, "x": np.ones(3, np.float32)}]) == float("inf")


def test_rounding_keeps_so_many_bits() -> None:
    value = np.array([1 + 2**-7, 1 + 2**-9, -3.0, 0.0, np.inf], np.float32)
    assert rounded(value, 8).tolist() == [1 + 2**-7, 1.0, -3.0, 0.0, np.inf]
    assert rounded(np.array([3], np.int64), 1).tolist() == [3]


def test_reduced_precision_is_named_with_the_option_that_ends_it(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact, named = "openvino:INFERENCE_PRECISION_HINT=f32", "openvino:INFERENCE_PRECISION_HINT=bf16"
    stand_in(monkeypatch, {"openvino": 8, exact: 24, named: 8})
    proof = prove_on_provider(network, SessionOptions("openvino"))
    assert (proof.ok, proof.precision, proof.option, proof.confirmed) == (
        False,
        "bfloat16",
        "INFERENCE_PRECISION_HINT=f32",
        True,
    )
    assert "openvino:INFERENCE_PRECISION_HINT=f32 turns that off" in proof.summary


def test_an_error_that_the_option_does_not_end_is_none_of_precision(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, {"openvino": 8, "openvino:INFERENCE_PRECISION_HINT=f32": 8})
    proof = prove_on_provider(network, SessionOptions("openvino"))
    assert (proof.ok, proof.precision, proof.confirmed) == (False, "other", False)


@pytest.mark.parametrize(("bits", "ok"), [(8, False), (24, True)])
def test_outputs_that_prove_little_do_not_make_a_smaller_format_equal(
    bits: int, ok: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "small"], ["s"]),
        helper.make_node("Sub", ["s", "far"], ["f"]),
        helper.make_node("Sigmoid", ["f"], ["y"]),
    ]
    constants = [numpy_helper.from_array(np.float32(v), n) for n, v in (("small", 0.5), ("far", 16.0))]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 64]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    path = tmp_path / "far.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    stand_in(monkeypatch, {"openvino": bits, str(FULL.provider): 24})
    monkeypatch.setattr(module, "kernel_precision", lambda *_: "bfloat16" if bits == 8 else "float32")
    assert prove_on_provider(path, SessionOptions("openvino")).ok is ok


def test_full_precision_is_called_so(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, {"webgpu": 22})
    proof = prove_on_provider(network, SessionOptions("webgpu"))
    assert (proof.ok, proof.precision, proof.reduced) == (True, "float32", False)


def test_a_provider_that_fails_is_one_line(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, {"webgpu": 0})
    proof = prove_on_provider(network, SessionOptions("webgpu"))
    assert not proof.ok
    assert proof.summary == "webgpu: does not run: it crashed"


def test_the_cpu_itself_needs_no_levels(network: Path) -> None:
    proof = prove_on_provider(network, SessionOptions("cpu"))
    assert (proof.ok, proof.precision, proof.levels) == (True, "float32", None)


@pytest.mark.usefixtures("openvino")
def test_openvino_is_caught_and_cleared(network: Path) -> None:
    assert prove_on_provider(network, FULL).precision == "float32"
    half = prove_on_provider(network, SessionOptions("openvino:INFERENCE_PRECISION_HINT=bf16"))
    assert (half.ok, half.precision) == (False, "bfloat16")
