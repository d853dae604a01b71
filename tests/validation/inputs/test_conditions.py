"""Distances of conditions: zero where an outcome came about, and smaller the nearer it is."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.runtime.session import SessionOptions
from onnxtool.validation.inputs.conditions import ConditionWatch, differing_casts, has_conditions, told_apart

X = "g (float[b,4] x) => (float[b,4] y)"
FIVE = "five = Constant <value_float = 5.0> ()  "
TWO = "two = Constant <value_float = 2.0> ()  "
CHOSEN = "  n = Neg(x)  y = Where(q, n, x)"


def graph(body: str, head: str = X) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]> {head} {{ {body} }}')


def distances(body: str, values: list[float], value: str = "q", head: str = X) -> tuple[float, float]:
    watch = ConditionWatch(graph(body, head), SessionOptions())
    found = watch.distances({"x": np.array([values], np.float32)})
    places = [i for i, o in enumerate(watch.outcomes) if o.value == value]
    assert [watch.outcomes[i].side for i in places] == [True, False]
    return float(found[places[0]]), float(found[places[1]])


@pytest.mark.parametrize(
    ("operator", "nearest", "true", "false"),
    [
        ("Greater", 3.0, 2.0, 0.0),
        ("Less", 3.0, 0.0, 7.0),
        ("GreaterOrEqual", 5.0, 0.0, 0.0),
        ("Equal", 4.0, 1.0, 0.0),
        ("Equal", 5.0, 0.0, 0.0),
    ],
)
def test_a_comparison_is_as_far_as_its_nearest_operands(
    operator: str, nearest: float, true: float, false: float
) -> None:
    values = [nearest, -10.0, -20.0, -30.0]
    if operator == "Less":
        values = [nearest, -2.0, -2.0, -2.0]
        false = 2.0
    found = distances(f"{FIVE}q = {operator}(x, five){CHOSEN}", values)
    assert found == pytest.approx((true, false), abs=1e-5)


def test_equal_numbers_are_not_yet_greater() -> None:
    assert distances(f"{FIVE}q = Greater(x, five){CHOSEN}", [5.0, 5.0, 5.0, 5.0])[0] > 0


def test_and_adds_or_takes_the_nearer_and_not_turns_round() -> None:
    parts = FIVE + TWO + "g = Greater(x, five)  l = Less(x, two)  "
    values = [3.0, 3.0, 3.0, 3.0]
    assert distances(f"{parts}q = And(g, l){CHOSEN}", values) == pytest.approx((3.0, 0.0), abs=1e-5)
    assert distances(f"{parts}q = Or(g, l){CHOSEN}", values) == pytest.approx((1.0, 0.0), abs=1e-5)
    assert distances(f"{parts}h = Not(g)  q = And(h, l){CHOSEN}", values) == pytest.approx((1.0, 0.0), abs=1e-5)
    assert distances(f"{parts}q = Xor(g, l){CHOSEN}", values) == pytest.approx((1.0, 0.0), abs=1e-5)


def test_or_is_as_far_from_false_as_both_together() -> None:
    parts = FIVE + TWO + "g = Less(x, five)  l = Less(x, two)  "
    assert distances(f"{parts}q = Or(g, l){CHOSEN}", [1.0, 1.0, 1.0, 1.0])[1] == pytest.approx(5.0, abs=1e-5)


def test_a_boolean_in_another_shape_keeps_its_distance() -> None:
    body = (
        f"{FIVE}g = Greater(x, five)  axis = Constant <value_ints = [1]> ()  u = Unsqueeze(g, axis)  "
        "s = Squeeze(u, axis)  q = And(s, s)" + CHOSEN
    )
    assert distances(body, [3.0, 0.0, 0.0, 0.0])[0] == pytest.approx(4.0, abs=1e-5)


def test_a_bound_is_reached_on_both_sides_only() -> None:
    body = f"{FIVE}y = Min(x, five)"
    assert distances(body, [1.0, 2.0, 3.0, 4.0], "y") == pytest.approx((1.0, 0.0), abs=1e-5)
    assert distances(body, [5.0, 5.0, 5.0, 5.0], "y")[0] > 0


def test_both_bounds_of_a_clip_are_watched() -> None:
    body = "l = Constant <value_float = -2.0> ()  h = Constant <value_float = 9.0> ()  y = Clip(x, l, h)"
    watch = ConditionWatch(graph(body), SessionOptions())
    found = watch.distances({"x": np.zeros((1, 4), np.float32)})
    assert [o.side for o in watch.outcomes] == [True, False, True, False]
    assert found == pytest.approx([0.0, 2.0, 9.0, 0.0], abs=1e-5)


def test_texts_that_are_compared_have_no_distance_but_their_outcome() -> None:
    body = 's = Constant <value_string = "zzz"> ()  q = Equal(t, s)'
    watch = ConditionWatch(graph(body, "g (string[b] t) => (bool[b] q)"), SessionOptions())
    assert watch.distances({"t": np.array(["a"], dtype=object)}).tolist() == [1.0, 0.0]
    assert watch.distances({"t": np.array(["zzz"], dtype=object)}).tolist() == [0.0, 1.0]


def test_nan_hides_no_other_element() -> None:
    assert distances(f"{FIVE}q = Greater(x, five){CHOSEN}", [np.nan, 3.0, 1.0, 1.0])[0] == pytest.approx(2.0, abs=1e-5)


def test_sizes_are_told_from_values() -> None:
    size = "s = Shape <start = 0, end = 1> (x)  k = Constant <value_ints = [7]> ()  q = Greater(s, k)" + CHOSEN
    watch = ConditionWatch(graph(size), SessionOptions())
    assert all(outcome.of_sizes for outcome in watch.outcomes)
    assert not any(o.of_sizes for o in ConditionWatch(graph(f"{FIVE}y = Min(x, five)"), SessionOptions()).outcomes)


def test_a_graph_without_conditions_has_no_outcomes() -> None:
    plain = graph("y = Neg(x)")
    assert not has_conditions(plain)
    watch = ConditionWatch(plain, SessionOptions())
    assert watch.outcomes == []
    assert watch.distances({"x": np.zeros((1, 4), np.float32)}).size == 0


def test_an_outcome_counts_where_its_consequences_differ() -> None:
    product = "p = Mul(x, {})  y = Where(q, p, x)"
    two = graph(f"{FIVE}{TWO}q = Greater(x, five)  " + product.format("two"))
    five = graph(f"{FIVE}{TWO}q = Greater(x, five)  " + product.format("five"))
    missed = ConditionWatch(two, SessionOptions()).outcomes[:1]
    assert told_apart(missed, two, two) == []
    assert told_apart(missed, two, five) == missed
    assert told_apart([], two, five) == []


def test_a_bound_beyond_all_numbers_decides_nothing() -> None:
    bounded = graph("h = Constant <value_float = 3.0e38> ()  y = Min(x, h)")
    missed = ConditionWatch(bounded, SessionOptions()).outcomes[:1]
    assert told_apart(missed, bounded, graph("y = Identity(x)")) == []


def test_what_hangs_on_constants_alone_is_no_condition() -> None:
    body = f"{FIVE}{TWO}q = Greater(five, two)  n = Neg(x)  y = Where(q, n, x)"
    assert ConditionWatch(graph(body), SessionOptions()).outcomes == []


def test_no_more_conditions_are_watched_than_there_is_room_for() -> None:
    many = "".join(f"c{i} = Constant <value_float = {i}.5> ()  q{i} = Greater(x, c{i})  " for i in range(90))
    inner = "s = ReduceSum <keepdims = 0> (x)  c = Greater(s, c3)  "
    inner += "y = If (c) <then_branch = t () => (p) { i0 = Less(x, c4)  p = Where(i0, x, s) }, "
    inner += "else_branch = e () => (r) { r = Identity(x) }>"
    assert len(ConditionWatch(graph(many + inner), SessionOptions()).outcomes) == 128


@pytest.mark.parametrize(
    ("body", "of_sizes"),
    [
        ("s = Shape <start = 0, end = 1> (x)  c = Constant <value_ints = [7]> ()  q = Greater(s, c)", True),
        ("i = NonZero(x)  s = Size(i)  c = Constant <value = int64 {7}> ()  q = Greater(s, c)", False),
        ("n = IsNaN(x)  f = Cast <to = 7> (n)  s = ReduceSum <keepdims = 0> (f)  "
         "c = Constant <value = int64 {7}> ()  q = Greater(s, c)", False),
    ],
)  # fmt: skip
def test_what_hangs_on_sizes_is_told_from_what_hangs_on_values(body: str, of_sizes: bool) -> None:
    watch = ConditionWatch(graph(f"{body}  n0 = Neg(x)  y = Where(q, n0, x)"), SessionOptions())
    (found,) = {o.of_sizes for o in watch.outcomes if o.value == "q"}
    assert found is of_sizes


def test_tests_that_decide_by_themselves_are_conditions() -> None:
    watch = ConditionWatch(graph("q = IsNaN(x)  n = Neg(x)  y = Where(q, n, x)"), SessionOptions())
    assert [o.value for o in watch.outcomes] == ["q", "q"]
    x = np.zeros((1, 4), np.float32)
    assert watch.distances({"x": x}).tolist() == [1.0, 0.0]
    x[0, 2] = np.nan
    assert watch.distances({"x": x}).tolist() == [0.0, 0.0]


def test_a_cast_that_the_other_graph_lacks_is_watched() -> None:
    narrow, plain = "i = Cast <to = 5> (x)  y = Cast <to = 1> (i)", "y = Identity(x)"
    assert differing_casts({"A": graph(plain), "B": graph(narrow)}) == {"A": set(), "B": {"i"}}
    assert differing_casts({"A": graph(narrow), "B": graph(narrow)}) == {"A": set(), "B": set()}
    assert differing_casts({"A": graph(narrow)}) == {"A": set()}
    wide = "i = Cast <to = 7> (x)  y = Cast <to = 1> (i)"
    assert differing_casts({"A": graph(plain), "B": graph(wide)}) == {"A": set(), "B": set()}


def test_a_cast_is_as_far_as_its_largest_number_from_what_the_type_holds() -> None:
    watch = ConditionWatch(graph("i = Cast <to = 5> (x)  y = Cast <to = 1> (i)"), SessionOptions(), None, {"i"})
    below, above = watch.distances({"x": np.array([[0.0, -100.0, 30_000.0, 5.0]], np.float32)})
    assert (below, above) == pytest.approx((32_668.0, 2_767.0), abs=1e-3)
    over = watch.distances({"x": np.array([[0.0, -40_000.0, 40_000.0, 5.0]], np.float32)})
    assert over.tolist() == [0.0, 0.0]
    assert told_apart(watch.outcomes, graph("i = Cast <to = 5> (x)  y = Cast <to = 1> (i)"), graph("y = Abs(x)")) == []
