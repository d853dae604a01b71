"""What a difference on one further input means: a failure, something to be said, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from onnxtool.equality.equivalence_check import EquivalenceCheck
from onnxtool.equality.reference import Reference
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.equality.search import counterexample
from onnxtool.equality.search.counterexample import (
    FAILS,
    CandidateFailsError,
    Findings,
    fails,
    judge_trials,
    minimise_failure,
    search_starts,
    with_findings,
)
from onnxtool.equality.trials.observe import Observed
from onnxtool.equality.trials.trial import EXACTLY, Trial
from onnxtool.errors import InputError, UsageError
from onnxtool.model.spec import TensorSpec
from onnxtool.report.compare import CompareReport
from onnxtool.report.proof import Coverage, TrialKind

F32 = np.dtype("float32")
X = np.arange(8, dtype=np.float32).reshape(2, 4)


class Runner:
    """y = f(x)."""

    inputs = (TensorSpec("x", F32, ("b", 4)), TensorSpec("mask", np.dtype("int64"), ("b", 4)))
    outputs = (TensorSpec("y", F32, ("b", 4)),)

    def __init__(self, function: Callable[[np.ndarray], Any]) -> None:
        self.function = function

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return {"y": np.asarray(self.function(feeds["x"]))}


SAME = Runner(lambda x: x)
MASK = np.int64([[1, 1, 1, 1], [1, 1, 1, 0]])


def judged(
    candidate: Runner,
    kind: TrialKind = TrialKind.VALUES,
    label: str = "one",
    *,
    source: Runner = SAME,
    x: np.ndarray = X,
    mask: np.ndarray | None = None,
    own: Mapping[str, Tolerance] | None = None,
    in_doubles: bool = False,
    **given: Any,
) -> Findings:
    """What comes of one trial."""
    feeds = {"x": x, "mask": np.ones((len(x), 4), np.int64) if mask is None else mask}
    trial = Trial(label, kind, feeds, source.run(feeds))
    findings = Findings(Observed([trial]), **given)
    reference = Reference(source, in_doubles=in_doubles)

    def judge(one: Trial, kept: Any) -> CompareReport:
        check = EquivalenceCheck(Tolerance(), own=own)
        pair = [one.outputs["y"], candidate.run(one.feeds)["y"]]
        if kept is not None:
            pair = [np.where(kept, y, 0) for y in pair]
        check.add(one.feeds, *({"y": y} for y in pair))
        return check.report()

    judge_trials([trial], judge, reference, candidate, findings)
    return findings


def outcome(findings: Findings) -> str:
    for name in ("failure", "said", "rounding", "masked"):
        if getattr(findings, name):
            return name
    return ""


@pytest.fixture
def all_is_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not even asked whether rounding explains it is none."""
    monkeypatch.setattr(counterexample, "rounding_explains", lambda *_, **__: True)


OTHER, NAN = Runner(lambda x: x + 1), Runner(lambda x: np.where(x > 3, np.nan, x))
SHORTER, BROKEN = Runner(lambda x: x[:1]), Runner(lambda x: x * np.float32(np.nan))
NOTHING = Runner(lambda x: np.zeros((0, 4), np.float32))


def refusing(error: type[Exception]) -> Runner:
    def run(_: np.ndarray) -> Any:
        raise error("no")

    return Runner(run)


def test_which_kinds_make_a_difference_a_failure() -> None:
    expected = {
        **dict.fromkeys(TrialKind, "failure"),
        **dict.fromkeys((TrialKind.MASK_VALUES, TrialKind.EXTREME_VALUES, TrialKind.BROKEN), "said"),
        TrialKind.MISSING_BROKEN: "",  # of finite numbers both sides are finite
    }
    assert {kind: outcome(judged(OTHER, kind)) for kind in TrialKind} == expected
    assert {outcome(judged(OTHER, kind, limits=[kind])) for kind in expected if expected[kind] == "failure"} == {"said"}
    assert all(outcome(judged(SAME, kind)) == "" for kind in TrialKind)


def test_a_reference_that_gives_other_numbers_each_time_refutes_nothing() -> None:
    for number in (lambda run: run, lambda run: run == 0):  # always another, or as from memory that is written to once
        runs = count()
        source = Runner(lambda x, n=number, r=runs: x + np.float32(n(next(r))))  # type: ignore[misc]
        assert outcome(judged(Runner(lambda x: x - 1), TrialKind.SIZE, source=source)) == "said"
    assert outcome(judged(Runner(lambda x: x - 1), TrialKind.SIZE)) == "failure"


