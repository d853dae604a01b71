"""Of equal numbers the first comes first, as in ONNX; torch leaves open which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import onnxtool
from onnxtool.conversion.pytorch.model import _ORDER
from onnxtool.conversion.pytorch.stable_order import stable_order


@pytest.mark.parametrize("numbers", [4, 10**6], ids=["ties", "none"])
def test_equal_numbers_keep_their_order(numbers: int) -> None:
    x = torch.randint(0, numbers, (3, 40), generator=torch.Generator().manual_seed(0)).float()
    x[0, 3] = torch.nan
    with stable_order() as order:
        for dim in (1, -2):
            for largest in (True, False):
                right = torch.sort(x, dim=dim, descending=largest, stable=True)
                made = (
                    x.topk(2, dim, largest),
                    torch.topk(input=x, k=2, dim=dim, largest=largest),
                    torch.topk(x, 2, dim=dim, largest=largest),
                    torch.sort(x, dim, largest),
                    x.sort(dim=dim, descending=largest),
                )
                for found in made:
                    count = found.indices.shape[dim]
                    assert torch.equal(found.indices, right.indices.narrow(dim, 0, count))
                    assert torch.equal(found.values.nan_to_num(9), right.values.narrow(dim, 0, count).nan_to_num(9))
                assert torch.equal(x.argsort(dim, largest), right.indices)
                assert torch.equal(torch.argsort(x, dim=dim, descending=largest, stable=True), right.indices)
        assert torch.topk(torch.tensor(3.0), 1).values == 3 and torch.sort(x.double()).values.dtype == torch.float64
        total = torch.zeros(3, 40), torch.zeros(3, 40, dtype=torch.long)
        torch.sort(x, out=total)
    assert order.differs is (numbers == 4)


class Neighbours(torch.nn.Module):
    """The mean of the three nearest points, among which many are equally far."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clamp(-100, 100)
        far = (x[:, None] - x[None]).abs().sum(-1)
        nearest: torch.Tensor = x[far.topk(3, largest=False).indices]
        return nearest.mean(1)


def test_neighbours_of_points_on_a_grid_convert(tmp_path: Path) -> None:
    grid = np.array([(a, b) for a in range(5) for b in range(5)], np.float32)
    shapes = {"x": (25, 2)}
    report = onnxtool.convert(Neighbours(), tmp_path / "out.onnx", sample={"x": grid}, input_shapes=shapes)
    assert report.ok and _ORDER in report.notes
    apart = grid + np.random.default_rng(0).uniform(0, 0.3, grid.shape).astype(np.float32)
    options = {"input_shapes": shapes, "verify_result": False}  # the proof tries ties of its own
    alone = onnxtool.convert(Neighbours(), tmp_path / "out.onnx", sample={"x": apart}, **options)
    assert _ORDER not in alone.notes


class Bags(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.EmbeddingBag(9, 3, mode="sum", include_last_offset=True)

    def forward(self, numbers: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        return self.table(numbers, starts)


def test_bags_that_end_the_process_are_not_tried(tmp_path: Path) -> None:
    sample: dict[str, Any] = {"numbers": np.arange(9), "starts": np.array([0, 2, 2, 5, 9])}
    shapes: dict[str, Any] = {"numbers": ("n",), "starts": ("bags",)}
    assert onnxtool.convert(Bags(), tmp_path / "out.onnx", sample=sample, input_shapes=shapes, effort="quick").ok
    module = Bags()
    with stable_order():
        for starts in ([0], [], [0, 5, 2, 9]):
            with pytest.raises(ValueError, match="ascend"):
                module(torch.arange(9), torch.tensor(starts, dtype=torch.int64))
