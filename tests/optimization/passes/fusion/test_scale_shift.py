"""A scale and a shift for each channel as one operator."""

from __future__ import annotations

import numpy as np
import pytest

NAME = "fuse-scale-shift"
GENERATOR = np.random.default_rng(0)
WEIGHTS = {
    "s": GENERATOR.normal(size=(1, 6, 1, 1)).astype(np.float32),
    "t": GENERATOR.normal(size=(6, 1, 1)).astype(np.float32),
    "two": np.array(2.0, np.float32),
    "last": GENERATOR.normal(size=6).astype(np.float32),
    "one": np.ones((6, 1, 1), np.float32),
}
IMAGE = "g (float[n, 6, h, 6] x) => (float[n, 6, h, 6] y) {{ {steps} }}"


@pytest.mark.parametrize(
    "steps",
    [
        "a = Mul (x, s) y = Add (t, a)",
        "a = Add (x, t) y = Mul (a, s)",
        "a = Sub (t, x) y = Div (a, s)",
        "a = Mul (x, two) y = Sub (a, t)",
    ],
)
def test_two_steps_are_one(optimized, steps: str) -> None:
    result = optimized(IMAGE.format(steps=steps), NAME, "eliminate-dead-code", weights=WEIGHTS, exact=False)
    assert result.after == {"BatchNormalization": 1}
    assert result.proto.graph.node[0].output[0] == "y"


def test_the_statistics_are_stored_once(optimized) -> None:
    steps = "a = Mul (x, s) b = Add (a, t) c = Relu (b) d = Mul (c, s) y = Add (d, t)"
    result = optimized(IMAGE.format(steps=steps), weights=WEIGHTS, exact=False)
    assert result.after == {"BatchNormalization": 2, "Relu": 1}
    assert len(result.proto.graph.initializer) == 4


@pytest.mark.parametrize(
    "steps",
    [
        "a = Mul (x, last) y = Add (a, last)",  # along the last dim
        "a = Mul (x, two) y = Add (a, two)",  # one number for all
        "a = Mul (x, s) b = Relu (a) c = Add (a, t) y = Add (b, c)",  # somebody reads what lies between
        "a = Mul (x, s) y = Mul (a, t)",  # no shift
        "a = Add (x, t) y = Mul (a, one)",  # no scale
        "a = Div (s, x) y = Add (a, t)",  # not linear
    ],
)
def test_what_is_no_scale_and_shift_stays(optimized, steps: str) -> None:
    feeds = [{"x": GENERATOR.uniform(1, 2, (2, 6, 3, 6)).astype(np.float32)}]
    assert optimized(IMAGE.format(steps=steps), NAME, weights=WEIGHTS, feeds=feeds, exact=False).rewrites == 0


def test_only_images(optimized) -> None:
    text = "g (float[n, 6, h] x) => (float[n, 6, h] y) { a = Mul (x, p) y = Add (a, p) }"
    weights = {"p": GENERATOR.normal(size=(6, 1)).astype(np.float32)}
    assert optimized(text, NAME, weights=weights).rewrites == 0
