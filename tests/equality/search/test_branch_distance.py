"""Inputs on which conditions come out the other way are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.equality.search.branch_distance import Found, _Walk, _where_zero, reach
from onnxtool.equality.search.conditions import ConditionWatch, Outcome
from onnxtool.equality.search.mutations import Move, Moves
from onnxtool.equality.trials.graph_hints import GraphHints, read_facts
from onnxtool.equality.trials.sizes import dynamic_dims
from onnxtool.equality.trials.trial import Budget
from onnxtool.model.ir.queries import input_specs
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

X = "g (float[b,4] x) => (bool[b,4] q)"
IDS = "g (int64[b,n] ids) => (bool[b,n] q, float[b,n,8] e)"


def sought(text: str, weights: dict[str, np.ndarray] | None = None) -> tuple[ir.Model, list[Found], list[str]]:
    tensors = [ir.tensor(array, name=name) for name, array in (weights or {}).items()]
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]> {text}', initializers=tensors)
    specs, facts = input_specs(model), read_facts(model)
    runs = [random_feeds(specs, b, batch=b, length=n, domains=facts.domains) for b, n in ((2, 16), (1, 9), (5, 23))]
    watch = ConditionWatch(model, SessionOptions())
    found, missed = reach(watch, specs, runs, dynamic_dims(specs, runs), facts, Budget("normal"))
    return model, found, [str(outcome) for outcome in missed]


@pytest.mark.parametrize(
    "body",
    [
        "c = Constant <value_float = 4567.0> ()  q = Greater(x, c)",
        "c = Constant <value_float = -321.0> ()  q = Less(x, c)",
        "c = Constant <value_float = 37.25> ()  q = Equal(x, c)",
        "c = Constant <value_float = 5.0> ()  d = Constant <value_float = 5.01> ()  "
        "g = Greater(x, c)  l = Less(x, d)  q = And(g, l)",
        "k = Constant <value_float = 0.99999> ()  s = Sigmoid(x)  q = Greater(s, k)",
    ],
)
def test_reaches_rare_values(body: str) -> None:
    model, found, missed = sought(f"{X} {{ {body} }}")
    assert missed == []
    runner = OnnxRunner.open(model, SessionOptions())
    assert any(runner.run(item.feeds)["q"].any() for item in found)


def test_reaches_one_token_of_many_within_its_table() -> None:
    table = np.zeros((30_000, 8), np.float32)
    body = "e = Gather(w, ids)  c = Constant <value = int64 {29876}> ()  q = Equal(ids, c)"
    _, found, missed = sought(f"{IDS} <float[30000, 8] w> {{ {body} }}", {"w": table})
    assert missed == []
    assert any((item.feeds["ids"] == 29_876).any() for item in found)
    assert all(item.feeds["ids"].max() < 30_000 and item.feeds["ids"].min() >= 0 for item in found)


def test_reaches_a_row_behind_the_remainder_of_a_product() -> None:
    text = """g (int32[b] p, int32[b] q) => (float[b] e) <float[50021] w> {
        f = Constant <value = int32 {20261}> ()  n = Constant <value = int32 {50021}> ()
        h = Constant <value = int32 {30011}> ()
        m = Mul(p, f)  r = Mul(q, h)  s = Add(m, r)  i = Mod(s, n)  e = Gather(w, i) }"""
    tensor = ir.tensor(np.zeros(50_021, np.float32), name="w")
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]> {text}', initializers=[tensor])
    specs, facts = input_specs(model), read_facts(model)
    runs = [random_feeds(specs, 0, batch=2, domains=facts.domains)]
    watch = ConditionWatch(model, SessionOptions(), {"w": [12_345]})
    found, missed = reach(watch, specs, runs, dynamic_dims(specs, runs), facts, Budget("normal"))
    assert missed == []
    feeds = found[0].feeds
    assert 12_345 in (feeds["p"] * np.int32(20_261) + feeds["q"] * np.int32(30_011)) % 50_021
    assert len(feeds["p"]) <= 2  # made small, since the models run on it


def test_a_row_beyond_the_table_is_not_tried() -> None:
    table = np.zeros((100, 8), np.float32)
    body = "e = Gather(w, ids)  c = Constant <value = int64 {500}> ()  q = Equal(ids, c)"
    _, found, missed = sought(f"{IDS} <float[100, 8] w> {{ {body} }}", {"w": table})
    assert found == []
    assert missed == ["the true outcome of 'q'"]


def test_reaches_sizes() -> None:
    body = "s = Size(x)  c = Constant <value = int64 {20000}> ()  q = Greater(s, c)"
    _, found, missed = sought(f"g (float[b,n] x) => (bool q) {{ {body} }}")
    assert missed == []
    assert max(item.feeds["x"].size for item in found) > 20_000


def test_a_mask_stays_a_mask() -> None:
    body = (
        "o = Constant <value_ints = [1]> ()  s = ReduceSum <keepdims = 0> (attention_mask, o)  "
        "c = Constant <value = int64 {3}> ()  q = Equal(s, c)"
    )
    _, found, missed = sought(f"g (int64[b,n] attention_mask) => (bool[b] q) {{ {body} }}")
    assert missed == []
    assert all(set(np.unique(item.feeds["attention_mask"])) <= {0, 1} for item in found)


def test_what_cannot_be_is_said() -> None:
    body = "z = Constant <value_float = -1.0> ()  s = Mul(x, x)  q = Less(s, z)"
    _, found, missed = sought(f"{X} {{ {body} }}")
    assert found == []
    assert missed == ["the true outcome of 'q'"]


def test_types_and_domains_bound_what_is_tried() -> None:
    body = "s = Sqrt(x)  c = Constant <value_float = -1.0> ()  q = Less(x, c)"
    _, found, missed = sought(f"g (float[b,4] x) => (bool[b,4] q, float[b,4] s) {{ {body} }}")
    assert found == []
    assert missed == ["the true outcome of 'q'"]
    body = "f = Cast <to = 1> (x)  c = Constant <value_float = 300.0> ()  q = Greater(f, c)"
    _, found, missed = sought(f"g (uint8[b,4] x) => (bool[b,4] q) {{ {body} }}")
    assert found == []
    assert missed == ["the true outcome of 'q'"]
    body = "c = Constant <value = int64 {40}> ()  q = Equal(x, c)"
    _, found, missed = sought(f"g (int64[b,4] x) => (bool[b,4] q) {{ {body} }}")
    assert missed == []
    assert found


def test_a_flag_is_turned() -> None:
    body = "c = Constant <value = bool {0}> ()  o = Or(flag, c)  n = Not(o)  q = And(n, n)"
    _, found, missed = sought(f"g (bool[1] flag) => (bool[1] q) {{ {body} }}")
    assert missed == []
    assert all(item.feeds["flag"].dtype == bool for item in found)


def test_one_element_of_many_is_moved() -> None:
    body = (
        "i = Constant <value_ints = [3]> ()  f = Gather <axis = 1> (x, i)  j = Constant <value_ints = [0]> ()  "
        "g = Gather <axis = 1> (x, j)  c = Constant <value_float = 70.0> ()  d = Constant <value_float = -70.0> ()  "
        "a = Greater(f, c)  b2 = Less(g, d)  q = And(a, b2)"
    )
    _, found, missed = sought(f"g (float[b,4] x) => (bool[b,1] q) {{ {body} }}")
    assert missed == []
    (last,) = [item.feeds["x"] for item in found if item.outcome.node == "q" and item.outcome.side]
    assert ((last[:, 3] > 70) & (last[:, 0] < -70)).any()


def test_what_is_reached_already_is_not_sought() -> None:
    _, found, missed = sought(f"{X} {{ c = Constant <value_float = 0.0> ()  q = Greater(x, c) }}")
    assert (found, missed) == ([], [])


def test_nothing_is_sought_without_time() -> None:
    text = f"{X} {{ c = Constant <value_float = 4567.0> ()  q = Greater(x, c) }}"
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    specs, budget = input_specs(model), Budget("quick")
    budget.seconds = -1.0
    runs = [random_feeds(specs, 0)]
    watch = ConditionWatch(model, SessionOptions())
    found, missed = reach(watch, specs, runs, dynamic_dims(specs, runs), read_facts(model), budget)
    assert found == []
    assert len(missed) == 1
    budget.seconds = 60.0
    found, missed = reach(watch, specs, runs, dynamic_dims(specs, runs), read_facts(model), budget)
    assert (len(found), missed) == (1, [])


def test_unnamed_dims_keep_their_size() -> None:
    body = "s = Shape <start = 0, end = 1> (x)  c = Constant <value_ints = [500]> ()  q = Greater(s, c)"
    _, found, missed = sought(f"g (float[b,?] x) => (bool[1] q) {{ {body} }}")
    assert missed == []
    assert all(item.feeds["x"].shape[1] in (16, 9, 23) for item in found)


@pytest.mark.parametrize(
    ("body", "head"),
    [
        # Two zeros among eight numbers; a token that stands there three times.
        (
            "o = Constant <value_ints = [1]> ()  z = Constant <value_float = 0.0> ()  e = Equal(x, z)  "
            "f = Cast <to = 7> (e)  "
            "s = ReduceSum(f, o)  c = Constant <value = int64 {2}> ()  q = Equal(s, c)",
            "g (float[b,8] x) => (bool[b,1] q)",
        ),
        (
            "k = Constant <value = int64 {11111}> ()  e = Equal(x, k)  f = Cast <to = 7> (e)  "
            "s = ReduceSum <keepdims = 0> (f)  c = Constant <value = int64 {3}> ()  q = Equal(s, c)",
            "g (int64[b,n] x) => (bool q)",
        ),
        # More numbers above zero than the usual length has, which takes both sizes and values.
        (
            "o = Constant <value_ints = [1]> ()  z = Constant <value_float = 0.0> ()  e = Greater(x, z)  "
            "f = Cast <to = 7> (e)  "
            "s = ReduceSum(f, o)  c = Constant <value = int64 {500}> ()  q = Greater(s, c)",
            "g (float[b,n] x) => (bool[b,1] q)",
        ),
        # A word and a number at once, and a missing value beside a large one.
        (
            's = Constant <value_string = "Berlin"> ()  a = Equal(x, s)  c = Constant <value_float = 90.0> ()  '
            "b2 = Greater(v, c)  q = And(a, b2)",
            "g (string[b] x, float[b] v) => (bool[b] q)",
        ),
        (
            "n = IsNaN(x)  f = Cast <to = 7> (n)  o = Constant <value_ints = [1]> ()  s = ReduceSum(f, o)  "
            "c = Constant <value = int64 {2}> ()  q = Equal(s, c)",
            "g (float[b,8] x) => (bool[b,1] q)",
        ),
    ],
)
def test_reaches_what_takes_several_steps(body: str, head: str) -> None:
    model, found, missed = sought(f"{head} {{ {body} }}")
    assert "the true outcome of 'q'" not in missed
    runner = OnnxRunner.open(model, SessionOptions())
    assert any(runner.run(item.feeds)["q"].any() for item in found)


def test_equal_numbers_alone_are_not_enough() -> None:
    """Zeros make x and twice z equal; what follows from it shows on other numbers only."""
    text = (
        "g (float[b,4] x, float[b,4] z) => (bool[b,4] q) { t = Constant <value_float = 2.0> ()  "
        "d = Mul(z, t)  q = Equal(x, d) }"
    )
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    specs, facts = input_specs(model), read_facts(model)
    runs = [random_feeds(specs, 1, batch=2)]
    runs.append({name: np.zeros_like(array) for name, array in runs[0].items()})
    watch = ConditionWatch(model, SessionOptions())
    found, missed = reach(watch, specs, runs, dynamic_dims(specs, runs), facts, Budget("normal"))
    assert missed == []
    assert any(((f.feeds["x"] == 2 * f.feeds["z"]) & (f.feeds["x"] != 0)).any() for f in found)


def test_a_straight_line_leads_where_no_constant_of_the_graph_does() -> None:
    body = (
        "a = Constant <value_float = 37.5> ()  d = Constant <value_float = 11.3> ()  c = Mul(a, d)  "
        "m = ReduceMean <keepdims = 0> (x)  q = Greater(m, c)"
    )
    model, found, missed = sought(f"g (float[b,4] x) => (bool q) {{ {body} }}")
    assert missed == []
    runner = OnnxRunner.open(model, SessionOptions())
    assert any(runner.run(item.feeds)["q"] for item in found)


def test_what_nothing_reaches_takes_no_more_runs_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    plain = ConditionWatch.distances

    def counted(self: ConditionWatch, feeds: dict[str, np.ndarray]) -> np.ndarray:
        runs.append(1)
        return plain(self, feeds)

    monkeypatch.setattr(ConditionWatch, "distances", counted)
    body = "z = Constant <value_float = -1.0> ()  s = Mul(x, x)  m = ReduceMin <keepdims = 0> (s)  q = Less(m, z)"
    _, _, missed = sought(f"g (float[b,n] x) => (bool q) {{ {body} }}")
    assert missed == ["the true outcome of 'q'"]
    assert 100 < len(runs) < 1500


def outputs(model: ir.Model, found: list[Found], name: str = "q") -> list[np.ndarray]:
    runner = OnnxRunner.open(model, SessionOptions())
    return [runner.run(item.feeds)[name] for item in found]


def test_reaches_a_size_that_is_exactly_three_times_another() -> None:
    body = (
        "s = Shape <start = 2, end = 3> (x)  r = Shape <start = 3, end = 4> (x)  k = Constant <value_ints = [3]> ()  "
        "t = Mul(s, k)  q = Equal(t, r)"
    )
    model, found, missed = sought(f"g (float[b,3,h,w] x) => (bool[k] q) {{ {body} }}")
    assert missed == []
    assert any(o.any() for o in outputs(model, found))


def test_reaches_a_ball_around_a_point() -> None:
    body = (
        "p = Constant <value = float[4] {1.0, -2.0, 7.0, 0.5}> ()  d = Sub(x, p)  e = Mul(d, d)  "
        "o = Constant <value_ints = [1]> ()  m = ReduceSum(e, o)  l = Constant <value_float = 0.01> ()  q = Less(m, l)"
    )
    _, _, missed = sought(f"g (float[b,4] x) => (bool[b,1] q) {{ {body} }}")
    assert missed == []


def test_flags_and_a_number_are_sought_together() -> None:
    body = (
        "n = Not(second)  c = And(first, n)  m = ReduceMax <keepdims = 0> (x)  l = Constant <value_float = 90.0> ()  "
        "g = Greater(m, l)  q = And(c, g)"
    )
    model, found, missed = sought(f"g (float[b,4] x, bool[1] first, bool[1] second) => (bool[1] q) {{ {body} }}")
    assert missed == []
    assert any(o.any() for o in outputs(model, found))


def test_a_past_may_be_empty() -> None:
    body = "s = Shape <start = 1, end = 2> (past)  z = Constant <value_ints = [0]> ()  q = Equal(s, z)"
    _, found, missed = sought(f"g (float[b,p,4] past, float[b,n,4] x) => (bool[k] q) {{ {body} }}")
    assert missed == []
    assert any(item.feeds["past"].shape[1] == 0 for item in found)


def test_a_loop_without_a_count_is_not_given_what_it_would_never_end_on() -> None:
    loop = (
        "t = Constant <value = bool {1}> ()  c = Constant <value = int64 {COUNT}> ()  "
        "y = Loop (FIRST, t, x) <body = l (int64 i, "
        "bool k, float[b,4] a) => (bool k2, float[b,4] a2) { h = Constant <value_float = 0.5> ()  a2 = Mul(a, h)  "
        "m = ReduceMax <keepdims = 0> (a2)  o = Constant <value_float = 1.0> ()  k2 = Greater(m, o) }>"
    )

    def facts(first: str, count: int = 5) -> bool:
        body = loop.replace("FIRST", first).replace("COUNT", str(count))
        text = f'<ir_version: 10, opset_import: ["" : 20]> g (float[b,4] x) => (float[b,4] y) {{ {body} }}'
        return read_facts(ir.from_onnx_text(text)).endless

    assert facts("")
    assert facts("c", 2**62)
    assert not facts("c", 5)


def test_whole_steps_reach_an_equality_and_go_beyond_a_bound() -> None:
    assert _where_zero(0.0, 29.000001, -1.0, whole=True) == (29.0, 30.0)
    assert _where_zero(0.0, 29.000001, 1.0, whole=True) == (-29.0, -30.0)
    assert _where_zero(4.0, 6.0, -2.0, whole=True) == (7.0,)
    assert _where_zero(0.0, 0.000001, -1.0, whole=True) == (1.0,)
    assert _where_zero(0.0, 29.005, -1.0, whole=True) == (30.0,)


def test_numbers_are_moved_exactly_there_and_a_little_further() -> None:
    exact, further = _where_zero(1.0, 8.0, -2.0, whole=False)
    assert exact == pytest.approx(5.0)
    assert 5.0 < further < 5.01


def test_a_walk_stops_at_an_equality_and_a_little_beyond_a_bound() -> None:
    assert _where_zero(3.0, 1e-6, 2.0, whole=False)[0] == 3.0
    exact, further = _where_zero(0.0, 5.0, -1.0, whole=False)
    assert exact == pytest.approx(5.0 - 1e-6, abs=1e-9)
    assert further == pytest.approx(5.0005, abs=1e-9)


class Line:
    """A condition on one number, in the place of a graph's.

    Attributes:
        asked: the numbers at which the distance was asked for.
    """

    def __init__(self, distance: Callable[[float], float], *, of_sizes: bool = False) -> None:
        self.outcomes = [Outcome("q", True, of_sizes)]
        self.asked: list[float] = []
        self._distance = distance

    def distances(self, feeds: dict[str, np.ndarray]) -> np.ndarray:
        self.asked.append(float(feeds["x"][0]))
        return np.array([self._distance(self.asked[-1])])


def walked(
    distance: Callable[[float], float], *, start: float = 0.0, whole: bool = False, of_sizes: bool = False
) -> tuple[_Walk, Line, int]:
    """A walk along one number: what it found, what was asked for, and how many runs it says that it took."""
    line = Line(distance, of_sizes=of_sizes)
    spec = TensorSpec("x", np.dtype("float64"), (1,))
    nothing = dynamic_dims([spec], [{"x": np.zeros(1)}])
    moves = Moves([spec], nothing, GraphHints(), np.random.default_rng(0))
    walk = _Walk(cast(Any, line), moves, Budget("normal"))
    walk.look({"x": np.array([start])})
    line.asked.clear()
    move = Move(lambda feeds, by: {"x": feeds["x"] + by}, 1.0 if whole else 0.01, whole)
    return walk, line, walk._line(0, {"x": np.array([start])}, move)


def test_a_straight_line_is_walked_in_a_few_steps() -> None:
    walk, line, count = walked(lambda x: max(0.0, 100.0 - x))
    assert line.asked[:2] == [0.0, 0.01]
    assert count <= 8
    assert len(line.asked) <= count + 1
    distance, feeds = walk.best[0]
    assert distance == 0.0
    assert feeds["x"][0] == pytest.approx(100, rel=1e-3)


def test_the_other_direction_is_tried() -> None:
    walk, line, count = walked(lambda x: max(0.0, 100.0 + x) if x <= 0 else np.inf)
    assert walk.best[0][0] == 0.0
    assert walk.best[0][1]["x"][0] <= -100
    assert len(line.asked) <= count + 1 <= 12


def test_a_bend_is_walked_by_newtons_method() -> None:
    walk, line, count = walked(lambda x: abs(x * x - 49.0), start=1.0)
    assert walk.best[0][1]["x"][0] == pytest.approx(7.0, rel=1e-2)
    assert walk.best[0][0] < 0.5
    assert len(line.asked) == count <= 18


def test_whole_numbers_are_reached_exactly() -> None:
    walk, line, count = walked(lambda x: abs(x - 17.0), whole=True)
    assert 17.0 in line.asked
    assert walk.best[0][0] == 0.0
    assert count <= 6


def test_a_distance_that_is_not_known_is_no_way() -> None:
    walk, line, count = walked(lambda x: 5.0 if x == 0 else np.inf)
    assert walk.best[0][0] == 5.0
    assert line.asked == [0.0, 0.01, -0.01, 1.0, -1.0]
    assert count == 5


def test_of_inputs_at_one_distance_the_first_is_kept() -> None:
    line = Line(lambda x: 0.0)
    spec = TensorSpec("x", np.dtype("float64"), (2,))
    dims = dynamic_dims([spec], [{"x": np.zeros(2)}])
    walk = _Walk(cast(Any, line), Moves([spec], dims, GraphHints(), np.random.default_rng(0)), Budget("normal"))
    first, second = {"x": np.array([1.0, 2.0])}, {"x": np.array([3.0, 4.0])}
    walk.look(first)
    walk.look(second)
    assert walk.best[0][1] is first and walk.varied[0][1] is first


def test_a_whole_number_is_not_sought_between_two() -> None:
    _, line, count = walked(lambda x: 0.25 + (x - 3.5) ** 2, whole=True)
    assert all(x == round(x) for x in line.asked)
    assert len(line.asked) == count


def test_what_only_single_numbers_reach_is_said_to_be_missed() -> None:
    """A row of one number that is its own place is zero, and what follows from zero is nothing."""
    body = (
        "s = Shape <start = 1, end = 2> (x)  t = Squeeze(s)  z = Constant <value = int64 {0}> ()  "
        "u = Constant <value = int64 {1}> ()  r = Range(z, t, u)  f = Cast <to = 1> (r)  "
        "h = Constant <value_float = 3.7> ()  g = Mul(f, h)  d = Sub(x, g)  e = Mul(d, d)  "
        "m = ReduceMax <keepdims = 0> (e)  c = Constant <value_float = 1e-9> ()  q = Less(m, c)"
    )
    head = "g (float[b,n] x) => (bool q)"
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]> {head} {{ {body} }}')
    specs, facts = input_specs(model), read_facts(model)
    runs = [random_feeds(specs, b, batch=b, length=n) for b, n in ((2, 16), (1, 9))]
    zero = {"x": np.zeros((1, 1), np.float32)}
    watch = ConditionWatch(model, SessionOptions())
    dims = dynamic_dims(specs, runs)
    _, missed = reach(watch, specs, [*runs, zero], dims, facts, Budget("quick"))
    assert "the true outcome of 'q'" in [str(outcome) for outcome in missed]


def test_a_length_of_one_is_no_less_of_a_size() -> None:
    body = "s = Shape <start = 1, end = 2> (x)  o = Constant <value_ints = [1]> ()  q = Equal(s, o)"
    _, found, missed = sought(f"g (float[b,n] x) => (bool[k] q) {{ {body} }}")
    assert missed == []
    assert any(item.feeds["x"].shape[1] == 1 for item in found)
