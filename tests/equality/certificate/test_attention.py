"""Attention of the runtime is the formula that it stands for, and no other; the runtime agrees."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxtool.equality.certificate.certify import certify
from onnxtool.runtime.runner import OnnxRunner

_HEADS, _WIDTH = 2, 4
_NUMBERS = np.random.default_rng(3).standard_normal((8, 24)).astype(np.float32) / 3
_HEAD = (
    '<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]> g (float[n, l, 8] x, float[n, 1, l, l] mask) '
    "=> (float[n, l, 8] y) "
)


def model(nodes: str, **constants: object) -> onnx.ModelProto:
    """A graph with constants; `w` and `b` project to query, key and value."""
    made = onnx.parser.parse_model(f"{_HEAD} {{ {nodes} }}")
    held = {"w": _NUMBERS, "b": _NUMBERS[0], "heads": np.array([0, 0, _HEADS, _WIDTH]), "flat": np.array([0, 0, 8])}
    held |= {"s": np.float32(0.3), "parts": np.array([8, 8, 8]), **constants}  # type: ignore[dict-item]
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in held.items())
    return made


def apart(name: str, perm: str = "0, 2, 1, 3") -> str:
    return f"{name}r = Reshape({name}, heads) {name}h = Transpose<perm = [{perm}]>({name}r) "


PROJECTED = "u = MatMul(x, w) v = Add(u, b) q, k, c = Split<axis = 2>(v, parts) "
FORMULA = (
    PROJECTED + apart("q") + apart("k", "0, 2, 3, 1") + apart("c") + "m = MatMul(qh, kh) t = Mul(m, s) "
    "a = Add(t, mask) p = Softmax(a) o = MatMul(p, ch) z = Transpose<perm = [0, 2, 1, 3]>(o) y = Reshape(z, flat)"
)
MULTI = PROJECTED + "y = com.microsoft.MultiHeadAttention<num_heads = 2, scale = 0.3>(q, k, c, , , mask)"
PACKED = "y = com.microsoft.Attention<num_heads = 2, scale = 0.3>(x, w, b, , , mask)"
TURN = "y = com.microsoft.RotaryEmbedding(x, start, cos, sin)"
_ANGLES = np.random.default_rng(4).standard_normal((2, 20, 2)).astype(np.float32)
TABLES = {"start": np.array([3]), "cos": _ANGLES[0], "sin": _ANGLES[1]}
TURNED = (
    "h = Reshape(x, heads) first, second = Split<axis = 3>(h, halves) length = Shape<start = 1, end = 2>(x) "
    "end = Add(length, start) c = Slice(cos, start, end, zero) e = Slice(sin, start, end, zero) "
    "d = Unsqueeze(c, one) f = Unsqueeze(e, one) fc = Mul(first, d) sf = Mul(second, f) low = Sub(fc, sf) "
    "sc = Mul(second, d) fs = Mul(first, f) high = Add(sc, fs) j = Concat<axis = 3>(low, high) y = Reshape(j, flat)"
)
PLACES = {**TABLES, "halves": np.array([2, 2]), "zero": np.array([0]), "one": np.array([1])}


def fixed(nodes: str, **constants: object) -> onnx.ModelProto:
    """Of five positions: a position for all is taken only where the length is known."""
    found = model(nodes, **constants)
    for info in (*found.graph.input, *found.graph.output):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param == "l":
                dim.dim_value = 5
    return found


def alike(a: onnx.ModelProto, b: onnx.ModelProto) -> bool:
    rng = np.random.default_rng(5)
    feeds = {"x": rng.standard_normal((2, 5, 8)).astype("f"), "mask": rng.standard_normal((2, 1, 5, 5)).astype("f")}
    names = [i.name for i in a.graph.input]
    left, right = (OnnxRunner.open(m).run({n: feeds[n] for n in names})["y"] for m in (a, b))
    return bool(np.allclose(left, right, rtol=1e-4, atol=1e-5))


@pytest.mark.parametrize("nodes", [MULTI, PACKED])
def test_attention_is_its_formula(nodes: str) -> None:
    a, b = model(FORMULA), model(nodes)
    assert alike(a, b)
    assert certify(a, b, seconds=5).verdict == "certified"


def test_the_usual_scale_is_one_by_the_root_of_the_width() -> None:
    a, b = model(FORMULA, s=np.float32(0.5)), model(MULTI.replace(", scale = 0.3", ""))
    assert alike(a, b)
    assert certify(a, b, seconds=5).verdict == "certified"


def test_a_scale_may_be_a_product_that_is_rounded() -> None:
    a = model(FORMULA.replace("t = Mul(m, s)", "i = Mul(m, s) t = Mul(i, s)"))
    assert certify(a, model(MULTI.replace("0.3", repr(float(np.float32(0.3)) ** 2))), seconds=5).verdict == "certified"
    other = float(np.nextafter(np.float32(float(np.float32(0.3)) ** 2), np.float32(1)))
    assert certify(a, model(MULTI.replace("0.3", repr(other))), seconds=5).verdict == "not tested"


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.replace("0.3", "0.30000004"),
        lambda t: t.replace("num_heads = 2", "num_heads = 4"),
        lambda t: t.replace(", , , mask", ""),
        lambda t: t.replace("(q, k, c", "(k, q, c"),
        lambda t: t.replace("(q, k, c", "(q, c, k"),
        lambda t: t.replace("scale = 0.3", "scale = 0.3, unidirectional = 1"),
    ],
)
@pytest.mark.parametrize("nodes", [MULTI, PACKED])
def test_another_attention_is_not_certified(nodes: str, change: Callable[[str], str]) -> None:
    other = change(nodes)
    if other != nodes:
        assert certify(model(FORMULA), model(other), seconds=5).verdict == "not tested"


def test_a_rotation_is_its_formula() -> None:
    a, b = fixed(TURNED, **PLACES), fixed(TURN, **TABLES)
    assert alike(a, b)
    assert certify(a, b, seconds=5).verdict == "certified"


@pytest.mark.parametrize(
    "other",
    [
        fixed(TURN, **{**TABLES, "start": np.array([2])}),
        fixed(TURN, start=TABLES["start"], cos=TABLES["sin"], sin=TABLES["cos"]),
        fixed(TURN, **{**TABLES, "sin": -_ANGLES[1]}),
        fixed("y = com.microsoft.RotaryEmbedding<interleaved = 1>(x, start, cos, sin)", **TABLES),
        fixed("y = com.microsoft.RotaryEmbedding<scale = 2.0>(x, start, cos, sin)", **TABLES),
    ],
)
def test_another_rotation_is_not_certified(other: onnx.ModelProto) -> None:
    assert certify(fixed(TURNED, **PLACES), other, seconds=5).verdict == "not tested"
