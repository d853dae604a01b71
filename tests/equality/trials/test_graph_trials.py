"""What is told of the outcomes that no input reaches."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxtool.equality.search.conditions import Outcome
from onnxtool.equality.trials.graph_trials import unreached_parts


@pytest.mark.parametrize(("both", "told"), [(True, {"else branch", "false outcome"}), (False, {"else branch"})])
def test_which_outcomes_are_told_as_unreached(both: bool, told: set[str]) -> None:
    """Of one model alone its branches; of two the outcomes of conditions too, but no number beyond a type."""
    missed = [
        Outcome("i", False, False, branch="else branch"),
        Outcome("c", False, False),
        Outcome("k", True, False, beyond=True),
    ]
    graph = ir.Model(ir.Graph([], [], nodes=[]), ir_version=9)
    found = unreached_parts({"A": missed}, dict.fromkeys("AB" if both else "A", graph))
    assert {branch.part for branch in found} == told
