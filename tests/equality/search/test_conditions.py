"""Distances of conditions: zero where an outcome came about, and smaller the nearer it is."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.equality.search.conditions import ConditionWatch, has_conditions, narrowing_casts
from onnxtool.runtime.session.session import SessionOptions

X = "g (float[b,4] x) => (float[b,4] y)"
FIVE = "five = Constant <value_float = 5.0> ()  "
TWO = "two = Constant <value_float = 2.0> ()  "
CHOSEN = "  n = Neg(x)  y = Where(q, n, x)"


def graph(body: str, head: str = X) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]> {head} {{ {body} }}')


def distances(body: str, values: list[float], value: str = "q", head: str = X) -> tuple[float, float]:
    watch = ConditionWatch(graph(body, head), SessionOptions())
    found = watch.distances({"x": np.array([values], np.float32)})
    places = [i for i, o in enumerate(watch.outcomes) if o.node == value]
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


def test_a_bound_beyond_all_numbers_decides_nothing() -> None:
    bounded = graph("h = Constant <value_float = 3.0e38> ()  y = Min(x, h)")
    assert ConditionWatch(bounded, SessionOptions()).outcomes == []


def test_what_hangs_on_constants_alone_is_no_condition() -> None:
    body = f"{FIVE}{TWO}q = Greater(five, two)  n = Neg(x)  y = Where(q, n, x)"
    assert ConditionWatch(graph(body), SessionOptions()).outcomes == []


def test_no_more_conditions_are_watched_than_there_is_room_for() -> None:
    many = "".join(f"c{i} = Constant <value_float = {i}.5> ()  q{i} = Greater(x, c{i})  " for i in range(90))
    inner = "s = ReduceSum <keepdims = 0> (x)  c = Greater(s, c3)  "
    inner += "y = If (c) <then_branch = t () => (p) { i0 = Less(x, c4)  p = Where(i0, x, s) }, "
    inner += "else_branch = e () => (r) { r = Identity(x) }>"
    outcomes = ConditionWatch(graph(many + inner), SessionOptions()).outcomes
    assert sum(not o.branch for o in outcomes) == 128
    assert [o.part for o in outcomes if o.branch] == ["then branch", "else branch"]


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
    (found,) = {o.of_sizes for o in watch.outcomes if o.node == "q"}
    assert found is of_sizes


def test_tests_that_decide_by_themselves_are_conditions() -> None:
    watch = ConditionWatch(graph("q = IsNaN(x)  n = Neg(x)  y = Where(q, n, x)"), SessionOptions())
    assert [o.node for o in watch.outcomes] == ["q", "q"]
    x = np.zeros((1, 4), np.float32)
    assert watch.distances({"x": x}).tolist() == [1.0, 0.0]
    x[0, 2] = np.nan
    assert watch.distances({"x": x}).tolist() == [0.0, 0.0]


def test_narrow_casts_of_two_graphs_are_watched() -> None:
    narrow, plain = "i = Cast <to = 5> (x)  y = Cast <to = 1> (i)", "y = Identity(x)"
    assert narrowing_casts({"A": graph(plain), "B": graph(narrow)}) == {"A": set(), "B": {"i"}}
    assert narrowing_casts({"A": graph(narrow)}) == {"A": set()}
    wide = "i = Cast <to = 7> (x)  y = Cast <to = 1> (i)"
    assert narrowing_casts({"A": graph(plain), "B": graph(wide)}) == {"A": set(), "B": set()}


def test_a_cast_is_as_far_as_its_largest_number_from_what_the_type_holds() -> None:
    watch = ConditionWatch(graph("i = Cast <to = 5> (x)  y = Cast <to = 1> (i)"), SessionOptions(), None, {"i"})
    below, above = watch.distances({"x": np.array([[0.0, -100.0, 30_000.0, 5.0]], np.float32)})
    assert (below, above) == pytest.approx((32_668.0, 2_767.0), abs=1e-3)
    over = watch.distances({"x": np.array([[0.0, -40_000.0, 40_000.0, 5.0]], np.float32)})
    assert over.tolist() == [0.0, 0.0]


def test_outcomes_bear_the_name_of_their_node_and_comparisons_come_first() -> None:
    model = graph(f"{FIVE}m = Min(x, five)  q = Greater(x, five)  r = Not(q)  n = Neg(m)  y = Where(r, n, x)")
    next(n for n in model.graph if n.op_type == "Greater").name = "above five"
    watch = ConditionWatch(model, SessionOptions())
    assert [str(o) for o in watch.outcomes] == [
        "the true outcome of 'above five'",
        "the false outcome of 'above five'",
        "the true outcome of 'm'",
        "the false outcome of 'm'",
    ]


def test_a_cast_is_named_and_no_matter_of_sizes() -> None:
    model = graph("i = Cast <to = 5> (x)  y = Cast <to = 1> (i)")
    model.graph[0].name = "to int16"
    outcomes = ConditionWatch(model, SessionOptions(), None, {"i"}).outcomes
    assert [(o.node, o.side, o.of_sizes, o.beyond) for o in outcomes] == [
        ("to int16", False, False, True),
        ("to int16", True, False, True),
    ]


def test_weights_that_are_compared_decide_nothing() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[b,4] x) => (float[b,4] y) <float[4] w, float[4] v> '
        "{ q = Greater(w, v)  n = Neg(x)  y = Where(q, n, x) }",
        initializers=[ir.tensor(np.zeros(4, np.float32), name="w"), ir.tensor(np.ones(4, np.float32), name="v")],
    )
    assert ConditionWatch(model, SessionOptions()).outcomes == []


def test_only_a_bound_that_no_number_reaches_is_none() -> None:
    def watched(model: ir.Model) -> int:
        return len(ConditionWatch(model, SessionOptions()).outcomes)

    assert watched(graph("h = Constant <value_float = 2.0e30> ()  y = Min(x, h)")) == 0
    assert watched(graph("h = Constant <value_float = 2.0e9> ()  y = Min(x, h)")) == 2
    several = "h = Constant <value = float[2] {3.0e38, 5.0}> ()  i = Concat <axis = 0> (h, h)  y = Min(x, i)"
    assert watched(graph(several)) == 2
    head = "g (int64[b,4] x) => (int64[b,4] y)"
    assert watched(graph("h = Constant <value = int64 {50}> ()  y = Min(x, h)", head)) == 2


def test_not_and_another_shape_turn_and_keep_both_distances() -> None:
    values = [3.0, 3.0, 3.0, 3.0]
    assert distances(
        f"{FIVE}g = Greater(x, five)  q = Not(g)  r = And(q, q){CHOSEN.replace('(q', '(r')}", values, "r"
    ) == (pytest.approx((0.0, 2.0), abs=1e-5))
    body = f"{FIVE}g = Greater(x, five)  i = Identity(g)  q = Or(i, i){CHOSEN}"
    assert distances(body, values) == pytest.approx((2.0, 0.0), abs=1e-5)
    assert distances(body, [9.0, 9.0, 9.0, 9.0]) == pytest.approx((0.0, 8.0), abs=1e-5)


def test_a_boolean_input_is_there_or_one_away() -> None:
    head = "g (float[b,4] x, bool[1] flag) => (float[b,4] y)"
    body = f"{FIVE}g = Greater(x, five)  q = And(g, flag)  n = Neg(x)  y = Where(q, n, x)"
    watch = ConditionWatch(graph(body, head), SessionOptions())
    place = next(i for i, o in enumerate(watch.outcomes) if o.node == "q" and o.side)
    x = np.full((1, 4), 3.0, np.float32)
    assert watch.distances({"x": x, "flag": np.array([False])})[place] == pytest.approx(3.0, abs=1e-5)
    assert watch.distances({"x": x, "flag": np.array([True])})[place] == pytest.approx(2.0, abs=1e-5)


def test_a_bound_that_is_left_out_is_none() -> None:
    watch = ConditionWatch(graph("h = Constant <value_float = 9.0> ()  y = Clip(x, , h)"), SessionOptions())
    assert [o.side for o in watch.outcomes] == [True, False]
    assert watch.distances({"x": np.zeros((1, 4), np.float32)}) == pytest.approx([9.0, 0.0], abs=1e-5)


def test_branches_and_loop_bodies_tell_whether_they_ran() -> None:
    body = """
        s = ReduceSum <keepdims = 0> (x)  ten = Constant <value_float = 10.0> ()  c = Greater(s, ten)
        n = Cast <to = 7> (s)
        z = Loop (n, , x) <body = b (int64 i, bool go, float[b,4] u) => (bool go2, float[b,4] v) {
                go2 = Identity(go)  v = Neg(u) }>
        y = If (c) <then_branch = t () => (p) { i0 = Less(s, ten)
                p = If (i0) <then_branch = tt () => (p1) { p1 = Neg(x) },
                    else_branch = te () => (p2) { p2 = Abs(z) }> },
            else_branch = f () => (r) { r = Identity(z) }>
    """
    watch = ConditionWatch(graph(body), SessionOptions())
    found = watch.distances({"x": np.full((1, 4), 5.0, np.float32)})
    assert [(o.branch, d == 0) for o, d in zip(watch.outcomes, found, strict=True) if o.branch] == [
        ("loop body", True),
        ("then branch", True),
        ("else branch", False),
        ("then branch", False),
        ("else branch", True),
    ]
    small = watch.distances({"x": np.full((1, 4), -5.0, np.float32)})
    assert [d == 0 for o, d in zip(watch.outcomes, small, strict=True) if o.branch] == [
        False,
        False,
        True,
        False,
        False,
    ]
