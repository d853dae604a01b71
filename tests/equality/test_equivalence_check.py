"""The one judgement: what it proves, what it says it did not, and that no two commands disagree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from onnxtool.conversion.adapter import SourceModel
from onnxtool.conversion.equivalence import SourceProof
from onnxtool.equality.compare import compare
from onnxtool.equality.compare_runners import compare_runners
from onnxtool.equality.equivalence_check import (
    EquivalenceCheck,
    is_float,
    match_names,
)
from onnxtool.equality.layers.compare_layers import compare_layers
from onnxtool.equality.proof import judge_outputs
from onnxtool.equality.reference import Answers, Reference, precision_of, reference_on
from onnxtool.equality.rule.rounding import RoundingNoise
from onnxtool.equality.rule.rule import Rule
from onnxtool.equality.rule.tolerance import BITS, Tolerance
from onnxtool.errors import InputError, UsageError
from onnxtool.model import io
from onnxtool.model.spec import TensorSpec
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.probes import Probe
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT, SessionOptions

COLUMNS = 3


def judged(a: Any, b: Any, tolerance: Tolerance = Tolerance()) -> Any:  # noqa: B008
    check = EquivalenceCheck(tolerance)
    check.add({}, {"y": a}, {"y": b})
    return check.report()


def test_all_nan_proves_nothing_and_is_said() -> None:
    nan = np.full((3, 2), np.nan, np.float32)
    report = judged(nan, nan)
    assert not report.differs and not report.ok
    assert any("'y' had no finite number in any run" in w for w in report.warnings)
    ones = judged(np.ones_like(nan), np.ones_like(nan))
    assert not ones.warnings and ones.ok and ones.verdict == "not tested"


def test_zero_everywhere_is_said() -> None:
    zero = np.zeros((3, 2), np.float32)
    assert any("'y' was zero in every run" in w for w in judged(zero, zero).warnings)


def test_another_place_of_nan_is_a_difference() -> None:
    a, b = np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)
    a[0, 0] = b[1, 0] = np.nan
    assert not judged(a, b).ok and judged(a, a.copy()).ok


def test_precision_shows_in_weights_and_casts() -> None:
    def of(text: str) -> str | None:
        return precision_of(io.from_proto(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')))

    assert of("g (float[2] x) => (float[2] y) { y = Neg(x) }") is None
    assert of("g (float16[2] x) => (float16[2] y) { y = Neg(x) }") == "float16"
    assert of("g (float[2] x) => (float[2] y) { h = Cast<to=10>(x) n = Neg(h) y = Cast<to=1>(n) }") == "float16"
    assert of("g (float[2] x) => (float[2] y) { h = Cast<to=16>(x) n = Cast<to=10>(h) y = Cast<to=1>(n) }") == (
        "bfloat16"
    )


class Given(SourceModel):
    """A source in numpy that gives what it is given."""

    form, framework = "numpy", "numpy"
    feeds_hint = None

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.inputs = self.outputs = (TensorSpec("x", dtype, shape),)
        self.outputs = (TensorSpec("y", dtype, shape),)
        self.notes: list[str] = []

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {"y": feeds["x"].copy()}


def adding(path: Path, delta: np.ndarray) -> Path:
    """y = x + delta."""
    kind = helper.np_dtype_to_tensor_dtype(delta.dtype)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "d"], ["y"])],
        "adding",
        [helper.make_tensor_value_info("x", kind, delta.shape)],
        [helper.make_tensor_value_info("y", kind, delta.shape)],
        [numpy_helper.from_array(delta, "d")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def verdicts(folder: Path, x: np.ndarray, delta: np.ndarray) -> dict[str, bool]:
    """What each command says of y = x and y = x + delta."""
    a, b = adding(folder / "a.onnx", np.zeros_like(delta)), adding(folder / "b.onnx", delta)
    feeds = {"x": x}
    runners = OnnxRunner.open(a), OnnxRunner.open(b)
    compared = compare_runners(reference_on(a, b, runners[0], SessionOptions()), runners[1], [feeds], Tolerance())
    layers = compare_layers(a, b, feeds, Tolerance())
    proof = SourceProof(Given(x.dtype, x.shape), ConvertOptions(sample=feeds), Tolerance())
    source = OnnxRunner.open(a, EXACT)
    return {
        "compare": compared.ok,
        "compare --layers": layers.culprit is None,
        "convert": proof.compare(io.load(b)).ok,
        "optimize": judge_outputs(OnnxRunner.open(b, EXACT), [Probe(feeds, source.run(feeds))], Rule()).ok,
    }


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["float16", "float32", "float64", "int32", "int64"]),
    st.lists(st.sampled_from([1e-6, 1e-3, 1.0, 1e3, 1e6]), min_size=COLUMNS, max_size=COLUMNS),
    st.integers(0, COLUMNS - 1),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_no_two_commands_disagree_and_none_accepts_a_planted_difference(
    tmp_path_factory: pytest.TempPathFactory, kind: str, scales: list[float], column: int, seed: int, outside: bool
) -> None:
    generator = np.random.default_rng(seed)
    dtype = np.dtype(kind)
    if dtype.kind == "i":
        x = generator.integers(-1000, 1000, (24, COLUMNS)).astype(dtype)
        delta = np.zeros_like(x)
        delta[seed % 24, column] = outside
    else:
        factors = np.float64(scales if kind != "float16" else np.clip(scales, 1e-2, 1e3))
        x = (generator.standard_normal((24, COLUMNS)) * factors).astype(dtype)
        columns = np.sqrt((x.astype("f8") ** 2).mean(axis=0))
        # What is planted is stated from the rule's text, not by its code.
        rtol, atol = (8 * 2**-10, 8 * 2**-10) if kind == "float16" else (1e-3, 1e-5)
        scale = max(columns[column], 2**-23 / 1e-5 * min(1.0, columns.max()))
        row = int(generator.integers(24))
        limit = rtol * abs(float(x[row, column])) + atol * scale
        delta = np.zeros_like(x)
        delta[row, column] = limit * (1.4 if outside else 0.8)  # 24 numbers tell their scale to a quarter
        moved = abs(float((x + delta).astype(dtype)[row, column]) - float(x[row, column]))
        if not (moved > limit * 1.05 if outside else moved < limit * 0.95):
            return  # the type's own rounding undoes what was planted
    found = verdicts(tmp_path_factory.mktemp("pair"), x, delta)
    assert set(found.values()) == {not outside}, found


def test_convolutions_with_outputs_of_thousands_are_equal_for_all(tmp_path: Path) -> None:
    """Folding a BatchNormalization moves an output of thousands by more than 1e-5, near zero too."""
    generator = np.random.default_rng(0)
    weights = {
        "w1": generator.normal(size=(16, 3, 3, 3)) * 9,
        "scale": generator.uniform(0.5, 2, 16),
        "bias": generator.normal(size=16),
        "mean": generator.normal(size=16),
        "var": generator.uniform(0.5, 2, 16),
        "w2": generator.normal(size=(8, 16, 3, 3)) * 9,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["y"], pads=[1, 1, 1, 1]),
    ]

    def write(path: Path, tensors: Mapping[str, np.ndarray], nodes: list[onnx.NodeProto]) -> Path:
        graph = helper.make_graph(
            nodes,
            "net",
            [helper.make_tensor_value_info("x", 1, ["n", 3, 24, 24])],
            [helper.make_tensor_value_info("y", 1, ["n", 8, 24, 24])],
            [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in tensors.items()],
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
        return path

    factor = weights["scale"] / np.sqrt(weights["var"] + 1e-5)
    folded = {
        "w1": weights["w1"] * factor.reshape(-1, 1, 1, 1),
        "b": weights["bias"] - weights["mean"] * factor,
        "w2": weights["w2"],
    }
    a = write(tmp_path / "a.onnx", weights, nodes)
    b = write(
        tmp_path / "b.onnx",
        folded,
        [
            helper.make_node("Conv", ["x", "w1", "b"], ["n"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["n"], ["r"]),
            helper.make_node("Conv", ["r", "w2"], ["y"], pads=[1, 1, 1, 1]),
        ],
    )
    report = compare(a, b, layers=True)
    assert report.outputs[0].max_abs > 1e-4 and report.ok, report.outputs
    assert report.layers is not None and report.layers.culprit is None
    wrong = write(tmp_path / "wrong.onnx", weights | {"bias": weights["bias"] + 1}, nodes)
    assert not compare(a, wrong).ok


@pytest.mark.parametrize(
    ("a", "b", "what", "expected"),
    [
        (["x", "z"], ["z", "x"], "outputs", {"x": "x", "z": "z"}),
        (["x"], ["z", "x"], "inputs", {"x": "x"}),
        (["x", "z"], ["p", "q"], "outputs", {"x": "p", "z": "q"}),
        (["x", "z"], ["q", "x"], "outputs", {"x": "x", "z": "q"}),
        (["x", "y", "z"], ["z", "q", "p"], "inputs", {"x": "q", "y": "p", "z": "z"}),
    ],
)
def test_names_are_matched_before_places(a: list[str], b: list[str], what: str, expected: dict[str, str]) -> None:
    assert match_names(a, b, what) == expected


@pytest.mark.parametrize(
    ("a", "b", "what"),
    [(["x"], ["z", "x"], "outputs"), (["x", "z"], ["x"], "inputs"), (["x"], ["p", "q"], "inputs")],
)
def test_other_numbers_of_names_do_not_match(a: list[str], b: list[str], what: str) -> None:
    with pytest.raises(InputError, match=f"other {what}"):
        match_names(a, b, what)


ONE = np.ones((3, 2), np.float32)


def test_outputs_keep_the_place_that_the_first_run_gave_them_and_sequences_may_grow() -> None:
    check = EquivalenceCheck(Tolerance())
    check.add({}, {"p": ONE, "q": 2 * ONE}, {"first": ONE, "second": 2 * ONE})
    check.add({}, {"p": ONE, "q": 2 * ONE}, {"second": 2 * ONE, "first": ONE})
    assert [(o.name, o.other_name, o.ok) for o in check.report().outputs] == [
        ("p", "first", True),
        ("q", "second", True),
    ]
    assert (check.report().a, check.report().b) == ("A", "B")
    assert judged(ONE, ONE).outputs[0].other_name is None
    grows = EquivalenceCheck(Tolerance())
    grows.add({}, {"s": [ONE]}, {"s": [ONE]})
    grows.add({}, {"s": [ONE, ONE]}, {"s": [ONE, 2 * ONE]})
    assert [o.ok for o in grows.report().outputs] == [True, False]
    with pytest.raises(InputError, match="only"):
        grows.add({}, {"s": [ONE, ONE, ONE]}, {"s": [ONE, ONE]})


class _Ties:
    """Excuses one index, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def excused(self, feeds: Any, name: str, a: np.ndarray, b: np.ndarray) -> int:
        self.asked += 1
        return 1


