"""A module in float64 tells how far rounding moves it, and nothing where something else moves it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import onnxtool
from onnxtool.conversion.convert import load_source
from onnxtool.conversion.pytorch.model import TorchModel
from onnxtool.errors import InputError
from onnxtool.options.convert import ConvertOptions

ROWS = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)


class Plain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x))


class Narrows(torch.nn.Module):
    """Casts to float32, and makes numbers of it, which a product of matrices does not mix with others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        far = (x * 2).float() + 1000 * torch.ones(x.shape[0], 1)
        return (
            (far - far.mean(1, keepdim=True)) @ torch.eye(8)
            + torch.zeros(8).add_(x[0])
            + torch.tensor([0.5]) @ torch.ones(1, 8)
        )


class Dropping(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5, training=True)


class Noisy(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1e-2 * torch.rand(x.shape[0], 1)


class Asking(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.dtype == torch.float64 else x


def loaded(module: torch.nn.Module) -> TorchModel:
    options = ConvertOptions(input_shapes={"x": ("batch", 8)}, adapter="pytorch")
    model = load_source(module.eval(), options)[2]
    assert isinstance(model, TorchModel)
    return model


def test_a_plain_module_moves_by_roundings_only() -> None:
    model = loaded(Plain())
    wider = model.rerounded()
    assert wider is not None
    found, plain = wider.run({"x": ROWS}), model.run({"x": ROWS})
    (name,) = plain
    assert found[name].dtype == np.float32
    assert 0 <= np.abs(found[name] - plain[name]).max() < 1e-6


@pytest.mark.parametrize("kind", [Dropping, Noisy])
def test_chance_is_no_rounding(kind: type[torch.nn.Module], tmp_path: Path) -> None:
    assert loaded(kind()).rerounded() is None
    report = onnxtool.convert(kind(), tmp_path / "out.onnx", input_shapes={"x": ("batch", 8)}, effort="quick")
    assert not report.ok
    assert not (tmp_path / "out.onnx").exists()


def test_a_module_that_asks_for_the_type_says_nothing_of_rounding() -> None:
    wider = loaded(Asking()).rerounded()
    assert wider is not None
    with pytest.raises(InputError, match="something else in float64"):
        wider.run({"x": ROWS})


def test_half_precision_and_released_models_have_none() -> None:
    assert loaded(Plain().half()).rerounded() is None
    model = loaded(Plain())
    model.release()
    assert model.rerounded() is None


class FarFromZero(torch.nn.Module):  # type: ignore[misc]
    """A normalization that loses digits of small numbers, as the runtime's does."""

    def __init__(self, offset: float = 1000.0) -> None:
        super().__init__()
        self.norm, self.offset = torch.nn.LayerNorm(8), offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.offset)


def test_digits_that_are_lost_are_rounding_where_the_sample_shows_one_module() -> None:
    wider = loaded(FarFromZero()).rerounded()
    assert wider is not None
    small = {"x": (0.001 * ROWS).astype(np.float32)}
    exact = wider.run(small)["output"]
    rows = small["x"].astype(np.float64) + 1000
    centered = rows - rows.mean(axis=1, keepdims=True)
    expected = centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(exact, expected, rtol=1e-5, atol=1e-6)


def test_what_a_module_casts_to_float32_is_float64() -> None:
    wider = loaded(Narrows()).rerounded()
    assert wider is not None
    rows = ROWS.astype(np.float64)
    exact = 2 * rows - 2 * rows.mean(1, keepdims=True) + rows[0] + 0.5
    np.testing.assert_allclose(wider.run({"x": ROWS})["output"], exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("offset", "converts"), [(100.0, True), (1000.0, False)])
def test_what_rounding_explains_has_an_end(offset: float, converts: bool, tmp_path: Path) -> None:
    """Two correct kernels differ by digits that float32 does not hold; a hundredth of the scale is the most of that."""
    report = onnxtool.convert(FarFromZero(offset), tmp_path / "out.onnx", input_shapes={"x": ("batch", 8)})
    assert report.ok == converts


class OtherBeyond(torch.nn.Module):  # type: ignore[misc]
    """In float64 something else altogether, for small numbers only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.abs().max() < 0.01, -x, x) if x.dtype == torch.float64 else x


def test_more_than_digits_is_no_rounding() -> None:
    wider = loaded(OtherBeyond()).rerounded()
    assert wider is not None
    wider.run({"x": ROWS})
    with pytest.raises(InputError, match="something else in float64"):
        wider.run({"x": (0.001 * ROWS).astype(np.float32)})
