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


def test_no_bfloat16_is_left() -> None:
    module = Mixed("method").float()
    run_in_float32(module)
    assert module(torch.ones(2, 4)).dtype == torch.float32
    seen: list[torch.dtype] = []
    module.second.register_forward_pre_hook(lambda _, args: seen.append(args[0].dtype))
    module(torch.ones(2, 4))
    assert seen == [torch.float32]
