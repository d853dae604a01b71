"""Numbers that a model makes of its sizes by `int`, `float`, `round`, `math.sqrt` and `min` follow the size."""

from __future__ import annotations

import math
from math import sqrt
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import onnxtool

torch = pytest.importorskip("torch")

from onnxtool.conversion.pytorch.patches.size_fractions import stand_ins  # noqa: E402  (imports torch)


def stepped(length: int) -> int:
    return int((int((length - 3) / 2 + 1) - 3) / 2 + 1)


class Fractions(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, height, width = x.shape
        scale = min(24 / height, 24 / width)
        lengths = [int(height * 2.3), stepped(height), round(height / 3), int(sqrt(height)), int(width * scale)]
        counted = torch.stack([x.new_ones(rows, length + 3).sum(1) for length in lengths], 1)
        whole = 2 if isinstance(rows, int) and issubclass(bool, int) else 1
        fitted = x.new_ones(rows, int(height * scale), int(width * scale))
        return (
            counted * whole,
            fitted,
            x / math.sqrt(width),
            x * float(height) * max(0.5, height / width) * height**-0.5,
            x + torch.linspace(-1, 2, width),
        )


def test_follows_numbers_that_a_model_makes_of_its_sizes(tmp_path: Path) -> None:
    module = Fractions().eval()

    report = onnxtool.convert(module, tmp_path / "out.onnx", input_shapes={"x": ("batch", "height", "width")})

    assert report.ok and not report.notes
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    assert not {24, None} & {*session.get_outputs()[1].shape}  # of pictures that are wider than high, 24 wide
    for height, width in ((50, 7), (9, 16), (16, 90), (5, 1)):  # 50 * 2.3 is 114.99 in float64 and 115 in float32
        x = np.random.default_rng(0).standard_normal((2, height, width)).astype(np.float32)
        for found, expected in zip(session.run(None, {"x": x}), module(torch.from_numpy(x)), strict=True):
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("code", "followed"),
    [
        ("torch.zeros(int(3.5), dtype=int)", {"float"}),
        ("numpy.zeros(3).astype(float)", {"int"}),
        ("type(int(x)) == int", {"float"}),
        ("torch.zeros(int(3.5), dtype=torch.int64)", {"int", "float"}),
        ("sum(map(int, x)) if isinstance(x, (int, str)) else float(x)", {"int", "float"}),
    ],
)
def test_leaves_names_alone_that_a_file_takes_for_types(tmp_path: Path, code: str, followed: set[str]) -> None:
    (tmp_path / "net.py").write_text(f"def f(x: int) -> float:\n    return {code}")

    assert stand_ins({"__file__": str(tmp_path / "net.py")}).keys() == followed
