"""Rounding that a model amplifies itself is no difference; anything beyond it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from onnxtool.equality.compare import compare
from onnxtool.equality.rule.rounding import (
    ALIKE,
    FACTOR,
    NO_EXCUSE,
    ExcusedElements,
    RoundingNoise,
    excuse,
    runtime_noise,
)
from onnxtool.equality.rule.tolerance import MOST_ROUNDING, ColumnScales, Tolerance
from onnxtool.errors import InputError
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

GAIN = np.float32(1e4)


def amplifier(path: Path, weight: np.ndarray, place: tuple[int, ...] | None, level: float) -> Path:
    """Conv + BatchNormalization (which the runtime folds), one element of the result amplified around `level`."""
    generator = np.random.default_rng(5)
    shape = (1, 8, 64, 64)
    mask, offset = np.ones(shape, np.float32), np.zeros(shape, np.float32)
    if place is not None:
        mask[place], offset[place] = GAIN, np.float32(level) * GAIN
    constants = {
        "w": weight,
        "scale": generator.uniform(0.5, 2, 8).astype(np.float32),
        "bias": generator.normal(size=8).astype(np.float32),
        "mean": generator.normal(size=8).astype(np.float32),
        "var": generator.uniform(0.5, 2, 8).astype(np.float32),
        "mask": mask,
        "offset": offset,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["n"]),
        helper.make_node("Mul", ["n", "mask"], ["m"]),
        helper.make_node("Sub", ["m", "offset"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "amplifier",
        [helper.make_tensor_value_info("x", 1, [1, 3, 64, 64])],
        [helper.make_tensor_value_info("y", 1, list(shape))],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def run(path: Path, level: ort.GraphOptimizationLevel, x: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.fixture
def amplified(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray, tuple[int, ...], float]:
    """The model with its most rounding-prone element amplified, its weight, the input, that element."""
    generator = np.random.default_rng(1)
    weight = generator.normal(size=(8, 3, 3, 3)).astype(np.float32)
    x = generator.normal(size=(1, 3, 64, 64)).astype(np.float32)
    plain = amplifier(tmp_path / "plain.onnx", weight, None, 0)
    off = run(plain, ort.GraphOptimizationLevel.ORT_DISABLE_ALL, x)
    on = run(plain, ort.GraphOptimizationLevel.ORT_ENABLE_ALL, x)
    assert (off != on).any(), "the runtime folds the BatchNormalization, which rounds"
    place = tuple(int(i) for i in np.unravel_index(np.abs(off - on).argmax(), off.shape))
    level = float(off[place])
    return amplifier(tmp_path / "a.onnx", weight, place, level), weight, x, place, level


def test_rounding_of_the_reference_itself_is_excused_and_said(
    tmp_path: Path, amplified: tuple[Path, np.ndarray, np.ndarray, tuple[int, ...], float]
) -> None:
    a, weight, x, place, level = amplified
    nudged = weight.copy()
    nudged[place[1]] *= np.float32(1) + np.float32(1.2e-7)  # the last bit
    b = amplifier(tmp_path / "b.onnx", nudged, place, level)
    report = compare(a, b, data={"x": x})
    assert report.outputs[0].mismatched == 1
    assert report.ok
    assert "rounding alone moves the reference" in (report.outputs[0].note or "")


def test_a_real_difference_is_not_excused(
    tmp_path: Path, amplified: tuple[Path, np.ndarray, np.ndarray, tuple[int, ...], float]
) -> None:
    a, weight, x, place, level = amplified
    wrong = weight * np.float32(1.0001)  # a tenth of the relative tolerance, everywhere
    b = amplifier(tmp_path / "b.onnx", wrong, place, level)
    assert not compare(a, b, data={"x": x}).ok


ONES = np.tile(np.float64([[1], [-1]]), (8, 3))  # three columns of scale 1, in doubles so that sums are what they say


def with_changes(a: np.ndarray, *changes: tuple[int, int, float]) -> np.ndarray:
    """A copy with numbers added at (row, column)."""
    changed = a.copy()
    for row, column, by in changes:
        changed[row, column] += by
    return changed


def excused(b: np.ndarray, again: Any, a: np.ndarray = ONES, precision: str | None = None) -> ExcusedElements:
    return excuse(a, b, [again], Tolerance(1e-6, 1e-6), ColumnScales().add(a), precision)


def test_an_element_may_be_off_three_times_what_rounding_moves_its_column() -> None:
    again = with_changes(ONES, (0, 1, 1e-3))
    assert excused(with_changes(ONES, (5, 1, 0.999e-3 * FACTOR)), again) == ExcusedElements(1, pytest.approx(1e-3))
    assert excused(with_changes(ONES, (5, 1, 1.001e-3 * FACTOR)), again) == NO_EXCUSE
    assert excused(with_changes(ONES, (5, 1, np.nan)), again) == NO_EXCUSE
    assert excused(with_changes(ONES, (5, 1, np.inf)), again) == NO_EXCUSE
    assert excused(ONES, again) == NO_EXCUSE  # within the tolerance


@pytest.mark.parametrize(("scale", "lent"), [(0.1, True), (0.99 * ALIKE, True), (1.01 * ALIKE, False)])
def test_columns_of_about_a_scale_lend_their_noise(scale: float, lent: bool) -> None:
    a = 10 * ONES * [1, scale, 1]
    found = excused(with_changes(a, (5, 0, 2e-3)), with_changes(a, (0, 1, 1e-3)), a)
    assert found.elements == int(lent)


@pytest.mark.parametrize(("precision", "most"), [(None, MOST_ROUNDING), ("bfloat16", 0.25)])
def test_nothing_beyond_a_share_of_the_columns_scale_is_excused(precision: str | None, most: float) -> None:
    again = with_changes(ONES, (0, 1, 0.5))
    assert excused(with_changes(ONES, (5, 1, 0.99 * most)), again, precision=precision).elements == 1
    assert excused(with_changes(ONES, (5, 1, 1.03 * most)), again, precision=precision) == NO_EXCUSE


def test_no_more_elements_are_excused_than_three_times_those_that_rounding_moves() -> None:
    again = with_changes(ONES, (0, 0, 1e-3), (1, 0, 1e-8))
    few = [(row, 0, 1e-3) for row in range(int(FACTOR))]
    assert excused(with_changes(ONES, *few), again).elements == FACTOR
    assert excused(with_changes(ONES, *few, (9, 0, 1e-3)), again) == NO_EXCUSE
    # what is outside and not explained counts too, and stays
    assert excused(with_changes(ONES, *few[:2], (9, 2, 1.0)), again).elements == 2


def test_what_is_not_a_number_of_the_same_kind_excuses_nothing() -> None:
    b, again = with_changes(ONES, (5, 1, 1e-3)), with_changes(ONES, (0, 1, 1e-3))
    assert excused(b, again[:4]) == excused(b, again.astype(np.float32)) == excused(b, None) == NO_EXCUSE
    whole = np.arange(8).reshape(4, 2)
    assert excuse(whole, whole + 1, [whole + 1], Tolerance(), ColumnScales().add(whole)) == NO_EXCUSE


def test_infinity_is_no_measure_of_rounding() -> None:
    again = with_changes(ONES, (0, 1, 1e-3), (1, 1, np.inf), (2, 1, np.nan))
    assert excused(with_changes(ONES, (5, 1, 2e-3)), again).elements == 1
    assert excused(with_changes(ONES, (5, 1, 5e-3)), again) == ExcusedElements(0, 0)


def test_the_imaginary_part_counts() -> None:
    a = ONES + 0j
    again = a + 1e-3j
    assert excused(a + 2e-3j, again, a).elements == a.size
    assert excused(a + 5e-3j, again, a) == NO_EXCUSE


def test_numbers_that_are_not_finite_in_both_are_no_difference() -> None:
    a = with_changes(ONES, (0, 0, np.nan), (1, 1, np.inf))
    again = with_changes(a, (2, 2, 1e-3))
    assert excused(with_changes(a, (3, 2, 1e-3)), again, a) == ExcusedElements(1, pytest.approx(1e-3))


def test_each_part_of_a_large_tensor_has_its_own_columns_noise() -> None:
    a = np.tile(ONES, (11_000, 1))
    last = len(a) - 1
    again = with_changes(a, (last, 1, 1e-3))
    assert excused(with_changes(a, (last - 1, 1, 2e-3)), again, a).elements == 1
    assert (
        excused(
            with_changes(a * [1, 9, 1], (last - 1, 0, 2e-3)),
            with_changes(a * [1, 9, 1], (last, 1, 1e-3)),
            a * [1, 9, 1],
        )
        == NO_EXCUSE
    )


def test_the_other_roundings_are_opened_once_and_run_once_for_each_input() -> None:
    class Counting:
        inputs = outputs = ()
        runs = opened = 0

        def run(self, feeds: Any) -> dict[str, Any]:
            self.runs += 1
            if not feeds:
                raise InputError("no")
            return {"y": feeds["x"]}

    runner = Counting()

    def opens() -> Any:
        runner.opened += 1
        return runner

    noise, feeds = RoundingNoise(opens), {"x": ONES}
    assert noise.outputs(feeds)["y"] is noise.outputs(feeds)["y"] is ONES
    assert (runner.opened, runner.runs) == (1, 1)
    assert noise.outputs({}) == {} and noise.outputs(dict(feeds))["y"] is ONES
    assert (runner.opened, runner.runs) == (1, 3)
    assert RoundingNoise(lambda: None).outputs(feeds) == {}


@pytest.mark.parametrize(("own", "other"), [("off", "basic"), ("all", "off"), ("basic", "off")])
def test_the_runtime_rounds_otherwise_with_other_optimizations(
    monkeypatch: pytest.MonkeyPatch, own: Any, other: str
) -> None:
    seen: list[SessionOptions] = []

    def opened(_: object, options: SessionOptions) -> None:
        seen.append(options)

    monkeypatch.setattr(OnnxRunner, "open", opened)
    runtime_noise("m.onnx", SessionOptions(optimization=own)).outputs({})
    assert [options.optimization for options in seen] == [other]
