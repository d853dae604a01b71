"""One proof for all commands: the reference runs once, has to repeat, and what proves nothing is said."""

from __future__ import annotations

from collections.abc import Callable
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
