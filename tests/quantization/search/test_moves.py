"""What differs from a candidate in one choice, and what is learned from a move that was made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search import moves as module
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.quantization.search.moves import RecipeMove, RecipeMoves, renamed
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.report.quantize import Fidelity

PLAN: Any = dict.fromkeys("abc", "static")
DYNAMIC: Any = dict.fromkeys("abc", "dynamic")


def layer(name: str, width: int) -> ir.Node:
    weight = ir.Value(name=f"w{name}", const_value=ir.tensor(np.ones((4, width), np.float32)))
    return ir.node("MatMul", [ir.Value(name="x"), weight], name=name)


def trial(speed: float = 0.5, db: float | None = None, low: float | None = None, **choices: Any) -> RecipeTrial:
    latency = LatencyRatio(speed, speed if low is None else low, speed, 1.0, speed, 1)
    fidelity = None if db is None else Fidelity(db, 1.0, None, 8, channel_db=db, margin_db=db - 25)
    return RecipeTrial("t", QuantRecipe(**{"mode": "auto", "plan": PLAN, **choices}), 1, fidelity, latency)


class Model:
    """A model of three layers; what else it has is told."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        widths: str = "123",
        *,
        gates: tuple[str, ...] = (),
        products: tuple[str, ...] = (),
        groups: Any = (),
        fusable: tuple[str, ...] = (),
        times: bool = True,
        calibrated: bool = True,
        cost: Any = None,
    ) -> None:
        nodes = [layer(name, int(width)) for name, width in zip("abc", widths, strict=True)]
        nodes += [ir.node("MatMul", [ir.Value(name="x"), ir.Value(name="y")], name=name) for name in products]
        carried = [SimpleNamespace(name=n, op_type=n.rstrip("12")) for n in gates]
        monkeypatch.setattr(module, "placement_of", lambda *_: SimpleNamespace(carried=carried))
        monkeypatch.setattr(module, "is_product", lambda node: node.name in products)
        monkeypatch.setattr(module, "group_nodes", lambda *_, stretches: groups)
        monkeypatch.setattr(module, "has_pairs", lambda _: True)
        monkeypatch.setattr(module, "correctable", lambda _: True)
        evaluator: Any = SimpleNamespace(
            job=SimpleNamespace(prepared=SimpleNamespace(graph=nodes)),
            conditions=SimpleNamespace(model=lambda _: SimpleNamespace(graph=nodes)),
            fusable=fusable,
            times=times,
        )
        self.moves = RecipeMoves(
            cast(CandidateEvaluator, evaluator), QuantRecipe(), nodes[:3], cost or {}, calibrated=calibrated
        )

    def labels(self, one: RecipeTrial, *, accurate: bool = True, within: bool = True) -> list[str]:
        return [m.label for m in self.moves.of(one, accurate=accurate, within=within)]

    def named(self, label: str, one: RecipeTrial) -> QuantRecipe:
        return next(m.recipe for m in self.moves.of(one, accurate=False, within=True) if m.label == label)


def test_every_choice_of_a_recipe_is_a_move_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(
        monkeypatch,
        gates=("Sigmoid1", "Relu"),
        products=("p", "q"),
        groups=[("first", {"a"})],
        fusable=("attention", "all"),
    )
    known = trial(shifts={"a": (1.0,)}, fuse="all", exclude=("old",))
    faster = ["per-tensor", "activations float", "with attention", "first float"]
    quieter = ["smooth 0.5", "smooth 0.75", "equalized", "bias-corrected"]
    assert model.labels(known, accurate=False) == ["attention fused", *faster, *quieter]
    assert model.labels(trial(), within=True) == ["attention fused", "all fused", *faster]
    assert model.labels(trial(), accurate=False, within=False)[:4] == quieter, "what breaks the budget needs them first"
    bare = model.named("per-tensor", known)
    assert not bare.per_channel and bare.shifts is None and bare.fuse == "all", "the shifts were of other weights"
    assert model.named("activations float", known).exclude == ("old", "Sigmoid1")
    assert model.named("with attention", known).plan == {**PLAN, "p": "static", "q": "static"}
    assert set(model.named("first float", known).plan or {}) == {"b", "c"}
    assert model.named("smooth 0.75", known).smooth == 0.75 and model.named("equalized", known).equalize
    assert model.named("bias-corrected", known).bias_correction


