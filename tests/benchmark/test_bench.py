"""bench: what it measures and refuses. Speed itself is never asserted."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxtool.benchmark.bench import bench, judge
from onnxtool.errors import InputError, UsageError
from onnxtool.runtime.timing.timing import Ratio, Timing, block_ratio, median_interval


@pytest.fixture
def relu(relu_proto: onnx.ModelProto, tmp_path: Path) -> Path:
    path = tmp_path / "relu.onnx"
    path.write_bytes(relu_proto.SerializeToString())
    return path


def test_every_model_in_every_setting(relu: Path) -> None:
    report = bench([relu, relu], batches=(1, 8), threads=(1, 2), budget=0.02)
    assert [(i.batch, i.threads) for i in report.latencies] == [
        (b, t) for t in (1, 2) for b in (1, 8) for _ in range(2)
    ]
    for item in report.latencies:
        assert 0 < item.low <= item.median <= item.high
        assert item.median <= item.p90 <= item.p99
        assert item.throughput == pytest.approx(item.batch / item.median)
    assert [i.ratio is None for i in report.latencies[:2]] == [True, False]
    assert len(report.models) == 2
    load = report.models[0].load
    assert load.seconds > 0
    assert load.peak_bytes is None or load.peak_bytes > load.model_bytes >= 0  # type: ignore[operator]


def test_data_is_cut_and_repeated_to_the_batch(relu: Path) -> None:
    data = {"x": np.ones((3, 3), np.float32)}
    report = bench(relu, data=data, batches=(2, 5), budget=0.01)
    assert [i.batch for i in report.latencies] == [2, 5]
    assert report.data == "given arrays"


def test_memory_of_a_large_model_is_seen(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((3000, 3000)).astype(np.float32)  # 36 MB
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, ["n", 3000])],
        [onnx.helper.make_tensor_value_info("y", 1, ["n", 3000])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "big.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), path)
    load = bench(path, budget=0.01).models[0].load
    assert load.model_bytes is None or load.model_bytes > 36_000_000


def test_refuses_what_cannot_be_measured(relu: Path, digits_onnx: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"digits_cnn\.onnx: does not take the first model's inputs"):
        bench([relu, digits_onnx], budget=0.01)
    with pytest.raises(InputError, match="no such file"):
        bench(tmp_path / "none.onnx")
    with pytest.raises(InputError, match="the data has z"):
        bench(relu, data={"z": np.zeros(3), "q": np.zeros(3)}, budget=0.01)
    model = onnx.load(relu)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 4
    onnx.save(model, tmp_path / "fixed.onnx")
    with pytest.raises(UsageError, match="fixed batch of 4"):
        bench(tmp_path / "fixed.onnx", batches=(2,), budget=0.01)


def test_blocks_with_a_common_ratio_give_a_narrow_interval() -> None:
    chance = random.Random(0)
    base = [Timing(tuple(chance.uniform(0.9, 1.1) for _ in range(50))) for _ in range(8)]
    slower = [Timing(tuple(1.1 * s for s in block.samples)) for block in base]
    found = block_ratio(slower, base)
    assert found.value == pytest.approx(1.1)
    assert found.low == pytest.approx(1.1)
    assert judge(found) == "slower"


def test_blocks_that_disagree_give_a_wide_interval() -> None:
    def block(value: float) -> Timing:
        return Timing((value,) * 9)

    found = block_ratio([block(v) for v in (1.05, 0.95, 1.06, 0.94)], [block(1.0)] * 4)
    assert found.low < 1 < found.high
    assert judge(found) == "same"


def test_interval_of_block_ratios_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        logs = generator.normal(0.0, 0.03, size=8)
        found = block_ratio([Timing((math.exp(v),)) for v in logs], [Timing((1.0,))] * 8)
        covered += found.low <= 1 <= found.high
    assert 0.92 <= covered / 400 <= 0.98


def test_an_interval_that_says_nothing_is_no_verdict() -> None:
    assert judge(Ratio(0.6, 0.2, 1.3)) == "unclear"
    assert judge(Ratio(1.1, 0.8, 1.6)) == "unclear"
    assert judge(Ratio(1.02, 0.8, 1.3)) == "same"
    assert judge(Ratio(2.0, 1.1, 4.0)) == "slower"


def test_a_difference_too_small_to_matter_is_the_same() -> None:
    assert judge(Ratio(1.01, 1.005, 1.015)) == "same"
    assert judge(Ratio(0.9, 0.88, 0.92)) == "faster"


def test_interval_of_the_median_holds_it() -> None:
    low, high = median_interval([float(v) for v in range(101)])
    assert low <= 50 <= high
    assert high - low < 60
