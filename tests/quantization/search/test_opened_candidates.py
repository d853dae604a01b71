"""Which loaded candidates are kept."""

from __future__ import annotations

from typing import Any, cast

import onnx_ir as ir

from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.opened_candidates import OpenedCandidates


class Candidates(OpenedCandidates):
    """Of a model of one Relu and two Neg, and what was built of it."""

    def __init__(self, size: int = 0) -> None:
        self.built: list[float] = []
        self.size = size
        super().__init__(self.build, lambda payload: cast(Any, f"session {len(payload)}"))

    def build(self, recipe: QuantRecipe) -> ir.Model:
        self.built.append(recipe.smooth)
        x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT))
        nodes = [ir.node("Relu", [x]), ir.node("Neg", [x]), ir.node("Neg", [x])]
        graph = ir.Graph([x], [n.outputs[0] for n in nodes], nodes=nodes, doc_string="d" * self.size)
        return ir.Model(graph, ir_version=10)

    def ask(self, smooth: float, speed: float = 1.0) -> Any:
        return self.get(QuantRecipe(smooth=smooth), lambda: speed)


def test_a_candidate_is_built_and_loaded_once() -> None:
    found = Candidates()
    first = found.ask(0.5)
    assert found.ask(0.5) is first and found.built == [0.5]
    assert first.operators == {"Relu": 1, "Neg": 2}
    assert first.runner == f"session {len(first.model)}"


def test_the_slowest_makes_room() -> None:
    found = Candidates()
    for speed in (0.3, 0.9, 0.2):
        found.ask(speed, speed)
    assert found.built == [0.3, 0.9, 0.2]
    for speed in (0.3, 0.2):
        found.ask(speed, speed)
    assert found.built == [0.3, 0.9, 0.2], "all but the slowest are kept"
    found.ask(0.9, 0.9)
    assert found.built[-1] == 0.9


def test_large_candidates_are_kept_one_at_a_time() -> None:
    found = Candidates(size=60_000_000)
    for smooth in (0.1, 0.1, 0.2, 0.1):
        found.ask(smooth)
    assert found.built == [0.1, 0.2, 0.1]
