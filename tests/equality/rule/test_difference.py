"""Differences against numpy's own arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnxtool.equality.rule import difference as equivalence_difference
from onnxtool.equality.rule.difference import Difference, agrees, error_decades, shared_top, ulp_distance
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.report.compare import TensorDifference


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


ROWS = np.float32([[5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5]])


def test_rows_whose_largest_elements_are_the_same() -> None:
    entry = Difference("y", Tolerance(), top_k=2)
    entry.add(ROWS, np.float32([[5, 0, 3, 2, 1, 4], [0, 1, 2, 3, 5, 4]]))
    found = entry.result()
    assert found.top1 == 0.5  # of two rows one
    assert found.top_k == 0.75  # the first row shares one of two, the second both
    same = difference(ROWS, ROWS)
    assert (same.top1, same.top_k, same.max_ulp, same.error_decades[0]) == (1.0, 1.0, 0, ROWS.size)
    assert difference(ROWS, ROWS[:, ::-1]).top_k == 0.8  # five of six, of which four are shared
    pairs = difference(ROWS[:, :2], ROWS[:, 1::-1])
    assert (pairs.top1, pairs.top_k) == (0.0, None)
    assert difference(ROWS[0], ROWS[0]).top1 is None
    assert difference(ROWS[:, :1], ROWS[:, :1]).top1 is None


def test_the_share_of_the_largest_that_are_shared() -> None:
    assert shared_top(ROWS, ROWS[:, ::-1].copy(), 3) == 0.0
    assert shared_top(ROWS, ROWS, 3) == 2.0
    alike = np.float32([[1, 1, 0]])
    assert shared_top(alike, np.float32([[0, 1, 0]]), 1) == 1.0  # equal elements stand in for one another


def test_what_is_not_finite_is_counted_over_all_runs() -> None:
    entry = Difference("y", Tolerance())
    a, b = np.float32([np.nan, 1, np.inf]), np.float32([np.nan, np.nan, 1])
    for _ in range(2):
        entry.add(a, b)
    found = entry.result()
    assert (found.nans, found.infinities) == ((2, 4), (2, 0))
    assert difference(np.float32([1]), np.float32([1])).nans == (0, 0)


def test_steps_between_numbers_are_counted_of_floats_of_one_type_up_to_32_bits() -> None:
    x = np.float32([1.0, -1.0, 0.0])
    assert difference(x, np.nextafter(x, np.float32(9))).max_ulp == 1
    assert difference(x.astype(np.float16), np.nextafter(x.astype(np.float16), np.float16(9))).max_ulp == 1
    assert difference(x.astype(np.float64), x.astype(np.float64)).max_ulp is None
    assert difference(np.int32([1]), np.int32([1])).max_ulp is None
    entry = Difference("y", Tolerance(), declared="float32")
    entry.add(x.astype(np.float64), x)
    assert entry.result().max_ulp is None
    nan = np.float32([np.nan])
    assert ulp_distance(nan, nan) == 0
    assert ulp_distance(np.float32([np.nan, 1]), np.float32([1, 1])) == 0
    assert ulp_distance(np.float32([1, 1]), np.float32([np.nan, 1])) == 0
    assert ulp_distance(np.float32([-0.0]), np.float32([0.0])) == 0
    smallest = np.nextafter(np.float32(0), np.float32(1))
    assert ulp_distance(np.float32([smallest]), np.float32([-smallest])) == 2


def test_the_first_text_that_differs_is_shown() -> None:
    entry = Difference("y", Tolerance())
    entry.add(np.array(["a", "b"]), np.array(["a", "b"]))
    assert entry.result().worst_index is None
    entry.add(np.array(["a", "b"]), np.array(["a", "c"]))
    entry.add(np.array(["a", "b"]), np.array(["d", "b"]))
    found = entry.result()
    assert (found.worst_index, found.worst_run, found.expected, found.actual) == ((1,), 1, "b", "c")
    assert (found.mismatched, found.total, found.max_abs) == (2, 6, np.inf)


def test_an_output_of_another_shape_counts_as_a_whole() -> None:
    assert difference(np.zeros(5), np.zeros(6)).mismatched == 5
    assert difference(np.zeros(0), np.zeros(6)).mismatched == 1
    assert difference(np.zeros(0), np.zeros(6)).total == 0


def test_errors_are_counted_by_their_size() -> None:
    found = error_decades(np.array([0.0, 0.0, 3e-12, 0.5, 2.0, 1e-20, 1e9, np.inf]))
    assert found[0] == 2
    assert found[1] == 2  # 3e-12 and all that is smaller
    assert found[12] == 1 and found[13] == 1  # from 0.1, from 1
    assert found[16] == 2  # 1000 and all that is larger
    assert found.sum() == 8
    assert error_decades(np.zeros(3)).tolist() == [3] + [0] * 16


def test_the_verdict_alone_is_that_of_the_figures() -> None:
    a = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    a[3, 1] = np.nan
    for b in (a, a * np.float32(1.0005), a * np.float32(1.01), np.nan_to_num(a), a.astype(np.float64), -a):
        assert agrees(a, b, Tolerance()) is difference(a, b.astype(np.float32)).ok
    assert agrees(a, a * np.float32(1.05), Tolerance(), "float16") is False
    assert agrees(a, a * np.float32(1.005), Tolerance(), "float16")


def test_zeros_on_both_sides_are_zero_and_alike() -> None:
    def zero(a: list[float], b: list[float]) -> tuple[bool, float, float]:
        entry = Difference("y", Tolerance())
        entry.add(np.float32(a), np.float32(b))
        return entry.is_zero, entry.cosine, entry.result().max_rel

    assert zero([0, 0], [0, 0]) == (True, 1.0, 0.0)
    assert zero([0, 0], [1, 0]) == (False, 0.0, 0.0)
    assert zero([1, 0], [0, 0]) == (False, 0.0, 1.0)
    assert zero([1e-3, 0], [0, 1e-3])[:2] == (False, 0.0)
    assert zero([2, 4], [2, 5])[2] == 0.25


def test_the_largest_number_of_steps_is_that_of_all_runs() -> None:
    entry, one = Difference("y", Tolerance()), np.float32([1.0])
    for steps in (2, 5, 1):
        entry.add(one, np.float32([1 + steps * 2.0**-23]))
    assert entry.result().max_ulp == 5


def test_whole_numbers_that_are_equal_are_off_by_nothing() -> None:
    found = difference(np.int64([1, 2**60]), np.int64([1, 2**60]))
    assert (found.max_abs, found.mean_abs) == (0.0, 0.0)
    assert difference(np.int64([2**60]), np.int64([2**60 + 1])).max_abs == 1.0
    assert difference(np.zeros((0, 2)), np.zeros((0, 2))).mean_abs == 0.0


def test_of_runs_that_are_equally_far_off_the_first_is_shown() -> None:
    entry, one = Difference("y", Tolerance()), np.float32([1.0, 2.0])
    entry.add(one, one)
    for _ in range(2):
        entry.add(one, one + np.float32([0.5, 0.0]))
    assert (entry.result().worst_run, entry.result().worst_index) == (1, (0,))


def test_rows_no_longer_than_the_number_of_largest_have_no_share() -> None:
    for top_k, share in ((6, None), (1, None), (5, 1.0)):
        entry = Difference("y", Tolerance(), top_k=top_k)
        entry.add(ROWS, ROWS)
        assert entry.result().top_k == share


def test_how_far_rounding_moves_the_reference_is_told() -> None:
    a = np.random.default_rng(0).standard_normal((50, 2)).astype(np.float32)
    again, b = a.copy(), a.copy()
    again[3, 0] += 0.004
    b[7, 0] += 0.004
    entry = Difference("y", Tolerance())
    entry.add(a, a, lambda: pytest.fail("the reference runs again only where something differs"))
    assert entry.rounding == 0.0
    entry.add(a, b, lambda: [again])
    assert entry.rounding == pytest.approx(0.004, rel=1e-3)


def test_complex_numbers_agree_in_both_parts() -> None:
    a = np.array([[1 + 1j], [2 - 3j]], np.complex64)
    assert agrees(a, a, Tolerance())
    assert not agrees(a, a.conj(), Tolerance())


def test_small_outputs_have_a_direction_too() -> None:
    small = np.float32([1e-3, 2e-3])
    assert difference(small, small * np.float32(0.9)).cosine == pytest.approx(1.0)
    assert difference(small, small[::-1]).cosine == pytest.approx(0.8)


def test_an_error_without_end_has_no_mean() -> None:
    assert difference(np.float32([1, 2]), np.float32([np.inf, 2])).mean_abs == np.inf
    assert difference(np.float32([1, 2]), np.float32([1.5, 2])).mean_abs == 0.25


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (np.float64([1]), np.float32([1]), True),
        (np.int32([1]), np.int64([1]), True),
        (np.int64([1]), np.float32([1]), False),
        (np.array(["1"]), np.float32([1]), False),
        (np.array(["1"], object), np.array(["1"]), True),
        (np.array([True]), np.int64([1]), False),
    ],
)
def test_a_framework_may_give_another_type_of_its_family(a: np.ndarray, b: np.ndarray, same: bool) -> None:
    entry = Difference("y", Tolerance(), declared="")
    entry.add(a, b)
    assert entry.result().ok is same
    plain = Difference("y", Tolerance())
    plain.add(a, b)
    assert plain.result().ok is (a.dtype.kind in "OU" and same)
    assert Difference("y", Tolerance()).result().worst_run == 0


def test_two_of_one_type_are_of_one_type_whatever_was_declared() -> None:
    entry = Difference("y", Tolerance(), declared="float32")
    entry.add(np.ones(3), np.ones(3))
    assert entry.result().ok
