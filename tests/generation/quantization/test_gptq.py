"""GPTQ: the product with typical inputs changes less than by rounding to the nearest."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.generation.quantization.block_weights import gptq_blocks
from onnxtool.quantization.algorithms.weight_only import Blocks, quantize_blocks


def restored(blocks: Blocks, rows: int, bits: int) -> np.ndarray:
    """float [rows, columns]."""
    packed = blocks.packed
    columns, count = packed.shape[:2]
    if bits == 4:
        packed = np.stack([packed & 15, packed >> 4], axis=-1).reshape(columns, count, -1)
    middle = 2 ** (bits - 1)
    zeros = np.full((columns, count), middle, np.float32)
    if blocks.zero_points is not None:
        points = blocks.zero_points.reshape(columns, -1)
        if bits == 4:
            points = np.stack([points & 15, points >> 4], axis=-1).reshape(columns, -1)[:, :count]
        zeros = points.astype(np.float32)
    weights = (packed.astype(np.float32) - zeros[..., None]) * blocks.scales.reshape(columns, count, 1)
    return np.asarray(weights.reshape(columns, -1)[:, :rows].T)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(96, 40), (72, 17)])
def test_errors_that_inputs_share_cancel(rows: int, columns: int, symmetric: bool) -> None:
    random = np.random.default_rng(0)
    inputs = random.standard_normal((400, 12)) @ random.standard_normal((12, rows))
    inputs = (inputs + 0.1 * random.standard_normal((400, rows))).astype(np.float32)
    weight = random.standard_normal((rows, columns)).astype(np.float32)
    errors = []
    for found in (
        gptq_blocks(weight, inputs.T @ inputs, 4, 32, symmetric=symmetric),
        quantize_blocks(weight, 4, 32, symmetric=symmetric, search=True),
    ):
        errors.append(np.square(inputs @ (restored(found, rows, 4) - weight)).mean())
    assert errors[0] < 0.4 * errors[1]


def test_without_anything_shared_it_rounds_to_the_nearest() -> None:
    weight = np.random.default_rng(1).standard_normal((64, 8)).astype(np.float32)
    found = restored(gptq_blocks(weight, np.eye(64, dtype=np.float32), 8, 32, symmetric=False), 64, 8)
    assert np.abs(found - weight).max() <= 0.51 * (weight.max() - weight.min()) / 255


def test_inputs_that_are_always_zero_do_no_harm() -> None:
    moments = np.eye(32, dtype=np.float32)
    moments[3, 3] = 0
    weight = np.random.default_rng(2).standard_normal((32, 8)).astype(np.float32)
    found = restored(gptq_blocks(weight, moments, 4, 32, symmetric=False), 32, 4)
    assert np.isfinite(found).all() and np.abs(found - weight)[4:].max() < 0.5