def test_a_candidate_that_does_not_run() -> None:
    for kind in TrialKind:
        found = judged(refusing(InputError), kind)
        assert outcome(found) == ("said" if kind.may_fail else "failure")
        assert found.error == ("" if kind.may_fail else "no")
        assert found.said == ([f"one{FAILS}"] if kind.may_fail else [])
    with pytest.raises(UsageError):
        judged(refusing(UsageError))
    found = judged(refusing(InputError))
    with pytest.raises(CandidateFailsError, match="with one: no"):
        with_findings(CompareReport("a", "b", (), (), "", 0, 0), found, cast(Coverage, None), None)


def test_what_is_not_finite_in_one_alone_is_said_once() -> None:
    assert outcome(judged(NAN, TrialKind.MISSING_BROKEN)) == "said"
    assert outcome(judged(NAN, TrialKind.MISSING_BROKEN, limits=[TrialKind.MISSING])) == ""


def test_another_shape_of_nothing_is_said_and_of_something_a_failure() -> None:
    assert outcome(judged(Runner(lambda x: np.zeros((0, 5), np.float32)), TrialKind.EMPTY, source=NOTHING)) == "said"
    assert outcome(judged(SHORTER, TrialKind.EMPTY)) == "failure"


def test_an_input_informs_of_an_output_that_it_told_something_of() -> None:
    assert judged(SAME).informed == {"y"} and not judged(BROKEN, source=BROKEN).informed


@pytest.mark.usefixtures("all_is_rounding")
def test_what_rounding_never_explains() -> None:
    assert outcome(judged(OTHER)) == "rounding"
    assert outcome(judged(SHORTER)) == "failure"
    assert outcome(judged(OTHER, own={"y": Tolerance()})) == "failure"  # the user's own tolerance
    exact = {kind for kind in TrialKind if outcome(judged(OTHER, kind)) == "failure"}
    assert exact == {kind for kind in TrialKind if kind.is_exact}
    assert outcome(judged(OTHER, TrialKind.THRESHOLDS, certified=True)) == "rounding"
    label = f"{EXACTLY} 3"
    assert outcome(judged(OTHER, TrialKind.THRESHOLDS, label, in_doubles=True)) == "rounding"
    assert outcome(judged(OTHER, TrialKind.THRESHOLDS, label)) == "failure"
    assert outcome(judged(OTHER, TrialKind.THRESHOLDS, in_doubles=True)) == "failure"


def test_a_last_bit_that_one_model_alone_leaves_is_rounding_where_both_are_one_function() -> None:
    """x y - y x, in one of them with a multiplication that is not rounded before the subtraction."""
    zeros, residue = Runner(lambda x: x * 0), Runner(lambda x: x * 0 + np.float32(1.66e-6))
    for pair in ((zeros, residue), (residue, zeros)):
        given = {"source": pair[0], "x": X + 5}
        assert outcome(judged(pair[1], certified=True, **given)) == "rounding"
        assert outcome(judged(pair[1], **given)) == "failure"
    assert outcome(judged(residue, certified=True, source=zeros, x=X * 0)) == "failure"
    assert outcome(judged(Runner(lambda x: x * 0 + np.float32(1e-4)), certified=True, source=zeros, x=X)) == "failure"


@pytest.mark.usefixtures("all_is_rounding")
def test_a_few_last_bits_of_the_largest_number_are_no_step() -> None:
    small = np.float32([[1000, 0, 0, 0]])

    def off(by: float) -> Runner:
        return Runner(lambda x: x + np.float32([0, by, 0, 0]))

    assert outcome(judged(off(5e-4), TrialKind.THRESHOLDS, x=small)) == "rounding"
    assert outcome(judged(off(1.0), TrialKind.THRESHOLDS, x=small)) == "failure"
    wide = Runner(lambda x: x.astype(np.float64))
    other = Runner(lambda x: x.astype(np.float64) + np.array([0, 5e-4, 0, 0]))
    assert outcome(judged(other, TrialKind.THRESHOLDS, x=small, source=wide)) == "failure"  # of doubles these are many
    assert outcome(judged(off(np.nan), TrialKind.THRESHOLDS, x=small)) == "failure"

    def deviation(by: float) -> Runner:
        return Runner(lambda x: x - x.mean(keepdims=True) + np.float32(by))

    equal, source = np.full((1, 4), 0.3, np.float32), deviation(0)  # zero but for what the sum rounds away
    assert outcome(judged(deviation(3e-8), TrialKind.THRESHOLDS, x=equal, source=source)) == "rounding"
    assert outcome(judged(deviation(1e-5), TrialKind.THRESHOLDS, x=equal, source=source)) == "failure"


