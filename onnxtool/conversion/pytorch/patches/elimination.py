"""Inverses, solutions and Cholesky factors of small matrices, by elimination written out row by row in float64.

ONNX has no operators for them. Singular matrices, which torch refuses, give inf or NaN.

Source: Golub and Van Loan, "Matrix Computations", 4th edition, sections 3.4.1 (pivots) and 4.2.5 (Cholesky).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxscript

op = onnxscript.opset18
_LARGEST = 16  # rows, with some ten nodes for each


def inverse(a: Any) -> Any:
    """[..., n, n]."""
    size = _size_of(a)
    return op.CastLike(_solved(_double(a), _constant(np.eye(size)), size), a)


def solution(a: Any, b: Any, *, left: bool = True) -> Any:
    """Of a x = b: [..., n, m], or [..., n] of vectors."""
    size = _size_of(a)
    vector = len(b.shape) == 1 or (len(b.shape) == len(a.shape) - 1 and list(b.shape) == list(a.shape)[:-1])
    if not left:
        raise NotImplementedError("solutions of x a = b")
    right = op.Unsqueeze(_double(b), _constant([-1])) if vector else _double(b)
    x = _solved(_double(a), right, size)
    return op.CastLike(op.Squeeze(x, _constant([-1])) if vector else x, a)


def triangular_solution(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """Of a x = b: [..., n, m], where one triangle of a [..., n, n] counts."""
    if not left or unitriangular:
        raise NotImplementedError("solutions of x a = b, or with ones on the diagonal")
    return op.CastLike(_solved(op.Trilu(_double(a), upper=int(upper)), _double(b), _size_of(a), pivots=False), a)


def cholesky(a: Any, *, upper: bool = False) -> Any:
    """The factor [..., n, n]: the lower triangle of a symmetric a counts."""
    size = _size_of(a)
    if upper:
        raise NotImplementedError("the upper factor")
    rest, columns = _double(a), []
    for place in range(size):
        column = _part(rest, -1, place)
        below = op.Div(column, op.Sqrt(_part(column, -2, place)))
        columns.append(op.Where(_constant(np.arange(size)[:, None] >= place), below, _constant(0.0)))
        row = op.Unsqueeze(op.Squeeze(columns[-1], _constant([-1])), _constant([-2]))
        rest = op.Sub(rest, op.Mul(columns[-1], row))
    return op.CastLike(op.Concat(*columns, axis=-1), a)


def _solved(a: Any, b: Any, size: int, *, pivots: bool = True) -> Any:
    """[..., n, m], by Gauss-Jordan elimination; the largest of a column leads, the first of equal ones."""
    nothing = _constant(0.0)
    b = op.Add(b, op.Mul(_part(a, -1, 0), nothing))  # as many matrices as the other has
    a = op.Add(a, op.Mul(_part(b, -1, 0), nothing))
    both, rows = op.Concat(a, b, axis=-1), np.arange(size)[:, None]
    for place in range(size):
        own = _constant(rows == place)
        lead = _part(both, -2, place)
        if pivots and place < size - 1:
            column = op.Where(_constant(rows >= place), op.Abs(_part(both, -1, place)), _constant(-1.0))
            chosen = op.Equal(_constant(rows), op.ArgMax(column, axis=-2, keepdims=1))
            best = op.ReduceSum(op.Where(chosen, both, nothing), _constant([-2]), keepdims=1)
            both, lead = op.Where(chosen, lead, both), best
        lead = op.Div(lead, _part(lead, -1, place))
        factor = op.Where(own, nothing, _part(both, -1, place))
        both = op.Where(own, lead, op.Sub(both, op.Mul(factor, lead)))
    return op.Slice(both, _constant([size]), _constant([2**31 - 1]), _constant([-1]))


def _size_of(a: Any) -> int:
    size = a.shape[-1]
    if not isinstance(size, int) or not 0 < size <= _LARGEST or not a.dtype.is_floating_point():
        raise NotImplementedError(
            f"elimination of matrices with complex numbers, of more than {_LARGEST} rows, or free"
        )
    return size


def _part(values: Any, axis: int, place: int) -> Any:
    """One row (axis -2) or column (-1), which stays a matrix."""
    return op.Slice(values, _constant([place]), _constant([place + 1]), _constant([axis]))


def _constant(values: Any) -> Any:
    return op.Constant(value=ir.tensor(np.asarray(values)))


def _double(values: Any) -> Any:
    return op.Cast(values, to=ir.DataType.DOUBLE)
