"""One proof for all commands: the reference runs once, has to repeat, and what proves nothing is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from onnxtool.equality.proof import Proof, Search, judge_outputs
from onnxtool.equality.reference import Answers, Reference
from onnxtool.equality.rule.rounding import RoundingNoise
from onnxtool.equality.rule.rule import Rule
from onnxtool.equality.rule.tolerance import BITS, NUMBERS, Tolerance
from onnxtool.errors import OnnxToolError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.probes import Probe

F32 = np.dtype("float32")
X = np.random.default_rng(0).standard_normal((4, 3)).astype(F32)


class Function:
    """A function of one input as a Runner; counts how often it runs."""

    def __init__(self, function: Callable[[np.ndarray], np.ndarray]) -> None:
        self.inputs = (TensorSpec("x", F32, ("batch", 3)),)
        self.outputs = (TensorSpec("y", F32, ("batch", 3)),)
        self.function, self.runs = function, 0

    def run(self, feeds: Feeds) -> dict[str, Any]:
        self.runs += 1
        return {"y": np.asarray(self.function(feeds["x"]))}


def usual(runner: Function) -> list[Probe]:
    feeds = {"x": X}
    return [Probe(feeds, runner.run(feeds))]


def never_the_same(amount: float, seed: int = 1) -> Function:
    generator = np.random.default_rng(seed)
    return Function(lambda x: x + np.float32(amount) * generator.standard_normal(x.shape).astype(F32))


def test_the_reference_runs_once_however_many_candidates_there_are() -> None:
    double = Function(lambda x: 2 * x)
    proof = Proof(Reference(double), usual(double), search=Search("quick", branches=0, difference=0))
    assert proof.judge(Function(lambda x: x + x)).ok
    runs = double.runs
    assert runs > 10
    assert proof.judge(Function(lambda x: x + x)).ok and not proof.judge(Function(lambda x: -x)).ok
    assert double.runs == runs


def test_what_the_usual_inputs_do_not_show_is_found_beyond_them() -> None:
    same = Function(lambda x: x)
    proof = Proof(Reference(same), usual(same))
    assert proof.judge(Function(lambda x: np.minimum(x, 7.5))).ok
    proof.search = Search("quick")
    report = proof.judge(Function(lambda x: np.minimum(x, 7.5)))
    assert not report.ok and report.counterexample is not None and report.verdict == "different"


def test_rounding_excuses_nothing_of_a_reference_that_gives_something_else_each_time() -> None:
    """Two draws are apart as far as two roundings are; only running twice with the same options tells."""

    def judged(runner: Function) -> bool:
        again = Function(lambda x: x + np.float32(0.002))
        reference = Reference(runner, noise=RoundingNoise(lambda: again))
        return Proof(reference, usual(runner)).judge(Function(lambda x: x + np.float32(0.003))).ok

    assert judged(Function(lambda x: x))
    assert not judged(never_the_same(0.002))


@pytest.mark.parametrize("exact", [BITS, NUMBERS])
def test_equal_numbers_are_asked_for_unless_the_reference_gives_others_each_time(exact: Tolerance) -> None:
    def judged(runner: Function) -> Proof:
        proof = Proof(Reference(runner), usual(runner), Rule(exact, otherwise=Tolerance()))
        proof.judge(Function(lambda x: x * np.float32(1.0001)))
        return proof

    steady, unsteady = judged(Function(lambda x: x)), judged(never_the_same(1e-6))
    assert not steady.relaxed and steady.rule.tolerance == exact
    assert unsteady.relaxed and unsteady.rule.tolerance == Tolerance()
    assert not steady.judge(Function(lambda x: x * np.float32(1.0001))).ok
    assert unsteady.judge(Function(lambda x: x * np.float32(1.0001))).ok


def test_of_outputs_that_vary_only_types_and_shapes_are_compared() -> None:
    runner = never_the_same(1.0)
    proof = Proof(Reference(runner), usual(runner), varying={"y"})
    report = proof.judge(Function(lambda x: -x))
    assert [o.untested for o in report.outputs] == ["random"] and report.verdict == "not tested" and not report.equal
    assert proof.judge(Function(lambda x: x[:, :2])).verdict == "different"


@pytest.mark.parametrize(
    ("gives", "untested", "equal"),
    [
        (lambda x: x[:0], "empty", False),
        (lambda x: np.full_like(x, np.nan), "not finite", False),
        (np.zeros_like, "zero", True),
        (lambda x: x, "", True),
    ],
)
def test_what_no_run_tells_anything_of_is_not_tested(gives: Any, untested: str, equal: bool) -> None:
    runner = Function(gives)
    report = judge_outputs(runner, usual(runner), Rule())
    assert [o.untested for o in report.outputs] == [untested]
    assert report.verdict == ("not tested" if untested else "tested")
    assert (report.equal, report.ok) == (equal, equal)


def test_a_source_that_is_gone_answers_what_it_was_asked_before() -> None:
    runner = Function(lambda x: x)
    known = usual(runner)
    gone = Answers(runner, known, gone=True)
    assert gone.run(known[0].feeds)["y"] is known[0].outputs["y"]
    with pytest.raises(OnnxToolError, match="gone"):
        gone.run({"x": X + 1})
    assert Reference(gone).repeats({"x": X + 1}) == {}


def test_beyond_the_usual_inputs_nothing_is_put_down_to_rounding_where_numbers_have_to_be_the_same() -> None:
    def last_bits(x: np.ndarray) -> np.ndarray:
        return np.where(x > 7.5, x * np.float32(1.0000003), x).astype(F32)

    same = Function(lambda x: x)
    for tolerance, ok in ((NUMBERS, False), (Tolerance(), True)):
        proof = Proof(Reference(same), usual(same), Rule(tolerance), Search("quick", branches=0, difference=0))
        assert proof.judge(Function(last_bits)).ok is ok


def test_a_reference_that_repeats_on_the_usual_inputs_alone_is_held_to_its_bits_no_longer() -> None:
    """As a kernel that adds in any order only where inputs are large."""
    unsteady = never_the_same(1e-6)
    some = Function(lambda x: np.where(np.abs(x).max() > 20, unsteady.function(x), x))
    proof = Proof(Reference(some), usual(some), Rule(NUMBERS, otherwise=Tolerance()), Search("quick", branches=0))
    assert proof.judge(Function(lambda x: np.where(np.abs(x).max() > 20, x * np.float32(1.00001), x))).ok
    assert proof.relaxed


def test_inputs_of_a_search_are_judged_as_they_are_prepared() -> None:
    same = Function(lambda x: x)
    proof = Proof(Reference(same), [Probe({"x": np.abs(X)}, {"y": np.abs(X)})], search=Search("quick", branches=0))
    proof.prepare = lambda feeds: {"x": np.abs(feeds["x"])}  # the model is for numbers above zero
    assert proof.judge(Function(np.abs)).ok
    proof.prepare = dict
    assert not replace(proof, observed=None).judge(Function(np.abs)).ok


def test_of_a_source_that_is_gone_only_what_needs_no_second_run_is_tried() -> None:
    same = Function(lambda x: x)
    seen = Proof(Reference(same), usual(same), stays=False).observe()
    assert seen.trials and all(trial.kind.without_source for trial in seen.trials)


@pytest.mark.parametrize("masked", [True, False])
def test_positions_that_a_mask_leaves_out_may_differ_only_where_that_is_allowed(masked: bool) -> None:
    class Masked(Function):
        def __init__(self, left: float) -> None:
            super().__init__(lambda x: x)
            self.inputs = (TensorSpec("x", F32, ("b", 6)), TensorSpec("mask", np.dtype("int64"), ("b", 6)))
            self.left = np.float32(left)

        def run(self, feeds: Feeds) -> dict[str, Any]:
            return {"y": np.where(feeds["mask"] > 0, feeds["x"], self.left)}

    feeds = {"x": np.ones((2, 6), F32), "mask": np.ones((2, 6), np.int64)}
    proof = Proof(Reference(Masked(0)), [Probe(feeds, Masked(0).run(feeds))])
    proof.search = Search("quick", branches=0, difference=0, masked=masked)
    assert proof.judge(Masked(9)).ok is masked


def test_with_strict_the_report_asks_for_every_branch() -> None:
    same = Function(lambda x: x)
    proof = Proof(Reference(same), usual(same), search=Search("quick", branches=0, difference=0, strict=True))
    assert proof.judge(same).strict
