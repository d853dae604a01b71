"""What is changed to make a candidate faster, and what is not tried twice."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.evaluator import Trial
from onnxtool.quantization.search.latency_refinement import with_attention, with_fusions, without_groups
from onnxtool.report.latency import LatencyRatio

GROUPS = [("first", {"a"}), ("second", {"b"})]


def layer(name: str, width: int) -> ir.Node:
    weight = ir.Value(name=f"w{name}", const_value=ir.tensor(np.ones((4, width), np.float32)))
    return ir.node("MatMul", [ir.Value(name="x"), weight], name=name)


class Lab:
    """A candidate's latency is told by the nodes that it leaves in float."""

    def __init__(self, widths: str = "123", **ratios: float) -> None:
        self.ratios, self.tried = ratios, []  # type: ignore[var-annotated]
        layers = [layer(name, int(width)) for name, width in zip("abc", widths, strict=True)]
        self.job = SimpleNamespace(prepared=SimpleNamespace(graph=layers))

    def try_out(self, name: str, recipe: QuantRecipe, like: Any = ()) -> Trial:
        self.tried.append(name)
        self.like = [t.name for t in like]
        label = name.rpartition(", ")[2].split(" ")[0]
        ratio = self.ratios[label]
        return Trial(name, recipe, latency=LatencyRatio(ratio, ratio - 0.01, ratio + 0.01, 1.0, ratio, 1))


def base(name: str = "base") -> Trial:
    plan: Any = dict.fromkeys("abc", "static")
    return Trial(name, QuantRecipe(mode="auto", plan=plan), latency=LatencyRatio(0.5, 0.49, 0.51, 1.0, 0.5, 1))


def always() -> bool:
    return True


def test_a_group_that_is_faster_in_float_stays_there() -> None:
    lab = Lab(first=0.4, second=0.5)
    best = without_groups(cast(Any, lab), base(), GROUPS, always, set(), {})
    assert best.name == "base, first float" and set(best.recipe.plan or {}) == {"b", "c"}
    assert lab.tried == ["base, first float", "base, first float, second float"]


@pytest.mark.parametrize(("ratio", "again"), [(0.53, False), (0.52, True), (0.5, True)])
def test_only_what_was_clearly_slower_is_not_tried_on_another(ratio: float, again: bool) -> None:
    costly: set[frozenset[str]] = set()
    lab = Lab(first=ratio, second=0.6)
    without_groups(cast(Any, lab), base(), GROUPS, always, costly, {})
    without_groups(cast(Any, lab), base("other"), GROUPS, always, costly, {})
    assert ("other, first float" in lab.tried) == again
    assert "other, second float" not in lab.tried


@pytest.mark.parametrize(("widths", "ratio", "tried"), [("223", 0.6, False), ("233", 0.6, True), ("223", 0.52, True)])
def test_a_group_of_the_same_shapes_as_one_that_was_clearly_slower_is_not_tried(
    widths: str, ratio: float, tried: bool
) -> None:
    lab = Lab(widths, first=ratio, second=0.6)
    without_groups(cast(Any, lab), base(), GROUPS, always, set(), {})
    assert ("base, second float" in lab.tried) == tried


def test_products_that_were_clearly_slower_on_integers_are_not_tried_again() -> None:
    costly: set[frozenset[str]] = set()
    lab = Lab(**{"with": 0.7})
    products = cast(Any, [SimpleNamespace(name="p")])
    assert with_attention(cast(Any, lab), base(), products, always, costly).name == "base"
    assert with_attention(cast(Any, lab), base("other"), products, always, costly).name == "other"
    assert lab.tried == ["base, with attention"]


@pytest.mark.parametrize(
    ("widths", "cost", "label", "tried"),
    [
        ("222", {}, "part 1 of 4", False),
        ("122", {}, "part 1 of 4", True),  # another shape than all others
        ("222", {"a": 5.0}, "part 1 of 4", True),  # used more often than all others
        ("222", {}, "first Conv", True),
    ],
)
def test_a_stretch_of_layers_that_are_found_outside_of_it_too_is_not_tried(
    widths: str, cost: dict[str, float], label: str, tried: bool
) -> None:
    lab = Lab(widths, part=0.6, first=0.6)
    without_groups(cast(Any, lab), base(), [(label, {"a"})], always, set(), cost)
    assert bool(lab.tried) == tried


def test_fusions_are_tried_one_after_the_other_and_the_fastest_is_kept() -> None:
    lab: Any = Lab(attention=0.45, all=0.47)
    lab.times, lab.fusable = True, ("attention", "all")
    best = with_fusions(lab, base(), always)
    assert best.recipe.fuse == "attention"
    assert lab.tried == ["base, attention fused", "base, all fused"]
    assert lab.like == ["base", "base, attention fused"], "what comes to the same operators is as fast"


def test_fusions_that_gain_too_little_or_cannot_be_timed_are_left_alone() -> None:
    lab: Any = Lab(attention=0.495, all=0.45)
    lab.times, lab.fusable = True, ("attention", "all")
    assert with_fusions(lab, base(), always, ("attention",)).recipe.fuse == ""
    fused = replace(base().recipe, fuse="attention")
    assert with_fusions(lab, replace(base(), recipe=fused), always).recipe.fuse == "attention"
    assert with_fusions(lab, base(), lambda: False).recipe.fuse == ""
    lab.times = False
    assert with_fusions(lab, base(), always).recipe.fuse == ""
    assert lab.tried == ["base, attention fused"]
