"""Modules of which parts are bfloat16, with casts between, are converted in float32 as a whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import onnxtool
from onnxtool.conversion.pytorch.in_float32 import run_in_float32
from onnxtool.errors import VerdictError


class Mixed(nn.Module):  # type: ignore[misc]
    """A layer of float32 before one of bfloat16."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how = how
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3).to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        given = {
            "to": lambda: y.to(torch.bfloat16),
            "named": lambda: y.to(dtype=torch.bfloat16),
            "method": y.bfloat16,
            "made": lambda: y + torch.zeros(4, dtype=torch.bfloat16),
        }[self.how]()
        return self.second(given.to(self.second.weight.dtype)).float()


@pytest.mark.parametrize("how", ["to", "named", "method", "made"])
def test_casts_to_bfloat16_are_casts_to_float32(how: str, tmp_path: Path) -> None:
    report = onnxtool.convert(Mixed(how), tmp_path / "out.onnx", input_shapes={"x": ("batch", 4)})
    assert report.ok
    assert any("bfloat16" in note for note in report.notes)
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    (found,) = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": x})
    with torch.no_grad():
        np.testing.assert_allclose(found, Mixed(how)(torch.from_numpy(x)).numpy(), rtol=0.05, atol=0.02)


class ByType(nn.Module):  # type: ignore[misc]
    """Gives something else in bfloat16."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.layer, self.factor = nn.Linear(4, 3, dtype=torch.bfloat16), factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return y * self.factor if self.layer.weight.dtype == torch.bfloat16 else y


def test_float32_is_held_against_the_model_in_bfloat16(tmp_path: Path) -> None:
    shapes = {"x": ("batch", 4)}
    with pytest.raises(VerdictError, match=r"50% off .* what the model gives in bfloat16"):
        onnxtool.convert(ByType(2.0), tmp_path / "out.onnx", input_shapes=shapes, effort="quick")
    assert not (tmp_path / "out.onnx").exists()
    notes = {f: onnxtool.convert(ByType(f), None, input_shapes=shapes, effort="quick").notes for f in (1.0, 1.1)}
    assert ["9% off" in " ".join(notes[f]) for f in notes] == [False, True]


def test_no_bfloat16_is_left() -> None:
    module = Mixed("method").float()
    run_in_float32(module)
    assert module(torch.ones(2, 4)).dtype == torch.float32
    seen: list[torch.dtype] = []
    module.second.register_forward_pre_hook(lambda _, args: seen.append(args[0].dtype))
    module(torch.ones(2, 4))
    assert seen == [torch.float32]
