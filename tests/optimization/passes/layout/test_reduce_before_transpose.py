"""Transposes in front of reductions."""

from __future__ import annotations

import numpy as np
import pytest

POOL = "g (float[b, 3, h, 5] x) => (float[b, 3] y) {{ t = Transpose <perm = [0, 2, 3, 1]> (x) y = {reduce} }}"
WEIGHTS = {"a": np.array([-2, 1], np.int64)}


@pytest.mark.parametrize("kind", ["Mean", "Max", "Sum", "L2", "LogSumExp"])
def test_a_global_pooling_needs_no_transpose(optimized, kind: str) -> None:
    text = POOL.format(reduce=f"Reduce{kind} <keepdims = 0> (t, a)")
    result = optimized(text, weights=WEIGHTS, exact=False)
    assert result.after == {f"Reduce{kind}": 1}


def test_axes_as_an_attribute(optimized) -> None:
    text = POOL.format(reduce="ReduceMean <keepdims = 0, axes = [1, -2]> (t)")
    assert optimized(text, exact=False, opset=13).after == {"ReduceMean": 1}


@pytest.mark.parametrize(
    "text",
    [
        POOL.format(reduce="ReduceMean <keepdims = 1> (t, a)").replace("[b, 3] y", "[b, p, q, 3] y"),
        "g (float[b, 3, h, 5] x) => (float[h, b] y) { t = Transpose <perm = [0, 2, 3, 1]> (x) "
        "u = Transpose <perm = [1, 0, 2, 3]> (t) y = ReduceMean <keepdims = 0> (u, last) }",
        POOL.format(reduce="ReduceMean <keepdims = 0, noop_with_empty_axes = 1> (t)").replace(
            "[b, 3] y", "[b, h, 5, 3] y"
        ),
    ],
)
def test_a_transpose_that_shows_in_the_result_stays(optimized, text: str) -> None:
    result = optimized(text, "reduce-before-transpose", weights={**WEIGHTS, "last": np.array([2, 3], np.int64)})
    assert result.rewrites == 0