@pytest.mark.parametrize(
    ("a", "b", "asked", "ok"),
    [
        (np.array([1, 2]), np.array([1, 3]), 1, True),
        (np.array([1, 2]), np.array([3, 4]), 1, False),
        (np.array([1, 2]), np.array([1, 2]), 0, True),
        (np.array([1, 2]), np.array([1]), 0, False),
        (np.float32([1, 2]), np.float32([1, 3]), 0, False),
        (np.uint8([1, 2]), np.uint8([1, 3]), 1, True),
    ],
)
def test_ties_are_asked_for_where_indices_differ(a: np.ndarray, b: np.ndarray, asked: int, ok: bool) -> None:
    ties: Any = _Ties()
    check = EquivalenceCheck(Tolerance(), Reference(Answers(), ties=ties))
    check.add({}, {"y": a}, {"y": b})
    assert (ties.asked, check.report().ok) == (asked, ok)


def test_what_exact_kernels_put_right_is_excused_but_not_where_bits_count() -> None:
    """Of a framework model the judged graph is asked, of an ONNX model the reference itself."""
    off = ONE * np.float32(1.005)

    def ok(tolerance: Tolerance, **known: RoundingNoise) -> bool:
        check = EquivalenceCheck(tolerance, Reference(Answers(), **known))
        check.add({}, {"q": ONE}, {"q": off})
        return check.report().ok

    def noise(array: np.ndarray) -> RoundingNoise:
        runner: Any = SimpleNamespace(run=lambda _: {"q": array})
        return RoundingNoise(lambda: runner)

    same, wrong = noise(ONE), noise(off)
    assert not ok(Tolerance())
    assert ok(Tolerance(), judged_exactly=same) and not ok(Tolerance(), judged_exactly=wrong)
    assert ok(Tolerance(), exact=wrong) and not ok(Tolerance(), exact=same)
    assert not ok(BITS, judged_exactly=same) and not ok(BITS, exact=wrong)