def test_fusions_go_with_every_way_to_run_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(monkeypatch, fusable=("attention", "all"))
    assert model.labels(trial(plan=DYNAMIC))[:2] == ["attention fused", "all fused"]
    assert model.labels(trial(plan=DYNAMIC, fuse="attention"))[0] == "all fused"
    assert model.labels(trial(plan={}, compact=8)) == ["attention fused", "all fused"], "the float model's too"


def test_what_cannot_be_timed_or_calibrated_is_no_move(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [("first", {"a"})]
    untimed = Model(monkeypatch, fusable=("attention",), times=False, groups=groups)
    assert untimed.labels(trial()) == ["first float"]
    without_data = Model(monkeypatch, products=("p",), calibrated=False)
    assert without_data.labels(trial(), accurate=False) == ["per-tensor"]


@pytest.mark.parametrize(
    ("widths", "cost", "label", "possible"),
    [
        ("222", {}, "part 1 of 4", False),
        ("122", {}, "part 1 of 4", True),  # another shape than all others
        ("222", {"a": 5.0}, "part 1 of 4", True),  # used more often than all others
        ("222", {}, "first Conv", True),
    ],
)
def test_a_stretch_of_layers_that_are_found_outside_of_it_too_is_no_move(
    widths: str, cost: Any, label: str, possible: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(monkeypatch, widths, groups=[(label, {"a"})], cost=cost)
    assert (f"{label} float" in model.labels(trial())) == possible


def test_a_group_of_nothing_or_of_everything_is_no_move(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(monkeypatch, groups=[("none", {"z"}), ("all", {"a", "b", "c"})])
    assert model.labels(trial()) == ["per-tensor"]


def made(label: str, key: Any, *, quieter: bool = False) -> RecipeMove:
    return RecipeMove(label, QuantRecipe(), key, quieter)


@pytest.mark.parametrize(("low", "useless"), [(0.4925, False), (0.493, True)])
def test_what_surely_gained_nothing_is_not_made_again_where_nodes_run_alike(
    low: float, useless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.985 times 0.5 is 0.4925 exactly."""
    moves = Model(monkeypatch).moves
    move = made("fused", "fused")
    moves.learn(move, trial(0.5), trial(0.51, low=low))
    assert moves.is_useless(move, trial(0.4, smooth=0.5)) is useless
    assert not moves.is_useless(move, trial(0.4, plan=DYNAMIC)), "between other kernels it may gain"
    assert not moves.is_useless(made("other", "other"), trial())


def test_groups_of_the_same_shapes_gain_or_lose_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(monkeypatch, "223", groups=[("first", {"a"}), ("second", {"b"}), ("third", {"c"})])
    _, first, second, third = model.moves.of(trial(), accurate=True, within=True)
    model.moves.learn(first, trial(0.5), trial(0.6))
    assert model.moves.is_useless(second, trial()) and not model.moves.is_useless(third, trial())


@pytest.mark.parametrize(
    ("before", "after", "quieter", "useless"),
    [
        (40.0, 18.9, False, True),  # 6 dB below what values need
        (40.0, 19.1, False, False),
        (15.0, 8.9, False, True),
        (15.0, 14.9, True, True),  # made for accuracy, and it is noisier
        (15.0, 15.1, True, False),
    ],
)
def test_what_cost_much_accuracy_is_not_made_again(
    before: float, after: float, quieter: bool, useless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = Model(monkeypatch).moves
    move = made("m", "m", quieter=quieter)
    moves.learn(move, trial(0.5, before), trial(0.45, after))
    assert moves.is_useless(move, trial()) is useless
    moves.learn(made("n", "n"), trial(0.5), trial(0.45, 1.0))
    assert not moves.is_useless(made("n", "n"), trial()), "nothing is known of the first one"


def test_what_is_made_for_accuracy_need_not_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    moves = Model(monkeypatch).moves
    move = made("smooth", "smooth", quieter=True)
    moves.learn(move, trial(0.5, 20.0), trial(0.55, 30.0))
    assert not moves.is_useless(move, trial())


def test_a_name_says_what_a_candidate_is_and_not_how_it_was_found() -> None:
    assert renamed("static, per-channel", "all fused") == "static, per-channel, all fused"
    assert renamed("static, per-channel, attention fused", "all fused") == "static, per-channel, all fused"
    assert renamed("static, per-tensor, all fused", "per-channel") == "static, all fused, per-channel"
