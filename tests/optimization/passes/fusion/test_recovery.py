"""Activations and normalizations that exporters take apart, recovered as the opset's own operators."""

from __future__ import annotations

import numpy as np
import pytest

F = np.float32
NUMBERS = {
    "half": np.array(0.5, F),
    "one": np.array(1.0, F),
    "two": np.array(2.0, F),
    "three": np.array(3.0, F),
    "six": np.array(6.0, F),
    "sixth": np.array(1 / 6, F),
    "zero": np.array(0.0, F),
    "root2": np.array(np.sqrt(2.0), F),
    "inv": np.array(np.sqrt(0.5), F),
    "small": np.array(0.044715, F),
    "k": np.array(np.sqrt(2 / np.pi), F),
    "eps": np.array(1e-5, F),
    "last": np.array([-1]),
    "gamma": np.linspace(0.5, 1.5, 8, dtype=F),
    "beta": np.linspace(-1, 1, 8, dtype=F),
}
GELUS = {
    "x * half * bracket": "d = Div (x, root2) e = Erf (d) a = Add (e, one) h = Mul (x, half) y = Mul (h, a)",
    "(x * bracket) * half": "d = Mul (x, inv) e = Erf (d) a = Add (one, e) h = Mul (x, a) y = Mul (half, h)",
    "x * (bracket * half)": "d = Div (x, root2) e = Erf (d) a = Add (e, one) h = Mul (a, half) y = Mul (h, x)",
    "half * x * erfc": "n = Neg (x) d = Mul (n, inv) e = Erf (d) a = Sub (one, e) h = Mul (half, x) y = Mul (h, a)",
    "x * erfc * half": "d = Mul (x, inv) n = Neg (d) e = Erf (n) a = Sub (one, e) h = Mul (x, a) y = Mul (h, half)",
}


@pytest.mark.parametrize("steps", GELUS.values(), ids=GELUS)
def test_gelu(optimized, steps: str) -> None:
    result = optimized(f"g (float[b, 8] x) => (float[b, 8] y) {{ {steps} }}", weights=NUMBERS, exact=False)
    assert result.after == {"Gelu": 1}


@pytest.mark.parametrize("steps", GELUS.values(), ids=GELUS)
def test_below_opset_20_the_half_comes_last_or_first(optimized, steps: str) -> None:
    text = f"g (float[b, 8] x) => (float[b, 8] y) {{ {steps} }}"
    nodes = optimized(text, weights=NUMBERS, opset=17, ir_version=8, exact=False).proto.graph.node
    last = next(n for n in nodes if n.output[0] == "y")
    inner = next(n for n in nodes if n.output[0] in last.input and n.op_type == "Mul")
    assert "Sub" not in {n.op_type for n in nodes}
    assert "x" in inner.input  # what the runtime takes for a Gelu: (x * bracket) * 0.5, or (x * 0.5) * bracket


def test_gelu_does_not_exist_below_opset_20(optimized) -> None:
    steps = GELUS["x * half * bracket"]
    result = optimized(f"g (float[b, 8] x) => (float[b, 8] y) {{ {steps} }}", weights=NUMBERS, opset=17, ir_version=8)
    assert "Erf" in result.after


def test_erfc_of_the_other_sign_stays(optimized) -> None:
    steps = "d = Mul (x, inv) e = Erf (d) a = Sub (one, e) h = Mul (half, x) y = Mul (h, a)"
    result = optimized(f"g (float[b, 8] x) => (float[b, 8] y) {{ {steps} }}", weights=NUMBERS, exact=False)
    assert "Gelu" not in result.after


@pytest.mark.parametrize("change", ["root2 -> two", "one -> two", "half -> two", "other"])
def test_almost_gelu_stays(optimized, change: str) -> None:
    steps = GELUS["x * half * bracket"]
    if change == "other":
        steps = steps.replace("h = Mul (x, half)", "z = Neg (x) h = Mul (z, half)")
    else:
        old, new = change.split(" -> ")
        steps = steps.replace(old, new)
    result = optimized(f"g (float[b, 8] x) => (float[b, 8] y) {{ {steps} }}", weights=NUMBERS, exact=False)
    assert "Gelu" not in result.after


def test_tanh_gelu(optimized) -> None:
    result = optimized(
        """g (float[b, 8] x) => (float[b, 8] y) {
            p = Pow (x, three) q = Mul (p, small) r = Add (x, q) s = Mul (r, k) t = Tanh (s) a = Add (t, one)
            h = Mul (x, half) y = Mul (h, a)
        }""",
        weights=NUMBERS,
        exact=False,
    )
    assert result.after == {"Gelu": 1}
    assert result.proto.graph.node[0].attribute[0].s == b"tanh"


SWISHES = {
    "x * (relu6 / 6)": "a = Add (x, three) c = Clip (a, zero, six) d = Div (c, six) y = Mul (x, d)",
    "(x * relu6) / 6": "a = Add (x, three) c = Clip (a, zero, six) d = Mul (x, c) y = Div (d, six)",
    "(relu6 * x) * sixth": "a = Add (three, x) c = Clip (a, zero, six) d = Mul (c, x) y = Mul (d, sixth)",
}


