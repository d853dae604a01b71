"""Branches that no input reaches are forced to run where two graphs have the same ones; what is left is told."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxtool.equality.compare_runners import compare_runners
from onnxtool.equality.search.conditions import GraphPart, Outcome
from onnxtool.equality.search.counterexample import Findings
from onnxtool.equality.trials.graph_trials import force_branches, unreached_parts
from onnxtool.equality.trials.observe import Observed
from onnxtool.runtime.session.session import EXACT

THEN, ELSE, BODY = (GraphPart("i", 0, part) for part in ("then branch", "else branch", "loop body"))


def branching(other: str) -> ir.Model:
    """x, or something else where its sum is beyond all that is tried."""
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (float[n] x) => (float[n] y) {{
        most = Constant <value_float = 1e30> () s = ReduceSum <keepdims = 0> (x) c = Less (s, most)
        y = If (c) <then_branch = t () => (float[n] a) {{ a = Identity(x) }},
                    else_branch = e () => (float[n] b) {{ b = {other}(x) }}> }}"""
    return ir.from_proto(onnx.parser.parse_model(text))


def forced(a: ir.Model, b: ir.Model, *parts: GraphPart) -> tuple[set[GraphPart], str]:
    findings = Findings(Observed())
    feeds = [{"x": np.float32([-1, 2, 3])}]
    equal = force_branches(a, b, parts, feeds, lambda x, y, f: compare_runners(x, y, [f]), EXACT, findings)
    return equal, "" if findings.failure is None else findings.failure.label


def test_a_branch_is_compared_by_force() -> None:
    assert forced(branching("Neg"), branching("Neg"), THEN, ELSE) == ({THEN, ELSE}, "")
    equal, label = forced(branching("Neg"), branching("Abs"), THEN, ELSE)
    assert equal == {THEN} and label.startswith("the else branch of 'i' forced to run")


def test_what_says_nothing_of_a_branch() -> None:
    assert forced(branching("Sqrt"), branching("Abs"), ELSE) == (set(), "")  # of -1 NaN
    assert forced(branching("Neg"), branching("Neg"), BODY) == (set(), "")
    plain = '<ir_version: 9, opset_import: ["" : 18]> g (float[n] x) => (float[n] y) { y = Neg (x) }'
    assert forced(branching("Neg"), ir.from_proto(onnx.parser.parse_model(plain)), ELSE) == (set(), "")


@pytest.mark.parametrize(("both", "told"), [(True, {"else branch", "false outcome"}), (False, {"else branch"})])
def test_which_outcomes_are_told_as_unreached(both: bool, told: set[str]) -> None:
    """Of one model alone its branches; of two the outcomes of conditions too, but no number beyond a type."""
    missed = [
        Outcome("i", False, False, branch=ELSE),
        Outcome("c", False, False),
        Outcome("k", True, False, beyond=True),
    ]
    graphs = {"A": branching("Neg"), "B": branching("Neg")}
    found = unreached_parts({"A": missed}, graphs if both else {"A": graphs["A"]})
    assert {branch.part for branch in found} == told