def test_quantized_floats_may_be_off_by_one_step_wherever_they_are() -> None:
    evidence = Reference(Answers(), quantized={"y": 0.5})
    a = np.float32([[100, 0.0], [50, 1.0], [-300, 2.0]])

    def report(b: np.ndarray, tolerance: Tolerance = Tolerance()) -> Any:  # noqa: B008
        check = EquivalenceCheck(tolerance, evidence)
        check.add({}, {"y": a}, {"y": b})
        return check.report()

    assert report(a + np.float32(0.5)).ok
    assert not report(a + np.float32([0.0, 0.6])).ok
    assert not report(a + np.float32(0.5), BITS).ok
    assert report(a + np.float32([0.0, 0.7]), Tolerance(1e-3, 0.8)).ok
    assert report(a).outputs[0].atol == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(("high", "said"), [(39, True), (40, False)])
def test_an_output_that_varies_by_less_than_ten_steps_proves_little(high: int, said: bool) -> None:
    check = EquivalenceCheck(Tolerance(), Reference(Answers(), quantized={"y": 4.0}))
    for top in (5, high):
        y = np.array([0, top], np.uint8)
        check.add({}, {"y": y}, {"y": y})
    assert any("proves little" in w for w in check.report().warnings) is said


def test_a_tolerance_of_its_own_names_an_output() -> None:
    check = EquivalenceCheck(Tolerance(), own={"z": Tolerance(1.0, 1.0)})
    check.add({}, {"y": ONE}, {"y": ONE})
    with pytest.raises(UsageError, match="'z'"):
        check.report()
    own = EquivalenceCheck(Tolerance(), own={"y": Tolerance(0.5, 0.5, absolute=True)})
    own.add({}, {"y": ONE}, {"y": ONE * np.float32(1.4)})
    report = own.report()
    assert report.ok and (report.outputs[0].rtol, report.rtol) == (0.5, 1e-3)
    with pytest.raises(InputError, match="no input data"):
        EquivalenceCheck(Tolerance()).report()


