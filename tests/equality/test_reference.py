"""What is known of a reference beside its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxtool.equality.equivalence_check import EquivalenceCheck
from onnxtool.equality.reference import Answers, DescribedRunner, Reference, fixed_outputs, reference_of_source
from onnxtool.equality.rule import rounding
from onnxtool.equality.rule.difference import Difference
from onnxtool.equality.rule.rounding import FACTOR, NO_EXCUSE, RoundingNoise, excuse, runtime_noise
from onnxtool.equality.rule.tolerance import ColumnScales, Tolerance
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.session.session import SessionOptions


class Again:
    """A runner that gives fixed outputs."""

    inputs = outputs = ()

    def __init__(self, y: np.ndarray) -> None:
        self.y = y

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {"y": self.y}


def check(a: np.ndarray, b: np.ndarray, again: np.ndarray) -> Any:
    held = EquivalenceCheck(Tolerance(), Reference(Answers(), noise=RoundingNoise(lambda: Again(again))))
    held.add({}, {"y": a}, {"y": b})
    return held.report()


def test_what_rounding_moves_the_reference_by_is_excused_up_to_three_times() -> None:
    assert FACTOR == 3
    a = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    again, near, far = a.copy(), a.copy(), a.copy()
    again[3, 0] += 0.002
    near[7, 0] += 0.0056
    far[7, 0] += 0.0066
    assert check(a, near, again).ok and "rounding alone moves" in check(a, near, again).outputs[0].note
    assert check(a, near, again).outputs[0].excused == 1
    assert not check(a, far, again).ok
    assert not check(a, near, a).ok, "nothing was measured, so nothing is excused"


def test_noise_of_a_large_column_is_none_of_a_small_one() -> None:
    a = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32) * np.float32([1, 1e6])
    again, b = a.copy(), a.copy()
    again[:5, 1] += 5e4
    b[7, 0] += 0.5
    assert not check(a, b, again).ok


@pytest.mark.parametrize(
    ("dtype", "precision", "most"),
    [("float32", None, 0.01), ("float64", None, 0.01), ("float16", None, 32 / 1024), ("float32", "bfloat16", 0.25)],
)
def test_nothing_beyond_a_share_of_the_columns_scale_is_rounding(
    dtype: str, precision: str | None, most: float
) -> None:
    a = np.random.default_rng(0).normal(size=(400, 2)).astype(dtype)
    a[7] = 0
    scale = float(np.sqrt((a[:, 0].astype(np.float64) ** 2).mean()))
    again = a + np.asarray(scale, dtype)  # a reference that moves by all that it is tells nothing
    for share, number in ((0.95 * most, 1), (1.05 * most, 0)):
        b = a.copy()
        b[7, 0] += share * scale
        scales = ColumnScales().add(a)
        assert excuse(a, b, [again], Tolerance().widened(dtype, precision), scales, precision).elements == number
    assert excuse(a, -a, [again], Tolerance(), ColumnScales().add(a)).elements < 20  # those near zero


def test_a_tolerance_for_one_output_is_that_figure_alone() -> None:
    a = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float16)
    b = a.copy()
    b[3, 0] += np.float16(0.006)
    noise = RoundingNoise(lambda: Again(a + np.float16(0.006)))
    for atol, ok in ((0.01, True), (0.001, False)):
        own = {"y": Tolerance(0.0, atol, absolute=True)}
        held = EquivalenceCheck(Tolerance(), Reference(Answers(), noise=noise, precision="float16"), own=own)
        held.add({}, {"y": a}, {"y": b})
        (found,) = held.report().outputs
        assert (found.ok, found.given, found.atol) == (ok, True, atol)


def test_more_elements_than_rounding_moves_are_not_excused() -> None:
    a = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    again, b = a.copy(), a.copy()
    again[3, 0] += 0.1
    b[:30, 0] += 0.1
    assert not check(a, b, again).ok


def test_other_shapes_and_integers_have_no_excuse() -> None:
    a = np.ones((4, 2), np.float32)
    scales = ColumnScales().add(a)
    assert excuse(a, a + 1, [np.ones(3, np.float32)], Tolerance(), scales) == NO_EXCUSE
    assert excuse(a, a + 0.01, [(a + 0.01).astype(np.float64)], Tolerance(), scales) == NO_EXCUSE
    numbers = np.ones((4, 2), np.int64)
    assert excuse(numbers, numbers + 1, [numbers + 1], Tolerance(), scales) == NO_EXCUSE


class Source(DescribedRunner):
    """A framework model that tells of itself."""

    def __init__(self, dtype: str, rounding: Mapping[str, float]) -> None:
        self.inputs, self.outputs = (), (TensorSpec("y", np.dtype(dtype), (3,)),)
        self.rounding = rounding

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        raise NotImplementedError


def source(dtype: str, rounding: Mapping[str, float] = MappingProxyType({})) -> Source:
    return Source(dtype, rounding)


def test_a_framework_may_compute_in_a_wider_type_than_the_file_holds() -> None:
    declared = (reference_of_source(source("float32"), None).declared or {})["y"]

    def ok(a: np.ndarray, b: np.ndarray) -> bool:
        entry = Difference("y", Tolerance(), declared=declared)
        entry.add(a, b)
        return entry.result().ok

    one = np.ones(3)
    assert ok(one, one.astype(np.float32)) and ok(one.astype(np.float32), one.astype(np.float32))
    assert not ok(one, one.astype(np.float16)) and not ok(one, one.astype(np.int64))


def test_quantized_outputs_may_be_off_by_their_steps() -> None:
    evidence = reference_of_source(source("uint8", rounding={"y": 4.0}), None)

    def report(a: list[int], b: list[int]) -> Any:
        held = EquivalenceCheck(Tolerance(), evidence)
        held.add({}, {"y": np.array(a, np.uint8)}, {"y": np.array(b, np.uint8)})
        return held.report()

    assert report([0, 100, 200], [4, 96, 200]).ok and report([0, 100, 200], [4, 96, 200]).outputs[0].rtol == 1e-3
    assert not report([0, 100, 200], [5, 100, 200]).ok
    assert any("varied by 30 only" in w for w in report([0, 10, 30], [0, 10, 30]).warnings)
    assert not report([0, 10, 200], [0, 10, 200]).warnings


def test_as_many_elements_as_rounding_moves_are_excused() -> None:
    a = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    again, b = a.copy(), a.copy()
    again[:10, 0] += 0.004
    b[20:40, 0] += 0.004
    assert check(a, b, again).ok and check(a, b, again).outputs[0].excused == 20


def test_what_is_not_finite_is_no_measurement() -> None:
    a = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    b, again = a.copy(), a.copy()
    b[7, 0] += 0.5
    again[3, 0] = np.inf
    assert not check(a, b, again).ok
    a[5, 0] = b[5, 0] = again[5, 0] = np.nan
    again[3, 0] = a[3, 0]
    assert not check(a, b, again).ok


def test_the_reference_is_run_again_once_for_each_input() -> None:
    calls: list[int] = []

    class Counted(Again):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            calls.append(1)
            return super().run(feeds)

    noise = RoundingNoise(lambda: Counted(np.ones(3)))
    first, second = {"x": np.ones(1)}, {"x": np.ones(1)}
    for feeds in (first, first, first, second):
        assert noise.outputs(feeds)["y"].tolist() == [1, 1, 1]
    assert len(calls) == 2
    assert RoundingNoise(lambda: None).outputs(first) == {}


@pytest.mark.parametrize(("level", "other"), [("all", "off"), ("extended", "off"), ("off", "basic")])
def test_an_onnx_reference_is_run_with_other_graph_optimizations(
    monkeypatch: pytest.MonkeyPatch, level: Any, other: str
) -> None:
    opened: list[str] = []

    def opening(model: Any, options: SessionOptions) -> Any:
        opened.append(options.optimization)
        return Again(np.ones(3))

    monkeypatch.setattr(rounding, "OnnxRunner", SimpleNamespace(open=opening))
    runtime_noise("a.onnx", SessionOptions(optimization=level)).outputs({})
    assert opened == [other]


def excused(a: np.ndarray, b: np.ndarray, again: np.ndarray, tolerance: Tolerance = Tolerance()) -> int:  # noqa: B008
    return excuse(a, b, [again], tolerance, ColumnScales().add(a)).elements


@pytest.mark.parametrize(("scale", "number"), [(1.8, 1), (0.6, 1), (5.0, 0)])
def test_a_column_borrows_the_noise_of_one_that_is_hardly_larger(scale: float, number: int) -> None:
    a = np.random.default_rng(0).normal(size=(400, 2)).astype(np.float32)
    a *= np.float32([1, scale]) / np.sqrt((a**2).mean(axis=0))
    again, b = a.copy(), a.copy()
    again[3, 1] += 0.004
    b[7, 0] += 0.006
    assert excused(a, b, again) == number


def test_as_many_as_three_times_those_that_move_are_excused_and_no_more() -> None:
    a = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    again, three, four = a.copy(), a.copy(), a.copy()
    again[3, 0] += 0.004
    three[:3, 0] += 0.004
    four[:4, 0] += 0.004
    assert (excused(a, three, again), excused(a, four, again)) == (3, 0)
    again[10:13, 0] = np.inf  # no measurement
    assert excused(a, four, again) == 0


def test_single_and_complex_numbers_are_excused_too() -> None:
    one = np.float32([1.0])
    assert excused(one, one + np.float32(0.0055), one + np.float32(0.002)) == 1
    plane = np.array([1 + 1j], np.complex64)
    assert excused(plane, plane + np.complex64(0.0055j), plane + np.complex64(0.002j)) == 1
    assert excused(plane, plane + np.complex64(0.0075j), plane + np.complex64(0.002j)) == 0


def test_where_nothing_is_allowed_what_is_equal_is_not_outside() -> None:
    a = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    again, b = a.copy(), a.copy()
    again[3, 0] += 0.004
    b[7, 0] += 0.004
    assert excused(a, b, again, Tolerance(0.0, 0.0)) == 1


def test_what_rounding_moves_at_most_is_told() -> None:
    a = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    again = a.copy()
    again[3, 0] += 0.004
    again[4, 1] -= 0.002
    assert excuse(a, again, [again], Tolerance(), ColumnScales().add(a)).noise == pytest.approx(0.004, rel=1e-4)


def test_nan_on_both_sides_is_no_difference_and_on_one_side_one() -> None:
    a = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    again, b = a.copy(), a.copy()
    again[3, 0] += 0.004
    b[7, 0] += 0.004
    for array in (a, again, b):
        array[20:40, 1] = np.nan
    assert excused(a, b, again) == 1
    b[0:10, 1] = np.nan
    assert excused(a, b, again) == 0  # eleven are outside, and one is moved by rounding


def test_a_reference_that_gives_nothing_again_is_opened_once() -> None:
    opened: list[int] = []
    noise = RoundingNoise(lambda: opened.append(1))  # type: ignore[arg-type, return-value]
    for feeds in ({"x": np.ones(1)}, {"x": np.ones(1)}):
        assert noise.outputs(feeds) == {}
    assert len(opened) == 1


def test_a_reference_that_repeats_on_one_input_may_not_on_the_next() -> None:
    class Unsteady(Again):
        runs = 0

        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            self.runs += 1
            return {"y": feeds["x"] + (self.runs if feeds["x"][0] else 0)}

    known = Reference(Unsteady(np.ones(3)), noise=RoundingNoise(lambda: Again(np.ones(3))))
    assert known.rerounded_where_steady({"x": np.zeros(3)}, "y")
    assert not known.rerounded_where_steady({"x": np.ones(3)}, "y")


def test_rounding_that_was_measured_on_whole_outputs_says_nothing_of_a_part() -> None:
    again = Again(np.ones(3))
    known = Reference(again, noise=RoundingNoise(lambda: again), exact=RoundingNoise(lambda: again))
    assert len(known.rerounded_where_steady({"x": np.ones(3)}, "y")) == 2
    assert not known.seen_through(again).rerounded_where_steady({"x": np.ones(3)}, "y")


def test_a_source_that_computes_in_doubles_says_so() -> None:
    made = source("float32")
    assert not reference_of_source(made, None).in_doubles
    made.in_doubles = True
    assert reference_of_source(made, None).in_doubles


def test_outputs_that_no_number_of_an_input_reaches_may_be_constant() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[n] x, bool c) => (float y, int64 s, float k, float b) {
        y = Exp(x) s = Shape(x) k = Constant <value_float = 2.0> () t = Constant <value = bool {1}> ()
        b = If (t) <then_branch = p () => (float v) { v = Neg(x) }, else_branch = q () => (float w) { w = Exp(x) }>
    }"""
    assert fixed_outputs(ir.from_proto(onnx.parser.parse_model(text))) == {"s", "k"}
