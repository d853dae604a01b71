"""Differences against numpy's own arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnxtool.report.compare import TensorDifference
from onnxtool.validation.equivalence import difference as equivalence_difference
from onnxtool.validation.equivalence.difference import Difference
from onnxtool.validation.equivalence.tolerance_policy import Tolerance


def difference(a: object, b: object, rtol: float = 1e-3, atol: float = 1e-5, **rest: bool) -> TensorDifference:
    entry = Difference("t", Tolerance(rtol, atol, **rest))
    entry.add(a, b)
    return entry.result()


floats = hnp.arrays(
    np.float32,
    st.integers(1, 20),
    elements=st.floats(-1e6, 1e6, width=32) | st.sampled_from([np.nan, np.inf, -np.inf]),
)


@settings(max_examples=200, deadline=None)
@given(floats, st.data())
def test_in_the_outputs_own_units_the_verdict_is_numpys(a: np.ndarray, data: st.DataObject) -> None:
    b = (
        data.draw(hnp.arrays(np.float32, a.shape, elements=st.floats(-1e6, 1e6, width=32)))
        if data.draw(st.booleans())
        else a + np.float32(data.draw(st.floats(-1e-3, 1e-3)))
    )
    expected = np.isclose(b.astype("f8"), a.astype("f8"), rtol=1e-3, atol=1e-5, equal_nan=True)
    result = difference(a, b, absolute=True)
    assert result.mismatched == int((~expected).sum())
    assert result.ok == bool(expected.all())


def test_metrics_match_numpy() -> None:
    generator = np.random.default_rng(0)
    a = generator.standard_normal((3, 4))
    b = a + generator.standard_normal((3, 4)) * 0.01
    result = difference(a, b)
    assert result.max_abs == pytest.approx(np.abs(a - b).max())
    assert result.max_rel == pytest.approx((np.abs(a - b) / np.abs(a)).max())
    assert result.mean_abs == pytest.approx(np.abs(a - b).mean())
    assert result.cosine == pytest.approx((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))
    assert result.sqnr_db == pytest.approx(10 * np.log10((a**2).sum() / ((a - b) ** 2).sum()))


def test_large_tensors_are_judged_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.random.default_rng(1).standard_normal((40, 30)).astype(np.float32)
    b = a + np.random.default_rng(2).standard_normal(a.shape).astype(np.float32) * 1e-4
    b[31, 7] += 5
    whole = Difference("y", Tolerance())
    whole.add(a, b)
    monkeypatch.setattr(equivalence_difference, "_CHUNK", 7)
    parts = Difference("y", Tolerance())
    parts.add(a, b)
    assert parts.result().worst_index == (31, 7) and parts.result().expected == float(a[31, 7])
    for name in ("mismatched", "total", "max_abs", "max_rel", "max_ulp", "error_decades", "top1"):
        assert getattr(parts.result(), name) == getattr(whole.result(), name), name
    for name in ("mean_abs", "cosine", "sqnr_db"):
        np.testing.assert_allclose(getattr(parts.result(), name), getattr(whole.result(), name), rtol=1e-12)


def test_the_worst_element_is_shown() -> None:
    a = np.ones((2, 3), np.float32)
    b = a.copy()
    b[1, 2] = 5
    result = difference(a, b)
    assert (result.worst_index, result.expected, result.actual, result.mismatched) == ((1, 2), 1.0, 5.0, 1)


def test_integers_and_strings_are_exact() -> None:
    assert not difference(np.array([2**60]), np.array([2**60 + 1]), rtol=1).ok
    assert difference(np.array(["a", "b"], dtype=object), np.array(["a", "b"])).ok
    assert not difference(np.array(["a", "b"], dtype=object), np.array(["a", "c"])).ok
    assert not difference(np.array([True]), np.array([False]), rtol=9).ok


def test_another_shape_is_said() -> None:
    assert difference(np.zeros((2, 3)), np.zeros((3, 2))).note == "shape [2, 3] against [3, 2]"


def test_nan_on_one_side_only_is_a_failure() -> None:
    assert not difference(np.array([np.nan]), np.array([0.0])).ok
    assert not difference(np.array([0.0]), np.array([np.nan])).ok
    assert not difference(np.array([np.inf]), np.array([-np.inf])).ok


def test_runs_add_up() -> None:
    entry = Difference("t", Tolerance())
    entry.add(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    entry.add(np.array([1.0, 2.0]), np.array([1.0, 3.0]))
    result = entry.result()
    assert (result.total, result.mismatched, result.worst_run) == (4, 1, 1)


def test_another_type_is_a_difference_though_the_numbers_agree() -> None:
    result = difference(np.float32([1, 2]), np.float64([1, 2]))
    assert not result.ok and result.note == "float32 against float64"
    assert difference(np.int64([1]), np.int32([1])).note == "int64 against int32"
    assert difference(np.array([1]), np.array(["1"])).note == "int64 against string"


def test_the_sign_of_zero_matters_only_to_the_last_bit() -> None:
    zeros = np.float32([0.0, 1.0]), np.float32([-0.0, 1.0])
    assert difference(*zeros).ok
    assert difference(*zeros, 0.0, 0.0).ok
    exact = difference(*zeros, 0.0, 0.0, bits=True)
    assert not exact.ok and exact.mismatched == 1
    assert difference(np.float32([np.nan]), -np.float32([np.nan]), 0.0, 0.0, bits=True).ok


def test_to_the_last_bit_one_step_is_a_difference() -> None:
    a = np.float32([1.0, 2.0])
    assert not difference(a, np.nextafter(a, np.float32(9)), 0.0, 0.0, bits=True).ok
    assert difference(a, a.copy(), 0.0, 0.0, bits=True).ok