def test_only_numbers_with_a_tolerance_are_said_to_be_zero() -> None:
    for zero in (np.zeros(3, np.int64), np.array(["", ""]), np.zeros(3, bool)):
        assert not judged(zero, zero).warnings
    assert judged(np.zeros(3, np.complex64), np.zeros(3, np.complex64)).warnings
    assert not judged(np.zeros(3, np.float32), np.zeros(4, np.float32)).warnings
    assert [is_float(name) for name in ("float16", "bfloat16", "complex64", "int64", "string")] == [True] * 3 + [
        False
    ] * 2


@pytest.mark.parametrize("varying", ["y", "z"])
def test_an_output_that_varies_in_either_model_is_not_compared(varying: str) -> None:
    check = EquivalenceCheck(Tolerance(), varying={varying})
    check.add({}, {"y": ONE}, {"z": ONE * 2})
    found = check.report().outputs[0]
    assert found.ok and not found.compared and found.untested == "random"


def test_a_tolerance_that_is_named_for_an_output_is_said_to_be_given_also_where_it_is_the_usual_one() -> None:
    check = EquivalenceCheck(Tolerance(), own={"y": Tolerance()})
    check.add({}, {"y": ONE, "z": ONE}, {"y": ONE, "z": ONE})
    named, usual = check.report().outputs
    assert named.given and named.rtol == Tolerance().rtol and not usual.given and usual.rtol is None


@pytest.mark.parametrize(("low", "said"), [(30, False), (31, True)])
def test_how_far_an_output_varies_is_from_its_lowest_number(low: int, said: bool) -> None:
    check = EquivalenceCheck(Tolerance(), Reference(Answers(), quantized={"y": 4.0}))
    y = np.array([low, 70], np.uint8)
    check.add({}, {"y": y}, {"y": y})
    assert any("proves little" in w for w in check.report().warnings) is said
