"""The guard behind the softmax of attention: IsNaN and Where over all weights, or one test for each row."""

from __future__ import annotations

import numpy as np
import pytest

F = np.float32
WEIGHTS = {
    "zero": np.array(0.0, F),
    "one": np.array(1.0, F),
    "scale": np.array(0.5, F),
    "lowest": np.array(np.finfo(F).min, F),
    "none": np.array(-np.inf, F),
    "half": np.where(np.arange(16).reshape(4, 4) < 8, 0, -np.inf).astype(F),
    "causal": np.where(np.tril(np.ones((4, 4))) > 0, 0, -np.inf).astype(F),
}
TEXT = """g (float[b, 2, s, 4] q, float[b, 2, 4, s] k, float[b, 2, s, 4] v{inputs}) => (float[b, 2, s, 4] y) {{
    m = MatMul (q, k) a = Mul (m, scale) {scores}
    p = Softmax <axis = -1> (w) n = IsNaN (p) g = Where (n, zero, p) y = MatMul (g, v)
}}"""
MASKED = "w = Add (a, mask)"


def text(scores: str, inputs: str = "") -> str:
    return TEXT.format(scores=scores, inputs=inputs)


def feeds(mask: np.ndarray, batch: int = 2, length: int = 4) -> list[dict[str, np.ndarray]]:
    generator = np.random.default_rng(0)
    shapes = {"q": (batch, 2, length, 4), "k": (batch, 2, 4, length), "v": (batch, 2, length, 4)}
    return [{"mask": mask} | {name: generator.normal(size=shape).astype(F) for name, shape in shapes.items()}]


@pytest.mark.parametrize(
    ("scores", "inputs"),
    [
        ("w = Identity (a)", ""),
        ("c = Where (mask, zero, lowest) w = Add (a, c)", ", bool[b, 1, s, s] mask"),
    ],
)
def test_gone_where_no_row_is_masked_as_a_whole(optimized, scores: str, inputs: str) -> None:
    result = optimized(text(scores, inputs), weights=WEIGHTS, exact=False)
    assert "IsNaN" not in result.after
    assert result.after.get("Where", 0) == ("Where" in scores)


def test_gone_behind_a_causal_constant(optimized) -> None:
    source = text("w = Add (a, causal)").replace("s]", "4]").replace("s, 4]", "4, 4]")
    assert "IsNaN" not in optimized(source, weights=WEIGHTS, exact=False).after


def test_a_constant_with_an_empty_row_is_no_reason(optimized) -> None:
    source = text("w = Add (a, half)").replace("s]", "4]").replace("s, 4]", "4, 4]")
    assert "Where" in optimized(source, weights=WEIGHTS, exact=False).after


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("shape", [(2, 1, 4, 4), (1, 2, 4, 4), (4, 4), (2, 1, 1, 4), (4,)])
def test_empty_rows_stay_zero(optimized, shape: tuple[int, ...], opset: int) -> None:
    mask = np.where(np.random.default_rng(1).random(shape) < 0.5, 0, -np.inf).astype(F)
    np.atleast_2d(mask)[..., -1, :] = -np.inf
    dims = ", ".join(str(s) for s in shape)
    result = optimized(
        text(MASKED, f", float[{dims}] mask"), weights=WEIGHTS, exact=False, feeds=feeds(mask), opset=opset
    )
    assert result.after == {"MatMul": 2, "Mul": 1, "Add": 1, "Softmax": 1, "ReduceMax": 1, "IsInf": 1, "Where": 1}


def test_two_heads_of_one_mask_share_the_test(optimized) -> None:
    source = """g (float[b, s, 4] q, float[b, 4, s] k, float[b, s, s] v, float[s, s] mask) => (float[b, s, s] y) {
        m = MatMul (q, k) w = Add (m, mask) p = Softmax <axis = -1> (w)
        n = IsNaN (p) g = Where (n, zero, p) c = MatMul (g, v)
        m2 = Mul (m, scale) w2 = Add (mask, m2) p2 = Softmax <axis = -1> (w2) u = Neg (v)
        n2 = IsNaN (p2) g2 = Where (n2, zero, p2) c2 = MatMul (g2, u) y = Sub (c, c2)
    }"""
    result = optimized(source, weights=WEIGHTS, exact=False)
    assert (result.after["ReduceMax"], result.after["Where"]) == (1, 2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Where (n, zero, p)", "Where (n, one, p)"),
        ("Where (n, zero, p)", "Where (n, p, zero)"),
        ("y = MatMul (g, v)", "r = ReduceMax <keepdims = 0> (p) z = MatMul (g, v) y = Mul (z, r)"),
        ("y = MatMul (g, v)", "t = MatMul (g, v) r = ReduceSum <keepdims = 0> (g) y = Mul (t, r)"),
        ("a = Mul (m, scale)", "e = Mul (m, scale) a = Tanh (e)"),
        ("a = Mul (m, scale)", "e = Mul (m, scale) o = Less (e, zero) a = Where (o, e, none)"),
        ("Softmax <axis = -1>", "Softmax <axis = 2>"),
    ],
)
def test_other_guards_stay(optimized, old: str, new: str) -> None:
    source = text("w = Identity (a)").replace(old, new)
    result = optimized(source, weights=WEIGHTS, exact=False, compare="p, zero" not in new)
    assert "IsNaN" in result.after
