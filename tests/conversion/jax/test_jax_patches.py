"""Every correction of jax2onnx is needed by the version that is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxtool
from onnxtool.conversion.jax.patches import PATCHES
from onnxtool.conversion.patches import Patch
from onnxtool.runtime.runner import OnnxRunner
from tests.conversion.patched import hold_needed, patches_of

jax = pytest.importorskip("jax", reason="the extra jax is not installed")
pytest.importorskip("jax2onnx", reason="the extra jax is not installed")

ROWS = np.float32([[3e-7, -2e-6, 1e-5, 1e-30], [-0.9, 0.5, 20, 5e9], [0, np.inf, -1, np.nan]])


def halved(x: Any) -> Any:
    """SAME padding of five columns and a dynamic number of rows, by a stride of two."""
    return jax.lax.reduce_window(jax.numpy.nan_to_num(x), -np.inf, jax.lax.max, (3, 3), (2, 2), "SAME")


def in_halves(x: Any) -> Any:
    """What is chosen by a matrix, which rounds nothing."""
    return jax.numpy.clip(jax.numpy.nan_to_num(x), -3, 3).astype(np.float16) @ np.eye(4, 3, dtype=np.float16)


CASES = dict(
    zip(
        PATCHES,
        (
            halved,
            lambda x: jax.numpy.remainder(x, 3),
            lambda x: jax.numpy.sort(x, 0),
            in_halves,
            lambda x: x[1:-1],
            jax.numpy.expm1,
            jax.numpy.log1p,
        ),
        strict=True,
    )
)


def test_every_correction_has_a_case() -> None:
    assert set(CASES) == set(patches_of("onnxtool.conversion.jax"))


@pytest.mark.parametrize("patch", CASES, ids=lambda p: p.upstream)
def test_is_needed(patch: Patch[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function = CASES[patch]
    expected = function(ROWS)

    def is_right() -> bool:
        output = tmp_path / "out.onnx"
        onnxtool.convert(function, output, input_shapes={"x": ("batch", 4)}, verify_result=False, effort="quick")
        (found,) = OnnxRunner.open(output).run({"x": ROWS}).values()
        same = found.shape == expected.shape
        return same and bool(np.allclose(found, expected, rtol=1e-6, atol=0, equal_nan=True))

    hold_needed(patch, is_right, monkeypatch)
