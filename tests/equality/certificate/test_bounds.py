"""A guard against NaN is nothing where the numbers before it have a bound, and something everywhere else."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxtool.equality.certificate.certify import certify

LOWEST = np.finfo(np.float32).min
TABLE = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
GUARD = "none = IsNaN(p) y = Where(none, zero, p)"
PLAIN = "y = Identity(p)"


def attention(end: str, *, table: np.ndarray = TABLE, masked: float = LOWEST, x: str = "ids") -> onnx.ModelProto:
    """Shares of each position of the others, by embeddings of ids or of numbers, with a mask."""
    start = "e = Gather(table, x) " if x == "ids" else "e = MatMul(x, table) "
    nodes = start + (
        "t = Transpose<perm = [0, 2, 1]>(e) s = MatMul(e, t) low = Where(mask, zero, masked) u = Add(s, low) "
        "p = Softmax(u) " + end
    )
    given = "int64[n, l] x" if x == "ids" else "float[n, l, 9] x"
    text = (
        f'<ir_version: 9, opset_import: ["" : 20]> g ({given}, bool[n, l, l] mask) => (float[n, l, l] y) {{ {nodes} }}'
    )
    made = onnx.parser.parse_model(text)
    held = {"table": table, "zero": np.float32(0).reshape(()), "masked": np.float32(masked).reshape(())}
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in held.items())
    return made


def test_a_guard_that_never_acts() -> None:
    assert certify(attention(GUARD), attention(PLAIN), seconds=5).verdict == "certified"
    assert certify(attention(PLAIN), attention(GUARD), seconds=5).verdict == "certified"


@pytest.mark.parametrize(
    "change",
    [
        {"x": "numbers"},  # of which one may be NaN
        {"masked": -np.inf},  # a row without anything left
        {"table": TABLE * np.float32(1e25)},  # products beyond the largest float
        {"table": np.where(TABLE[0, 0] == TABLE, np.float32("nan"), TABLE)},
    ],
)
def test_a_guard_that_may_act(change: dict[str, object]) -> None:
    assert certify(attention(GUARD, **change), attention(PLAIN, **change)).verdict == "not tested"  # type: ignore[arg-type]


def test_another_number_in_place_of_nan() -> None:
    """What the guard puts in is nothing either."""
    other = attention("none = IsNaN(p) y = Where(none, masked, p)")
    assert certify(attention(GUARD), other, seconds=5).verdict == "certified"
    assert (
        certify(
            attention(GUARD, x="numbers"), attention("none = IsNaN(p) y = Where(none, masked, p)", x="numbers")
        ).verdict
        == "not tested"
    )


def test_the_reason_names_what_is_never_shared_again() -> None:
    """Scores of the same values in another order are the same again; the guard is what differs."""
    report = certify(attention(GUARD, x="numbers"), attention(PLAIN, x="numbers"))
    assert report.reason.startswith("not shown to be the same real function: ")
    assert "Softmax" not in report.reason or "Identity" in report.reason
