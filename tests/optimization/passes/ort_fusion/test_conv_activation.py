"""The runtime's FusedConv, at level all only."""

from __future__ import annotations

import numpy as np
import pytest

GENERATOR = np.random.default_rng(0)
WEIGHTS = {
    "w": GENERATOR.normal(size=(6, 4, 3, 3)).astype(np.float32),
    "b": GENERATOR.normal(size=6).astype(np.float32),
    "low": np.array(-0.5, np.float32),
    "high": np.array(0.5, np.float32),
}
FUSED = {"com.microsoft.FusedConv": 1}


@pytest.mark.parametrize(
    "activation",
    [
        "Relu (c)",
        "Sigmoid (c)",
        "Tanh (c)",
        "LeakyRelu <alpha = 0.3> (c)",
        "HardSigmoid <alpha = 0.1, beta = 0.4> (c)",
        "Clip (c, low, high)",
    ],
)
def test_conv_and_activation(optimized, activation: str) -> None:
    text = f"""g (float[n, 4, 8, 8] x) => (float[n, 6, 8, 8] y) {{
        c = Conv <pads = [1, 1, 1, 1]> (x, w, b) y = {activation}
    }}"""
    assert optimized(text, weights=WEIGHTS, exact=False, level="all").after == FUSED


def test_never_below_level_all(optimized) -> None:
    text = "g (float[n, 4, 8, 8] x) => (float[n, 6, 6, 6] y) { c = Conv (x, w, b) y = Relu (c) }"
    result = optimized(text, weights=WEIGHTS)
    assert result.after == {"Conv": 1, "Relu": 1}
    assert [o.domain for o in result.proto.opset_import] == [""]


def test_a_shortcut_is_taken_along(optimized) -> None:
    text = """g (float[n, 4, 8, 8] x, float[n, 6, 6, 6] z) => (float[n, 6, 6, 6] y) {
        c = Conv (x, w) s = Add (z, c) y = Relu (s)
    }"""
    assert optimized(text, weights=WEIGHTS, exact=False, level="all").after == FUSED


def test_a_shortcut_that_broadcasts_is_not(optimized) -> None:
    text = """g (float[n, 4, 8, 8] x, float[n, 6, 1, 1] z) => (float[n, 6, 6, 6] y) {
        c = Conv (x, w) s = Add (z, c) y = Relu (s)
    }"""
    assert optimized(text, weights=WEIGHTS, exact=False, level="all").after == {"Conv": 1, "Add": 1, "Relu": 1}


def test_a_conv_that_others_read_is_not_fused(optimized) -> None:
    text = "g (float[n, 4, 8, 8] x) => (float[n, 6, 6, 6] y) { c = Conv (x, w) r = Relu (c) y = Add (c, r) }"
    assert "Conv" in optimized(text, weights=WEIGHTS, exact=False, level="all").after
