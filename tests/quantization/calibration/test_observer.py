"""What calibration sees, against numpy on the tensors themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import onnxtool
from onnxtool.errors import InputError
from onnxtool.model import io
from onnxtool.model.ir.queries import input_specs
from onnxtool.quantization.calibration import observer
from onnxtool.quantization.calibration.observer import observe
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.runtime.data.open_data import open_data
from onnxtool.runtime.data.source import DataSource
from tests.quantization.quant_models import build, weights

TENSORS = ["c", "r", "m"]


def small_proto() -> onnx.ModelProto:
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Mul", ["r", "s"], ["m"]),
        node("Neg", ["m"], ["l"]),
        node("Max", ["l", "zero"], ["y"]),
    ]
    arrays = {
        "w": weights(16, 3, 3, 3),
        "b": weights(16),
        "s": np.array([-3.0], np.float32),
        "zero": np.zeros(1, np.float32),
    }
    return build(nodes, arrays, {"x": ["n", 3, 8, 8]}, {"y": ["n", 16, 8, 8]})


DATA = np.random.default_rng(3).standard_normal((12, 3, 8, 8)).astype(np.float32)


def source_of(proto: onnx.ModelProto, data: np.ndarray) -> DataSource:
    return open_data({"x": data}, input_specs(io.from_proto(proto)))


@pytest.mark.parametrize("histogram", [False, True])
def test_extremes_are_those_of_every_value_of_every_sample(histogram: bool) -> None:
    proto = small_proto()
    shown = onnx.ModelProto.FromString(proto.SerializeToString())
    shown.graph.output.extend(helper.make_tensor_value_info(n, 1, None) for n in TENSORS)
    expected = dict(zip(["y", *TENSORS], ReferenceEvaluator(shown).run(None, {"x": DATA}), strict=True))

    seen = observe(io.from_proto(proto), TENSORS, source_of(proto, DATA), histogram=histogram)

    for name in TENSORS:
        low, high = seen[name].range("minmax")
        assert low == pytest.approx(min(expected[name].min(), 0), rel=1e-5, abs=1e-6)
        assert high == pytest.approx(max(expected[name].max(), 0), rel=1e-5, abs=1e-6)
    if histogram:
        assert [seen[n].elements for n in TENSORS] == [16 * 8 * 8] * 3
        assert seen["c"].histogram is not None
        assert seen["c"].histogram.total == expected["c"].size


def test_large_tensors_are_sampled_evenly() -> None:
    shape = (1, 64, 64, 64)
    proto = build(
        [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["y"])],
        {"b": np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 1, 64)},
        {"x": ["n", *shape[1:]]},
        {"y": ["n", *shape[1:]]},
    )
    data = np.zeros((64, *shape[1:]), np.float32)

    histogram = observe(io.from_proto(proto), ["a"], source_of(proto, data), histogram=True)["a"].histogram

    assert histogram is not None
    assert 100_000 < histogram.total < 600_000
    quarters = np.percentile(np.repeat(histogram.centers, histogram.counts.astype(int)), [25, 50, 75])
    np.testing.assert_allclose(quarters, [-0.5, 0, 0.5], atol=0.03)


def failing_proto(operator: str) -> onnx.ModelProto:
    nodes = [helper.make_node(operator, ["x"], ["t"]), helper.make_node("MatMul", ["t", "w"], ["y"])]
    return build(nodes, {"w": weights(4, 4)}, {"x": ["n", 4]}, {"y": ["n", 4]})


@pytest.mark.parametrize(("operator", "bad", "kind"), [("Sqrt", -1.0, "NaN"), ("Exp", 200.0, "infinity")])
def test_what_the_float_model_cannot_compute_is_named(operator: str, bad: float, kind: str) -> None:
    proto = failing_proto(operator)
    data = np.ones((6, 4), np.float32)
    data[4, 2] = bad

    with pytest.raises(InputError, match=rf"sample 4: tensor 't' becomes {kind}"):
        observe(io.from_proto(proto), ["x", "t"], source_of(proto, data))


def test_finite_elements_alone_where_infinity_is_no_fault() -> None:
    data = np.ones((6, 4), np.float32)
    data[4, 2] = 200.0
    seen = observe(io.from_proto(failing_proto("Exp")), ["t"], source_of(failing_proto("Exp"), data), finite=True)
    assert seen["t"].high == pytest.approx(np.e)
    data[4, 2] = -1.0
    with pytest.raises(InputError, match="sample 4: tensor 't' becomes NaN"):
        observe(io.from_proto(failing_proto("Sqrt")), ["t"], source_of(failing_proto("Sqrt"), data), finite=True)


def test_raising_the_opset_keeps_large_weights() -> None:
    proto = build(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"w": weights(64, 64)},
        {"x": ["n", 64]},
        {"y": ["n", 64]},
        opset=11,
    )
    source = io.from_proto(proto)
    prepared = prepare(source)

    assert prepared.opset_imports[""] >= 13
    assert [v.name for v in prepared.graph.inputs] == ["x"]
    np.testing.assert_array_equal(
        prepared.graph.initializers["w"].const_value.numpy(),  # type: ignore[union-attr]
        source.graph.initializers["w"].const_value.numpy(),  # type: ignore[union-attr]
    )


def test_a_hard_sigmoid_is_known_without_a_look() -> None:
    nodes = [helper.make_node("HardSigmoid", ["x"], ["gate"]), helper.make_node("Mul", ["x", "gate"], ["y"])]
    proto = build(nodes, {}, {"x": ["n", 3, 8, 8]}, {"y": ["n", 3, 8, 8]})
    seen = observe(io.from_proto(proto), ["x", "gate"], source_of(proto, DATA / 100), histogram=True)
    assert seen["gate"].range("mse") == (0.0, 1.0)
    assert seen["gate"].elements == 3 * 8 * 8
    assert seen["x"].range("minmax") == pytest.approx((DATA.min() / 100, DATA.max() / 100))


def test_a_small_model_of_filled_weights_is_opened_again_with_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loading is guarded, and a guard can be entered once."""
    nodes = [helper.make_node("ConstantOfShape", ["shape"], ["w"]), helper.make_node("MatMul", ["x", "w"], ["y"])]
    proto = build(nodes, {"shape": np.array([64, 64], np.int64)}, {"x": ["n", 64]}, {"y": ["n", 64]})
    monkeypatch.setattr(observer, "_WORTH_THREADS", 0.0)
    model = prepare(io.from_proto(proto))
    seen = observe(model, ["y"], source_of(proto, np.ones((4, 64), np.float32)))
    assert seen["y"].range("minmax") == (0.0, 0.0)


def test_states_are_calibrated_on_what_the_model_gives(tmp_path: Path) -> None:
    """Zeros alone would give the state's product a range of nothing."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["h", "r"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["hn"]),
        helper.make_node("MatMul", ["hn", "o"], ["y"]),
    ]
    arrays = {"w": weights(32, 32), "r": weights(32, 32), "o": weights(32, 8)}
    proto = build(nodes, arrays, {"x": [1, 32], "h": [1, 32]}, {"y": [1, 8], "hn": [1, 32]})
    onnx.save(proto, tmp_path / "m.onnx")
    data = np.random.default_rng(5).standard_normal((24, 1, 32)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=data)
    report = onnxtool.quantize(
        tmp_path / "m.onnx", tmp_path / "q.onnx", mode="static", data=tmp_path / "d.npz", steps=6
    )
    assert report.ok
    assert report.fidelity is not None
    assert report.fidelity.sqnr_db > 25
