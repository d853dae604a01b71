"""GPTQ: round the rows of a weight one after the other, and let the rows that follow make up for the error."""

from __future__ import annotations

import numpy as np

from onnxtool.quantization.algorithms.weight_only import Blocks, best_scales, blocked, packed_blocks

_SHARES = np.linspace(1.0, 0.7, 10)  # of a block's range, from which the one of least error is taken
_DAMPING = 0.01  # of the mean of the diagonal, so that the matrix can be inverted
_AT_ONCE = 64  # rows whose error goes to the rest in one product
_COLUMNS = 4096  # columns in work at a time


def gptq_blocks(weight: np.ndarray, moments: np.ndarray, bits: int, block_size: int, *, symmetric: bool) -> Blocks:
    """Quantize a [K, N] weight in blocks of `block_size` rows, so that its product with typical inputs changes least.

    Scales are those of the original weight, so that the rows can be taken in the order of how much their inputs weigh.

    Args:
        weight: float32 [K, N].
        moments: float [K, K], the sum over calibration tokens of the product of each two inputs.
        bits: 4 or 8.
        block_size: rows that share a scale.
        symmetric: zero point at the middle.

    Returns:
        Blocks in MatMulNBits' layout.

    Source: Frantar et al. 2023, "GPTQ: accurate post-training quantization for generative pre-trained transformers",
    algorithm 1, with static groups and the rows in descending order of the moments' diagonal.
    """
    rows, columns = weight.shape
    count = -(-rows // block_size)
    order, feedback = _feedback(moments)
    importance = np.zeros((count, block_size), np.float32)  # an error is large where the inputs are
    importance.reshape(-1)[:rows] = np.diag(moments) / max(float(np.diag(moments).mean()), 1e-30)
    shares = _SHARES if bits < 8 else _SHARES[:1]
    integers = np.zeros((columns, count * block_size), np.uint8)
    scales = np.empty((columns, count), np.float32)
    zeros = np.empty((columns, count), np.float32)
    for start in range(0, columns, _COLUMNS):
        part = slice(start, min(start + _COLUMNS, columns))
        own = np.ascontiguousarray(weight[:, part], np.float32)
        scale, zero = best_scales(blocked(own, block_size), bits, symmetric, shares, importance)
        scales[part], zeros[part] = scale, zero
        integers[part, :rows] = _rounded(own, scale.T, zero.T, order, feedback, bits, block_size).T
    return packed_blocks(integers.reshape(columns, count, block_size), scales, None if symmetric else zeros, bits)


def _feedback(moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of the rows, and for each (in that order) how its error goes to the rows after it."""
    matrix = np.asarray(moments, np.float64)
    diagonal = np.diag(matrix)
    order = np.argsort(-diagonal, kind="stable")
    matrix = matrix[np.ix_(order, order)]
    unused = np.diag(matrix) <= 0
    matrix[unused, unused] = 1.0
    matrix[np.diag_indices(len(matrix))] += _DAMPING * max(float(diagonal.mean()), 1e-12)
    # With H = R Rᵀ, R upper triangular, the upper Cholesky factor of the inverse of H is the inverse of R.
    upper = np.linalg.inv(np.linalg.cholesky(matrix[::-1, ::-1])[::-1, ::-1])
    return order, np.asarray(upper / np.diag(upper)[:, None], np.float32)


def _rounded(
    weight: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray,
    order: np.ndarray,
    feedback: np.ndarray,
    bits: int,
    block_size: int,
) -> np.ndarray:
    """Integers, uint8 [K, columns]; `weight` is used up."""
    rows = len(order)
    rest = weight[order]
    found = np.empty(weight.shape, np.uint8)
    top = 2**bits - 1
    for start in range(0, rows, _AT_ONCE):
        end = min(start + _AT_ONCE, rows)
        errors = np.empty((end - start, weight.shape[1]), np.float32)
        for row in range(start, end):
            block = order[row] // block_size
            step, point = scale[block], zero[block]
            integer = np.clip(np.rint(rest[row] / step) + point, 0, top)
            found[order[row]] = integer
            errors[row - start] = rest[row] - (integer - point) * step
            rest[row + 1 : end] -= feedback[row, row + 1 : end, None] * errors[row - start]
        rest[end:] -= feedback[start:end, end:].T @ errors
    return found