def test_only_positions_that_a_mask_leaves_out_may_differ() -> None:
    last, first = (Runner(lambda x, k=k: x + np.eye(4, dtype=np.float32)[k]) for k in (3, 0))
    specs = Runner.inputs
    left = np.int64([[1, 1, 1, 0]] * 2)
    assert outcome(judged(last, mask=left, specs=specs)) == "masked"
    assert outcome(judged(first, mask=left, specs=specs)) == "failure"
    assert outcome(judged(last, mask=left)) == "failure"
    assert outcome(judged(last, mask=np.ones((2, 4), np.int64), specs=specs)) == "failure"
    assert outcome(judged(last, mask=np.zeros((2, 4), np.int64), specs=specs)) == "failure"  # then all would be


def test_the_verdict_of_a_search_is_that_of_the_trials() -> None:
    trial, reference = Trial("one", TrialKind.SEARCH, {"x": X, "mask": MASK}, {"y": X}), Reference(SAME)

    def verdict(differs: bool) -> bool:
        report = cast(Any, SimpleNamespace(differs=differs, outputs=()))
        return fails(trial, lambda *_: report, reference, cast(Any, OTHER))

    assert not verdict(False)

    def refused(*_: Any) -> CompareReport:
        raise InputError("no")

    assert fails(trial, refused, reference, cast(Any, OTHER))


@pytest.mark.parametrize("kind", [TrialKind.VALUES, TrialKind.SEARCH])
def test_a_search_ends_at_no_difference_that_is_excused(kind: TrialKind, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(one: Trial, kept: Any) -> CompareReport:
        check = EquivalenceCheck(Tolerance())
        pair = [r.run(one.feeds)["y"] for r in (SAME, last)]
        check.add(one.feeds, *({"y": y if kept is None else np.where(kept, y, 0)} for y in pair))
        return check.report()

    last = Runner(lambda x: x + np.eye(4, dtype=np.float32)[3])
    masked, whole = (Trial("one", kind, {"x": X, "mask": np.int64([[1, 1, 1, end]] * 2)}, {"y": X}) for end in (0, 1))
    assert not fails(masked, judge, Reference(SAME), last) and fails(whole, judge, Reference(SAME), last)
    monkeypatch.setattr(counterexample, "rounding_explains", lambda *_, **__: True)
    assert not fails(whole, judge, Reference(SAME), last)


def test_an_output_that_stays_constant_beyond_the_usual_inputs_is_not_tested() -> None:
    check = EquivalenceCheck(Tolerance())
    check.add({"x": X}, *[{"y": np.ones((2, 4), np.float32)}] * 2)
    report, coverage = check.report(), cast(Coverage, None)
    for moved, untested in ((0, "constant"), (1, "")):
        trials = [Trial("t", TrialKind.VALUES, {}, {"y": np.ones((2, 4), np.float32) + k * moved}) for k in range(2)]
        found = with_findings(report, Findings(Observed(trials), informed={"y"}), coverage, None)
        assert found.outputs[0].untested == untested


def test_a_search_starts_from_inputs_on_which_a_difference_is_a_failure() -> None:
    apart = {TrialKind.SIZE, TrialKind.EMPTY, TrialKind.MISSING, TrialKind.MISSING_ROWS}
    apart |= {kind for kind in TrialKind if kind.report_only} | {TrialKind.TEXT}
    trials = [Trial("t", kind, {"x": X + k}, {}) for k, kind in enumerate(TrialKind)]
    large = Trial("large", TrialKind.VALUES, {"x": np.zeros((9, 4), np.float32)}, {})
    starts = search_starts(Findings(Observed([*trials, large]), limits=[TrialKind.TEXT]), [{"x": X - 1}])
    assert len(starts) == 1 + len(set(TrialKind) - apart)


def test_a_smaller_input_counts_only_where_the_two_differ_there(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(OTHER)
    before = found.failure
    smaller = Trial("smaller", TrialKind.VALUES, {"x": X[:1], "mask": MASK[:1]}, {"y": X[:1]})
    monkeypatch.setattr(counterexample, "minimised", lambda *_: smaller)
    same = cast(Any, SimpleNamespace(differs=False, outputs=()))
    minimise_failure(Reference(SAME), cast(Any, OTHER), (), lambda *_: same, found)
    assert found.failure is before
