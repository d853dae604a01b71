"""What is next to the best candidate."""

from __future__ import annotations

from typing import Any

import pytest

from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.candidates import neighbours
from onnxtool.quantization.search.evaluator import RecipeTrial
from onnxtool.report.measurement.latency import LatencyRatio
from onnxtool.report.quantize import Fidelity

DYNAMIC: dict[str, Any] = {"a": "dynamic", "b": "dynamic"}
STATIC: dict[str, Any] = {"a": "static", "b": "static"}


def trial(name: str, speed: float, **choices: Any) -> RecipeTrial:
    latency = LatencyRatio(speed, speed - 0.01, speed + 0.01, 1.0, speed, 1)
    return RecipeTrial(name, QuantRecipe(**{"mode": "auto", "plan": DYNAMIC, **choices}), latency=latency)


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


def test_a_change_that_was_surely_slower_on_another_candidate_is_not_tried_again() -> None:
    best = trial("best", 0.5, smooth=0.5, per_channel=False)
    before = trial("before", 0.6, per_channel=False, shifts={"a": (1.0,)}, ranges={"t": (0.0, 1.0)})
    slower = trial("slower", 0.63, per_channel=True, ranges={"t": (0.0, 2.0)})
    unclear = trial("unclear", 0.627, per_channel=True)

    def tried(*trials: RecipeTrial) -> bool:
        return any("per-channel weights" in name for name, _ in neighbours(best, [best, *trials]))

    assert not tried(before, slower)
    assert tried(before, unclear) and tried(before) and tried(slower)
    assert tried(before, trial("elsewhere", 0.7, per_channel=True, plan=STATIC)), "of other nodes"
    assert tried(trial("changed", 0.6, per_channel=True), trial("back", 0.7, per_channel=False)), (
        "the way back was slower"
    )


@pytest.mark.parametrize(
    ("before", "after", "best", "tried"),
    [(40.0, 17.0, 30.0, False), (40.0, 20.0, 30.0, True), (15.0, 8.9, 30.0, False), (15.0, 9.1, 30.0, True)],
)
def test_a_change_that_made_another_candidate_far_noisier_is_not_tried_again(
    before: float, after: float, best: float, tried: bool
) -> None:
    first, plain, changed = (
        trial("best", 0.5, smooth=0.5),
        trial("plain", 0.6),
        trial("changed", 0.5, per_channel=False),
    )
    for one, db in ((first, best), (plain, before), (changed, after)):
        one.fidelity = Fidelity(db, 1.0, None, 8, channel_db=db, margin_db=db - 25)
    found = [name for name, _ in neighbours(first, [first, plain, changed])]
    assert ("best, per-tensor weights" in found) == tried


def test_nodes_of_a_far_noisier_candidate_are_not_tried() -> None:
    best, other = trial("best", 0.5), trial("other", 0.4, plan=STATIC)
    best.fidelity = Fidelity(30, 1.0, None, 8, channel_db=30.0, margin_db=30.0 - 25)
    for db, count in ((18.0, 1), (20.0, 2)):
        other.fidelity = Fidelity(db, 1.0, None, 8, channel_db=db, margin_db=db - 25)
        assert len(neighbours(best, [best, other])) == count


def test_fusions_that_were_surely_slower_on_another_candidate_are_not_tried_again() -> None:
    best = trial("best", 0.5, smooth=0.5, fuse="all")
    others = [trial("all", 0.6, fuse="all"), trial("attention", 0.65, fuse="attention"), trial("plain", 0.605)]
    found = [name for name, _ in neighbours(best, [best, *others])]
    assert "best, nothing fused" in found and "best, attention fused" not in found


@pytest.mark.parametrize(("speed", "again"), [(0.627, True), (0.629, False)])
def test_nodes_that_surely_made_another_candidate_slower_are_not_tried(speed: float, again: bool) -> None:
    best = trial("best", 0.58, fuse="all")
    before, after = trial("before", 0.6), trial("after", speed, plan=STATIC)
    found = [name for name, _ in neighbours(best, [best, before, after]) if "nodes as of" in name]
    assert found == (["best, nodes as of after"] if again else [])


def test_nodes_of_one_exactly_as_far_behind_as_is_too_close_are_tried() -> None:
    best = trial("best", 0.5)
    assert len(neighbours(best, [best, trial("other", 1.12 * 0.5, plan=STATIC)])) == 2
    assert len(neighbours(best, [best, trial("other", 0.5601, plan=STATIC)])) == 1


def test_a_change_is_compared_only_where_all_of_it_was_made_and_timed() -> None:
    best = trial("best", 0.5, smooth=0.5)
    plain, untimed, empty = trial("plain", 0.6), trial("untimed", 0.9, per_channel=False), trial("empty", 0.9)
    untimed.latency = None
    empty.recipe = QuantRecipe(mode="auto", plan={}, per_channel=False)
    partly = trial("partly", 0.9, per_channel=False, per_tensor_nodes=("a",))
    equal = trial("equal", 0.6279, per_channel=False)  # at least 0.6179, and 0.618 is 3 % more
    for other in (untimed, empty, partly, equal):
        found = [name for name, _ in neighbours(best, [best, plain, other])]
        assert "best, per-tensor weights" in found, other.name


def test_what_was_not_judged_is_not_said_to_be_noisier() -> None:
    best, other = trial("best", 0.5), trial("other", 0.5, plan=STATIC)
    best.fidelity = Fidelity(30, 1.0, None, 8, channel_db=30.0, margin_db=30.0 - 25)
    assert len(neighbours(best, [best, other])) == 2
    best.fidelity, other.fidelity = None, Fidelity(1, 1.0, None, 8, channel_db=1.0, margin_db=1.0 - 25)
    assert len(neighbours(best, [best, other])) == 2
    best.fidelity = Fidelity(30, 1.0, None, 8, channel_db=30.0, margin_db=30.0 - 25)
    other.fidelity = Fidelity(19, 1.0, None, 8, channel_db=19.0, margin_db=19.0 - 25)
    assert len(neighbours(best, [best, other])) == 2, "6 dB below 25"
