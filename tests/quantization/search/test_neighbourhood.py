"""What is next to the best candidate."""

from __future__ import annotations

from typing import Any

from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.evaluator import Trial
from onnxtool.quantization.search.neighbourhood import neighbours
from onnxtool.report.latency import LatencyRatio

DYNAMIC: dict[str, Any] = {"a": "dynamic", "b": "dynamic"}
STATIC: dict[str, Any] = {"a": "static", "b": "static"}


def trial(name: str, speed: float, **choices: Any) -> Trial:
    latency = LatencyRatio(speed, speed - 0.01, speed + 0.01, 1.0, speed, 1)
    return Trial(name, QuantRecipe(**{"mode": "auto", "plan": DYNAMIC, **choices}), latency=latency)


def test_each_neighbour_differs_from_the_best_in_one_choice() -> None:
    best = trial("best", 0.5, smooth=0.5, shifts={"a": (1.0,)})
    others = [trial("fused", 0.6, fuse="attention"), trial("static", 0.52, plan=STATIC, fuse="all")]
    found = {name.partition(", ")[2]: recipe for name, recipe in neighbours(best, [best, *others])}
    assert set(found) == {"per-tensor weights", "attention fused", "all fused", "nodes as of static"}
    assert not found["per-tensor weights"].per_channel and found["per-tensor weights"].plan == DYNAMIC
    assert found["per-tensor weights"].shifts is None, "the shifts were of other weights"
    assert found["all fused"].fuse == "all" and found["all fused"].plan == DYNAMIC
    assert found["nodes as of static"].plan == STATIC and found["nodes as of static"].fuse == ""
    assert all(recipe.smooth == 0.5 for recipe in found.values())


def test_choices_that_were_far_slower_or_nothing_is_quantized_by_are_left_alone() -> None:
    best = trial("best", 0.5)
    assert [n for n, _ in neighbours(best, [best, trial("static", 0.6, plan=STATIC)])] == ["best, per-tensor weights"]
    floats = trial("float", 0.9, plan={}, compact=8)
    assert neighbours(floats, [floats, best]) == []
    three = [trial(f"plan {i}", 0.51, plan={"a": "static"} | {f"c{i}": "static"}) for i in range(4)]
    assert len([n for n, _ in neighbours(best, three) if "nodes as of" in n]) == 2
