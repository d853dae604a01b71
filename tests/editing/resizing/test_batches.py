"""A batch is held against single rows by the bounded excuse of rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.editing.context import EditContext
from onnxtool.editing.resizing.batches import BatchProof
from onnxtool.runtime.session.session import EXACT


def graph(batch: str, off: float) -> ir.Model:
    made = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[{batch},40] x) => (float[{batch},40] y) '
        f"{{ c = Constant <value_float = {off}> ()  y = Add(x, c) }}"
    )
    assert isinstance(made, ir.Model)
    return made


@pytest.mark.parametrize(("off", "wrong"), [(0.0, False), (0.004, False), (0.4, True)])
def test_however_far_rounding_moves_the_model_it_excuses_a_hundredth_at_most(
    monkeypatch: pytest.MonkeyPatch, off: float, wrong: bool
) -> None:
    proof = BatchProof(graph("1", 0.0), {"x": 0}, 1, EditContext(EXACT))

    def moved(self: BatchProof, size: int) -> list[dict[str, Any]]:
        return [{"y": np.asarray(row["y"]) + np.float32(0.5)} for row in self.case(size)[1]]

    monkeypatch.setattr(BatchProof, "_rerounded", moved)
    assert (proof.fault(graph("n", off), (3,)) is not None) is wrong


def test_without_other_roundings_nothing_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    proof = BatchProof(graph("1", 0.0), {"x": 0}, 1, EditContext(EXACT))
    monkeypatch.setattr(BatchProof, "_rerounded", lambda *_: [])
    assert proof.fault(graph("n", 0.004), (3,)) is not None
