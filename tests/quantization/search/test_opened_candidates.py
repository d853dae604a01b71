"""Which loaded candidates are kept."""

from __future__ import annotations

from typing import Any, cast

import onnx_ir as ir

from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.opened_candidates import Built, OpenedCandidates


class Candidates(OpenedCandidates):
    """Of a model of one Relu and two Neg, and what was built of it."""

    def __init__(self, size: int = 0) -> None:
        self.asked: list[float] = []
        self.loaded = 0
        self.size = size
        super().__init__(self.build, self.load)

    def load(self, built: Built) -> Any:
        self.loaded += 1
        return f"session {built.size}"

    def build(self, recipe: QuantRecipe) -> ir.Model:
        self.asked.append(recipe.smooth)
        x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT))
        nodes = [ir.node("Relu", [x]), ir.node("Neg", [x]), ir.node("Neg", [x])]
        graph = ir.Graph([x], [n.outputs[0] for n in nodes], nodes=nodes, doc_string="d" * self.size)
        return ir.Model(graph, ir_version=10)

    def ask(self, smooth: float, speed: float = 1.0) -> Any:
        return self.session(QuantRecipe(smooth=smooth), lambda: speed)


def test_a_candidate_is_built_and_loaded_once() -> None:
    found = Candidates()
    first = found.ask(0.5)
    assert found.ask(0.5) is first and found.asked == [0.5] and found.loaded == 1
    built = found.built(QuantRecipe(smooth=0.5), lambda: 1.0)
    assert built.spare == 0
    assert first == f"session {built.size}" and built.size == len(cast(bytes, built.model)) and found.asked == [0.5]


def test_what_is_built_is_loaded_only_where_a_session_is_asked_for() -> None:
    found = Candidates()
    found.built(QuantRecipe(smooth=0.5), lambda: 1.0)
    assert found.loaded == 0
    found.ask(0.5)
    assert found.asked == [0.5] and found.loaded == 1


def test_two_sessions_are_kept_and_the_slowest_makes_room() -> None:
    found = Candidates()
    for speed in (0.3, 0.9, 0.2):
        found.ask(speed, speed)
    assert found.loaded == 3
    for speed in (0.3, 0.2):
        found.ask(speed, speed)
    assert found.loaded == 3, "all but the slowest are kept"
    found.ask(0.9, 0.9)
    assert found.loaded == 4 and found.asked == [0.3, 0.9, 0.2], "its model was"


def test_twelve_models_are_kept() -> None:
    found = Candidates()
    for speed in range(13):
        found.built(QuantRecipe(smooth=speed / 16), lambda speed=speed: -speed)  # type: ignore[misc]
    for speed in (*range(1, 13), 0):
        found.built(QuantRecipe(smooth=speed / 16), lambda: 0.0)
    assert found.asked == [speed / 16 for speed in (*range(13), 0)], "the slowest was the first one"


def test_large_candidates_are_kept_one_at_a_time() -> None:
    found = Candidates(size=40_000_000)
    for smooth in (0.1, 0.1, 0.2, 0.1):
        found.ask(smooth)
    assert found.asked == [0.1, 0.2, 0.1] and found.loaded == 3
    half = Candidates(size=31_000_000)
    for smooth in (0.1, 0.2, 0.1, 0.2):
        half.ask(smooth)
    assert half.asked == [0.1, 0.2] and half.loaded == 2
