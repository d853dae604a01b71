"""Which nodes are left in float, and how few of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.accuracy_repair import first_guess, node_noise, repair
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.report.quantize import Fidelity


def trial(db: float | None = 0.0, **plan: Any) -> RecipeTrial:
    found = RecipeTrial("all", QuantRecipe(plan=plan))
    found.fidelity = None if db is None else Fidelity(db, 1.0, None, 8, channel_db=db, margin_db=db - 25)
    return found


class Lab:
    """Nodes by noise; what is tried, by the nodes that stay on integers, and whether it is timed."""

    def __init__(self, **noise: float) -> None:
        self.noise, self.seen, self.measured = noise, {}, []  # type: ignore[var-annotated]
        self.tried: list[tuple[str, bool]] = []

    def noise_of(self, name: str, _: QuantRecipe) -> float:
        self.measured.append(name)
        return self.noise[name]

    def try_out(self, name: str, recipe: QuantRecipe, *, timed: bool = True) -> RecipeTrial:
        self.tried.append(("".join(recipe.plan or {}), timed))
        assert len(self.tried) < 20, "it does not end"
        return RecipeTrial(name, recipe)

    def repaired(self, keeps: Callable[[str], bool], nodes: list[ir.Node], **rest: Any) -> RecipeTrial | None:
        def kept(tried: RecipeTrial) -> bool:
            return keeps("".join(tried.recipe.plan or {}))

        plan: Any = dict.fromkeys(self.noise, "static")
        in_time = rest.pop("in_time", lambda: True)
        return repair(cast(CandidateEvaluator, self), trial(**plan), kept, in_time, nodes, **rest)


def layer(name: str, width: int) -> ir.Node:
    weight = ir.Value(name=f"{name}_w", const_value=ir.tensor(np.ones((width, width), np.float32)))
    return ir.node("MatMul", [ir.Value(name=f"{name}_x"), weight], name=name)


def test_what_was_not_measured_in_time_counts_as_average() -> None:
    left = iter([True, True, False, False])
    recipe = trial(a="static", b="static", c="static", d="static").recipe
    evaluator = Lab(a=0.1, b=0.3)
    found = node_noise(cast(CandidateEvaluator, evaluator), recipe, lambda: next(left))
    assert found == pytest.approx({"a": 0.1, "b": 0.3, "c": 0.2, "d": 0.2}) and evaluator.measured == ["a", "b"]
    assert node_noise(cast(CandidateEvaluator, evaluator), recipe, lambda: False) == dict.fromkeys("abcd", 0.0)


@pytest.mark.parametrize(
    ("db", "noise", "count"),
    [
        (None, [1.0, 1.0, 1.0], 1),
        (0.0, [1.0], 1),
        (0.0, [0.0, 0.0, 0.0], 1),
        (0.0, [1.0, 1.0, float("inf")], 1),
        (40.0, [1.0, 1.0, 1.0], 1),  # little noise as it is
        (0.0, [1.0, 1.0, 1.0, 1.0], 3),  # never all of them
        (0.0, [99.9, 0.05, 0.04, 0.01], 1),
    ],
)
def test_the_first_guess_is_by_the_noise_that_would_be_left(db: float | None, noise: list[float], count: int) -> None:
    assert first_guess(trial(db), noise) == count


@pytest.mark.parametrize(("little", "first"), [(0.1, "big"), (0.05, "small")])
def test_the_noisiest_for_what_float_costs_goes_first(little: float, first: str) -> None:
    """Of 4096 and 16 multiply-accumulates, and 1028 more for the conversions around either."""
    evaluator = Lab(big=0.3, small=little)
    evaluator.repaired(lambda _: True, [layer("big", 64), layer("small", 4)])
    assert evaluator.tried[0] == (first, False)


def test_the_fewest_that_do_are_found_and_only_these_are_timed() -> None:
    evaluator = Lab(**{name: 1.0 - i / 100 for i, name in enumerate("abcdefghijkl")})
    evaluator.noise["a"] = 1e6  # so that the first guess is one of them
    found = evaluator.repaired(lambda left: len(left) <= 7, [])
    assert found is not None and found.name == "all, 5 nodes float"
    assert [12 - len(left) for left, _ in evaluator.tried] == [1, 2, 4, 8, 6, 5, 5]
    assert [timed for _, timed in evaluator.tried] == [False] * 6 + [True]


def test_where_no_number_of_nodes_does_it_ends() -> None:
    evaluator = Lab(a=1e6, b=1.0, c=1.0)
    assert evaluator.repaired(lambda _: False, []) is None
    assert [left for left, _ in evaluator.tried] == ["bc", "c"]


def test_nothing_is_tried_without_time() -> None:
    evaluator = Lab(a=1e6, b=1.0, c=1.0)
    assert evaluator.repaired(lambda _: True, [], in_time=lambda: False) is None and evaluator.tried == []
    left = iter([True, False])
    evaluator = Lab(**dict.fromkeys("abcdefgh", 1.0))
    found = evaluator.repaired(lambda _: True, [], in_time=lambda: next(left), measuring=lambda: True)
    assert found is not None and len(evaluator.measured) == 8 and len(evaluator.tried) == 2, "the guess, and its timing"