@pytest.mark.parametrize("steps", SWISHES.values(), ids=SWISHES)
@pytest.mark.parametrize(("opset", "wanted"), [(20, {"HardSwish": 1}), (13, {"HardSigmoid": 1, "Mul": 1})])
def test_hardswish(optimized, steps: str, opset: int, wanted: dict[str, int]) -> None:
    text = f"g (float[b, 8] x) => (float[b, 8] y) {{ {steps} }}"
    assert optimized(text, weights=NUMBERS, exact=False, opset=opset, ir_version=7).after == wanted


@pytest.mark.parametrize("old, new", [("six)", "three)"), ("three)", "two)")])
def test_almost_hardswish_stays(optimized, old: str, new: str) -> None:
    steps = SWISHES["x * (relu6 / 6)"].replace(old, new, 1)
    result = optimized(f"g (float[b, 8] x) => (float[b, 8] y) {{ {steps} }}", weights=NUMBERS, exact=False)
    assert "HardSwish" not in result.after
    assert "HardSigmoid" not in result.after


NORM = """m = ReduceMean (x, last) d = Sub (x, m) {square} v = ReduceMean (q, last) e = Add (v, eps) s = Sqrt (e)
    {quotient}"""
SQUARES = ["q = Pow (d, two)", "q = Mul (d, d)"]
QUOTIENTS = ["n = Div (d, s)", "r = Reciprocal (s) n = Mul (d, r)"]


@pytest.mark.parametrize("square", SQUARES)
@pytest.mark.parametrize("quotient", QUOTIENTS)
@pytest.mark.parametrize("rest", ["t = Mul (n, gamma) y = Add (t, beta)", "y = Mul (gamma, n)", "y = Identity (n)"])
def test_layernorm(optimized, square: str, quotient: str, rest: str) -> None:
    steps = NORM.format(square=square, quotient=quotient) + " " + rest
    result = optimized(f"g (float[b, s0, 8] x) => (float[b, s0, 8] y) {{ {steps} }}", weights=NUMBERS, exact=False)
    assert result.after == {"LayerNormalization": 1}


KERAS = """m = GlobalAveragePool (x) n = Neg (m) d = Sub (x, m) q = Mul (d, d) v = GlobalAveragePool (q)
    e = Add (v, eps) s = Sqrt (e) r = Reciprocal (s) {rest}"""


@pytest.mark.parametrize(
    "rest",
    [
        "f = Mul (r, wide) a = Mul (x, f) b = Mul (n, f) c = Add (b, shift) y = Add (a, c)",
        "f = Mul (wide, r) a = Mul (f, x) b = Mul (f, n) y = Add (b, a)",
        "a = Mul (x, r) b = Mul (n, r) c = Add (shift, b) y = Add (c, a)",
    ],
    ids=["scale and bias", "scale", "bias"],
)
def test_layernorm_of_keras_through_tf2onnx(optimized, rest: str) -> None:
    weights = {**NUMBERS, "wide": NUMBERS["gamma"].reshape(1, 1, 8), "shift": NUMBERS["beta"].reshape(1, 1, 8)}
    text = f"g (float[b, s0, 8] x) => (float[b, s0, 8] y) {{ {KERAS.format(rest=rest)} }}"
    assert optimized(text, weights=weights, exact=False).after == {"LayerNormalization": 1}


@pytest.mark.parametrize(
    "old, new", [("n = Neg (m)", "n = Abs (m)"), ("b = Mul (n, f)", "b = Mul (n, r)"), ("x, m)", "m, x)")]
)
def test_what_only_looks_like_keras_norm_stays(optimized, old: str, new: str) -> None:
    rest = "f = Mul (r, wide) a = Mul (x, f) b = Mul (n, f) y = Add (a, b)"
    text = f"g (float[b, s0, 8] x) => (float[b, s0, 8] y) {{ {KERAS.format(rest=rest).replace(old, new)} }}"
    weights = {**NUMBERS, "wide": NUMBERS["gamma"].reshape(1, 1, 8)}
    assert "LayerNormalization" not in optimized(text, weights=weights, exact=False).after


def test_a_norm_over_another_axis_stays(optimized) -> None:
    steps = NORM.format(square=SQUARES[0], quotient=QUOTIENTS[0]) + " y = Mul (n, gamma)"
    weights = {**NUMBERS, "last": np.array([1])}
    result = optimized(f"g (float[b, 4, 8] x) => (float[b, 4, 8] y) {{ {steps} }}", weights=weights, exact=False)
    assert "LayerNormalization" not in result.after


def test_layernorm_does_not_exist_below_opset_17(optimized) -> None:
    steps = NORM.format(square=SQUARES[0], quotient=QUOTIENTS[0]) + " y = Mul (n, gamma)"
    steps = steps.replace("(x, last)", "<axes = [-1]> (x)").replace("(q, last)", "<axes = [-1]> (q)")
    result = optimized(
        f"g (float[b, 4, 8] x) => (float[b, 4, 8] y) {{ {steps} }}", weights=NUMBERS, opset=15, ir_version=8
    )
    assert "LayerNormalization" not in result.after


def test_rmsnorm_from_opset_23(optimized) -> None:
    steps = "q = Mul (x, x) v = ReduceMean (q, last) e = Add (v, eps) s = Sqrt (e) n = Div (x, s) y = Mul (n, gamma)"
    text = f"g (float[b, s0, 8] x) => (float[b, s0, 8] y) {{ {steps} }}"
    assert optimized(text, weights=NUMBERS, exact=False, opset=23).after == {"RMSNormalization": 1}
    assert "RMSNormalization" not in optimized(text, weights=NUMBERS, exact=False, opset=22).after
