"""What is changed to make a candidate faster, and what is not tried twice."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search import latency_refinement as module
from onnxtool.quantization.search.evaluator import RecipeTrial
from onnxtool.quantization.search.latency_refinement import (
    with_attention,
    with_fusions,
    without_gates,
    without_groups,
)
from onnxtool.report.measurement.latency import LatencyRatio

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

    def try_out(self, name: str, recipe: QuantRecipe) -> RecipeTrial:
        self.tried.append(name)
        label = name.rpartition(", ")[2].split(" ")[0]
        ratio = self.ratios[label]
        return RecipeTrial(name, recipe, latency=LatencyRatio(ratio, ratio - 0.01, ratio + 0.01, 1.0, ratio, 1))


def base(name: str = "base") -> RecipeTrial:
    plan: Any = dict.fromkeys("abc", "static")
    return RecipeTrial(name, QuantRecipe(mode="auto", plan=plan), latency=LatencyRatio(0.5, 0.49, 0.51, 1.0, 0.5, 1))


def always() -> bool:
    return True


def test_a_group_that_is_faster_in_float_stays_there() -> None:
    evaluator = Lab(first=0.4, second=0.5)
    best = without_groups(cast(Any, evaluator), base(), GROUPS, always, set(), {})
    assert best.name == "base, first float" and set(best.recipe.plan or {}) == {"b", "c"}
    assert evaluator.tried == ["base, first float", "base, first float, second float"]


@pytest.mark.parametrize(("ratio", "again"), [(0.53, False), (0.52, True), (0.5, True)])
def test_only_what_was_clearly_slower_is_not_tried_on_another(ratio: float, again: bool) -> None:
    costly: set[frozenset[str]] = set()
    evaluator = Lab(first=ratio, second=0.6)
    without_groups(cast(Any, evaluator), base(), GROUPS, always, costly, {})
    without_groups(cast(Any, evaluator), base("other"), GROUPS, always, costly, {})
    assert ("other, first float" in evaluator.tried) == again
    assert "other, second float" not in evaluator.tried


@pytest.mark.parametrize(("widths", "ratio", "tried"), [("223", 0.6, False), ("233", 0.6, True), ("223", 0.52, True)])
def test_a_group_of_the_same_shapes_as_one_that_was_clearly_slower_is_not_tried(
    widths: str, ratio: float, tried: bool
) -> None:
    evaluator = Lab(widths, first=ratio, second=0.6)
    without_groups(cast(Any, evaluator), base(), GROUPS, always, set(), {})
    assert ("base, second float" in evaluator.tried) == tried


def test_products_that_were_clearly_slower_on_integers_are_not_tried_again() -> None:
    costly: set[frozenset[str]] = set()
    evaluator = Lab(**{"with": 0.7})
    products = cast(Any, [SimpleNamespace(name="p")])
    assert with_attention(cast(Any, evaluator), base(), products, always, costly).name == "base"
    assert with_attention(cast(Any, evaluator), base("other"), products, always, costly).name == "other"
    assert evaluator.tried == ["base, with attention"]


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
    evaluator = Lab(widths, part=0.6, first=0.6)
    without_groups(cast(Any, evaluator), base(), [(label, {"a"})], always, set(), cost)
    assert bool(evaluator.tried) == tried


def test_fusions_are_tried_one_after_the_other_and_the_fastest_is_kept() -> None:
    evaluator: Any = Lab(attention=0.45, all=0.47)
    evaluator.times, evaluator.fusable = True, ("attention", "all")
    best = with_fusions(evaluator, base(), always)
    assert best.recipe.fuse == "attention"
    assert evaluator.tried == ["base, attention fused", "base, all fused"]


def test_fusions_that_gain_too_little_or_cannot_be_timed_are_left_alone() -> None:
    evaluator: Any = Lab(attention=0.495, all=0.45)
    evaluator.times, evaluator.fusable = True, ("attention", "all")
    assert with_fusions(evaluator, base(), always, ("attention",)).recipe.fuse == ""
    fused = replace(base().recipe, fuse="attention")
    assert with_fusions(evaluator, replace(base(), recipe=fused), always).recipe.fuse == "attention"
    assert with_fusions(evaluator, base(), lambda: False).recipe.fuse == ""
    evaluator.times = False
    assert with_fusions(evaluator, base(), always).recipe.fuse == ""
    assert evaluator.tried == ["base, attention fused"]


@pytest.mark.parametrize(("ratio", "kept"), [(0.6, False), (0.45, True)])
def test_gates_are_tried_in_float(ratio: float, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"s": "Sigmoid", "h": "HardSigmoid", "m": "Mul", "": "Sigmoid"}
    carried = [SimpleNamespace(name=name, op_type=kind) for name, kind in kinds.items()]
    monkeypatch.setattr(module, "placement_of", lambda *_: SimpleNamespace(carried=carried))
    evaluator: Any = Lab(activations=ratio)
    evaluator.conditions = SimpleNamespace(model=lambda _: SimpleNamespace(graph=None))
    excluded = replace(base(), recipe=replace(base().recipe, exclude=("old",)))
    best = without_gates(evaluator, excluded, always)
    assert best.recipe.exclude == (("old", "s", "h", "") if kept else ("old",))
    assert without_gates(evaluator, excluded, lambda: False) is excluded
    carried[:] = carried[2:3]
    assert without_gates(evaluator, excluded, always) is excluded and len(evaluator.tried) == 1


@pytest.mark.parametrize(("ratio", "kept"), [(0.492, True), (0.4925, False), (0.495, False), (0.51, False)])
def test_what_gains_less_than_a_percent_and_a_half_is_not_kept(ratio: float, kept: bool) -> None:
    """0.985 times 0.5 is 0.4925 exactly."""
    evaluator: Any = Lab(first=ratio, second=0.6, attention=ratio, **{"with": ratio})
    evaluator.times, evaluator.fusable = True, ("attention",)
    assert (without_groups(evaluator, base(), GROUPS[:1], always, set(), {}).name != "base") == kept
    products = cast(Any, [SimpleNamespace(name="p")])
    attended = with_attention(evaluator, base(), products, always, set())
    assert (attended.recipe.plan == {**dict.fromkeys("abc", "static"), "p": "static"}) == kept
    assert (with_fusions(evaluator, base(), always).recipe.fuse == "attention") == kept


def test_products_without_a_plan_or_a_name_are_tried_all_the_same() -> None:
    evaluator = Lab(**{"with": 0.4})
    bare = replace(base(), recipe=QuantRecipe(mode="auto"))
    products = cast(Any, [SimpleNamespace(name=None), SimpleNamespace(name="p")])
    assert with_attention(cast(Any, evaluator), bare, products, always, set()).recipe.plan == {
        "": "static",
        "p": "static",
    }
    assert with_attention(cast(Any, evaluator), base(), [], always, set()).name == "base" and len(evaluator.tried) == 1


def test_a_change_is_clearly_slower_from_three_percent_on() -> None:
    costly: set[frozenset[str]] = set()
    even = replace(base(), latency=LatencyRatio(1.0, 1.0, 1.0, 1.0, 1.0, 1))
    evaluator = Lab(first=1.04, second=1.05)  # of which 0.01 are taken off
    without_groups(cast(Any, evaluator), even, GROUPS, always, costly, {})
    assert costly == {frozenset("b")}
    estimated = Lab(first=1.0)
    estimated.try_out = lambda name, recipe: RecipeTrial(name, recipe, estimate=1.04)  # type: ignore[assignment]
    without_groups(cast(Any, estimated), replace(even, latency=None, estimate=1.0), GROUPS[:1], always, costly, {})
    assert frozenset("a") in costly


def test_nodes_without_weights_or_cost_are_known_by_their_operator() -> None:
    evaluator = Lab(part=0.6)
    plain = [ir.node("Relu", [ir.Value(name="x")], name=name) for name in "abc"]
    evaluator.job = SimpleNamespace(prepared=SimpleNamespace(graph=plain))
    stretch = [("part 1 of 4", {"a"})]
    without_groups(cast(Any, evaluator), base(), stretch, always, set(), {"b": 1.0, "c": 1.0})
    assert evaluator.tried, "a costs nothing, which the others do not"
    again = Lab(part=0.6)
    again.job = evaluator.job
    without_groups(cast(Any, again), base(), stretch, always, set(), {"b": 0.0, "c": 2.0})
    assert not again.tried
