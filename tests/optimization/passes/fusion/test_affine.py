"""Affine maps folded into weights: which broadcast fits, which only looks like it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

GENERATOR = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return GENERATOR.normal(size=shape).astype(np.float32)


BATCHNORM = {
    "scale": normal(6),
    "shift": normal(6),
    "mean": normal(6),
    "var": np.abs(normal(6)) + 0.5,
}
CONV = {"w": normal(6, 4, 3, 3), "b": normal(6), **BATCHNORM}


@pytest.mark.parametrize("bias", ["", ", b"])
def test_conv_and_batchnorm(optimized, bias: str) -> None:
    result = optimized(
        f"""g (float[n, 4, 8, 8] x) => (float[n, 6, 8, 8] y) {{
            c = Conv <pads = [1, 1, 1, 1]> (x, w{bias}) d = BatchNormalization (c, scale, shift, mean, var) y = Relu (d)
        }}""",
        weights=CONV,
        exact=False,
    )
    assert result.after == {"Conv": 1, "Relu": 1}
    assert len(result.proto.graph.initializer) == 2


@pytest.mark.parametrize("group", [1, 2])
def test_transposed_conv_and_batchnorm(optimized, group: int) -> None:
    result = optimized(
        f"""g (float[n, 4, 5, 5] x) => (float[n, 6, p, q] y) {{
            c = ConvTranspose <group = {group}, strides = [2, 2]> (x, w)
            y = BatchNormalization (c, scale, shift, mean, var)
        }}""",
        weights={**BATCHNORM, "w": normal(4, 6 // group, 3, 3)},
        exact=False,
    )
    assert result.after == {"ConvTranspose": 1}


@pytest.mark.parametrize("flags", ["", "<transB = 1>", "<alpha = 0.5>"])
def test_gemm_and_batchnorm(optimized, flags: str) -> None:
    weight = normal(6, 4) if "transB" in flags else normal(4, 6)
    result = optimized(
        f"""g (float[n, 4] x) => (float[n, 6] y) {{
            c = Gemm {flags} (x, w, b) y = BatchNormalization (c, scale, shift, mean, var)
        }}""",
        weights={**BATCHNORM, "w": weight, "b": normal(6)},
        exact=False,
    )
    assert result.after == {"Gemm": 1}


def test_a_training_batchnorm_stays(optimized) -> None:
    result = optimized(
        """g (float[n, 4, 8, 8] x) => (float[n, 6, 6, 6] y) {
            c = Conv (x, w) y, m, v = BatchNormalization <training_mode = 1> (c, scale, shift, mean, var)
        }""",
        "fuse-conv-batchnorm",
        weights=CONV,
        compare=False,
    )
    assert result.rewrites == 0


def test_a_conv_that_others_read_keeps_its_weights(optimized) -> None:
    result = optimized(
        """g (float[n, 4, 8, 8] x) => (float[n, 6, 6, 6] y) {
            c = Conv (x, w) d = BatchNormalization (c, scale, shift, mean, var) y = Add (c, d)
        }""",
        weights=CONV,
        exact=False,
    )
    assert result.after == {"Conv": 1, "BatchNormalization": 1, "Add": 1}


def test_weights_that_two_convs_share_are_not_changed_for_both(optimized) -> None:
    result = optimized(
        """g (float[n, 4, 8, 8] x) => (float[n, 6, 6, 6] y) {
            c = Conv (x, w) d = BatchNormalization (c, scale, shift, mean, var) r = Relu (x) e = Conv (r, w)
            y = Add (d, e)
        }""",
        weights=CONV,
        exact=False,
    )
    assert result.after["Conv"] == 2


@pytest.mark.parametrize(
    ("step", "constant", "fuses"),
    [
        ("Mul (c, k)", normal(1, 6, 1, 1), True),
        ("Mul (k, c)", normal(6, 1, 1), True),
        ("Mul (c, k)", normal(1), True),
        ("Add (c, k)", normal(6, 1, 1), True),
        ("Sub (c, k)", normal(6, 1, 1), True),
        ("Sub (k, c)", normal(6, 1, 1), True),
        ("Div (c, k)", np.abs(normal(6, 1, 1)) + 1, True),
        ("Div (k, c)", normal(6, 1, 1), False),
        ("Div (c, k)", np.zeros((6, 1, 1), np.float32), False),
        # Defect elsewhere: six numbers, but along the last axis.
        ("Mul (c, k)", normal(6), False),
        ("Add (c, k)", normal(1, 1, 1, 6), False),
        ("Mul (c, k)", normal(6, 1), False),
        ("Add (c, k)", normal(1, 6, 1, 6), False),
        ("Mul (c, c)", normal(1), False),
    ],
)
def test_conv_and_arithmetic(optimized, step: str, constant: np.ndarray, fuses: bool) -> None:
    result = optimized(
        f"g (float[n, 4, 8, 8] x) => (float[n, 6, 6, 6] y) {{ c = Conv (x, w, b) y = {step} }}",
        weights={"w": CONV["w"], "b": CONV["b"], "k": constant},
        exact=False,
    )
    assert (result.after == {"Conv": 1}) is fuses


@pytest.mark.parametrize("before", ["Conv (x, w, b)", "BatchNormalization (x, k, b, zero, one)"])
def test_a_bias_of_several_maps_is_rounded_once(optimized, before: str) -> None:
    """Rounded after each, the sum of two large numbers would have lost what is left of them."""
    numbers = {"b": 1000.1, "k": 1.1, "t": -1100.11, "zero": 0.0, "one": 1.0}
    weights = {name: np.array([number], np.float32) for name, number in numbers.items()}
    weights["w"] = np.ones((1, 1, 1, 1), np.float32)
    result = optimized(
        f"g (float[n, 1, 4, 4] x) => (float[n, 1, 4, 4] y) {{ c = {before} d = Mul (c, k) y = Add (d, t) }}",
        weights=weights,
        exact=False,
        compare=False,
    )
    (node,) = result.proto.graph.node
    held = {t.name: onnx.numpy_helper.to_array(t) for t in result.proto.graph.initializer}
    b, k, t = (weights[name].astype(np.float64) for name in "bkt")
    assert held[node.input[2]] == (b * k + t).astype(np.float32) != weights["b"] * weights["k"] + weights["t"]


def test_a_constant_with_more_dims_would_change_the_shape(optimized) -> None:
    result = optimized(
        "g (float[n, 4, 8, 8] x) => (float[1, n, 6, 6, 6] y) { c = Conv (x, w, b) y = Mul (c, k) }",
        weights={"w": CONV["w"], "b": CONV["b"], "k": normal(1, 1, 6, 1, 1)},
    )
    assert result.after == {"Conv": 1, "Mul": 1}


def test_a_constant_that_widens_one_channel_to_many_stays(optimized) -> None:
    result = optimized(
        "g (float[n, 4, 8, 8] x) => (float[n, 6, 6, 6] y) { c = Conv (x, w) y = Mul (c, k) }",
        weights={"w": normal(1, 4, 3, 3), "k": normal(6, 1, 1)},
    )
    assert result.after == {"Conv": 1, "Mul": 1}


def test_batchnorm_and_scale_layers(optimized) -> None:
    result = optimized(
        """g (float[n, 6, 4, 4] x) => (float[n, 6, 4, 4] y) {
            c = BatchNormalization (x, scale, shift, mean, var) d = Mul (c, k) e = Add (d, k) y = Relu (e)
        }""",
        weights={**BATCHNORM, "k": normal(6, 1, 1)},
        exact=False,
    )
    assert result.after == {"BatchNormalization": 1, "Relu": 1}


def test_scales_around_a_matmul(optimized) -> None:
    result = optimized(
        """g (float[n, s, 4] x) => (float[n, s, 6] y) {
            a = Mul (x, k) c = MatMul (a, w) d = Add (c, b) y = Div (d, h)
        }""",
        weights={"w": normal(4, 6), "b": normal(6), "k": normal(4), "h": np.array(2.0, np.float32)},
        exact=False,
    )
    assert result.after == {"MatMul": 1, "Add": 1}


def test_a_row_scale_is_not_a_column_scale(optimized) -> None:
    result = optimized(
        "g (float[n, 6, 4] x) => (float[n, 6, 6] y) { c = MatMul (x, w) y = Mul (c, k) }",
        weights={"w": normal(4, 6), "k": normal(6, 1)},
        exact=False,
    )
    assert result.after == {"MatMul": 1, "Mul": 1}


def test_matmul_and_bias_become_gemm_for_matrices_only(optimized) -> None:
    weights = {"w": normal(4, 6), "b": normal(6)}
    flat = optimized(
        "g (float[n, 4] x) => (float[n, 6] y) { c = MatMul (x, w) y = Add (b, c) }", weights=weights, exact=False
    )
    deep = optimized(
        "g (float[n, s, 4] x) => (float[n, s, 6] y) { c = MatMul (x, w) y = Add (b, c) }", weights=weights, exact=False
    )
    assert flat.after == {"Gemm": 1}
    assert deep.after == {"MatMul": 1, "Add": 1}


@pytest.mark.parametrize(("constant", "fuses"), [(normal(5, 6), False), (normal(1, 6), True), (normal(1, 1, 6), False)])
def test_gemm_takes_only_a_row(optimized, constant: np.ndarray, fuses: bool) -> None:
    shape = "[1, 5, 6]" if constant.ndim == 3 else "[5, 6]"
    rows = 5 if constant.ndim == 3 else 1 if constant.shape[0] == 5 else 5
    result = optimized(
        f"g (float[{rows}, 4] x) => (float{shape} y) {{ c = MatMul (x, w) y = Add (c, b) }}",
        weights={"w": normal(4, 6), "b": constant},
        exact=False,
    )
    assert (result.after == {"Gemm": 1}) is fuses


def test_a_pad_of_zeros_becomes_the_convs_own(optimized) -> None:
    result = optimized(
        """g (float[n, 4, 8, 8] x) => (float[n, 6, 9, 11] y) {
            a = Pad (x, p) y = Conv <pads = [1, 0, 0, 1]> (a, w)
        }""",
        weights={"w": CONV["w"], "p": np.array([0, 0, 1, 2, 0, 0, 1, 2])},
        exact=False,
    )
    assert result.after == {"Conv": 1}


@pytest.mark.parametrize(
    "pad",
    [
        'Pad <mode = "reflect"> (x, p)',
        "Pad (x, p, one)",
        "Pad (x, channels)",
        "Pad (x, crop)",
    ],
)
def test_other_pads_stay(optimized, pad: str) -> None:
    weights = {
        "w": normal(6, 5 if "channels" in pad else 4, 3, 3),
        "p": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "one": np.array(1, np.float32),
        "channels": np.array([0, 1, 0, 0, 0, 0, 0, 0]),
        "crop": np.array([0, 0, -1, 0, 0, 0, 0, 0]),
    }
    result = optimized(
        f"g (float[n, 4, 8, 8] x) => (float[n, 6, p1, q1] y) {{ a = {pad} y = Conv (a, w) }}", weights=weights
    )
    assert result.after == {"Pad": 1, "Conv": 1}


@pytest.mark.parametrize(("rows", "stays"), [(15, False), (16, True)])
def test_a_pad_before_a_long_kernel_stays(optimized, rows: int, stays: bool) -> None:
    # The runtime takes up to twice as long over the padded edges of such a kernel.
    weights = {"w": normal(6, 4, rows, 1), "p": np.array([0, 0, 1, 0, 0, 0, 2, 0], np.int64)}
    text = "g (float[n, 4, 32, 8] x) => (float[n, 6, p1, q1] y) { a = Pad (x, p) y = Conv (a, w) }"
    result = optimized(text, weights=weights, exact=False)
    assert result.after == ({"Pad": 1, "Conv": 1} if stays else {"Conv": 1})


def test_a_pad_before_maxpool_stays(optimized) -> None:
    # The runtime's own optimizer fuses this and gives wrong values: MaxPool pads with minus infinity, not zero.
    result = optimized(
        """g (float[n, 2, 6, 6] x) => (float[n, 2, 4, 4] y) {
            m = Neg (x) e = Exp (x) s = Add (m, e) f = Neg (e) a = Pad (f, p)
            y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
        }""",
        weights={"p": np.array([0, 0, 1, 1, 0, 0, 1, 1])},
    )
    assert result.after == {"Exp": 1, "Neg": 1, "Pad": 1, "MaxPool": 1}


@pytest.mark.parametrize(("power", "kept"), [(2.0, True), (3.0, False)])
def test_the_scale_of_an_rms_norm_stays(optimized, power: float, kept: bool) -> None:
    """The runtime makes one operator of the norm's parts at load, the scale among them."""
    weights = {
        "p": np.array(power, np.float32),
        "e": np.array(1e-5, np.float32),
        "s": np.linspace(0.5, 2, 8, dtype=np.float32),
        "w": np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32),
        "axis": np.array([-1]),
    }
    result = optimized(
        """g (float[b, 8] x) => (float[b, 4] y) {
            q = Pow (x, p) m = ReduceMean (q, axis) a = Add (m, e) r = Sqrt (a) n = Div (x, r) h = Mul (n, s)
            y = MatMul (h, w)
        }""",
        "fuse-matmul-scale",
        "eliminate-dead-code",
        weights=weights,
        feeds=[{"x": np.random.default_rng(b).uniform(1, 2, size=(b, 8)).astype(np.float32)} for b in (1, 3)],
        exact=False,
    )
    assert ("Mul" in result.after) is kept


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_scale_that_weights_cannot_take_stays(optimized, side: str) -> None:
    product = {"before": "a = Mul (x, k) y = MatMul (a, w)", "after": "a = MatMul (x, w) y = Mul (a, k)"}[side]
    weights = {"w": np.full((4, 4), 1e20, np.float32), "k": np.array(1e30, np.float32)}
    result = optimized(f"g (float[n, 4] x) => (float[n, 4] y) {{ {product} }}", weights=weights, exact=False)
    assert result.after == {"MatMul": 1, "Mul": 1}
