"""Conditions that hold at single sizes, far from any number that the graph names."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxtool.equality.certificate.certify import certify
from onnxtool.equality.certificate.shapes import Shapes
from onnxtool.equality.certificate.size_decisions import deciding_sizes
from onnxtool.equality.certificate.sizes import drawn_inputs
from tests.equality.certificate.test_certify import model

NUMBERS = {
    **{f"n{k}": np.array(k) for k in (3, 5, 7, 8, 16, 50, 196, 1000, 1521)},
    **{f"row{k}": np.array([k]) for k in (0, 2, 3, 5, 16, 196, 331, 1001, 1521)},
    "axis": np.array([0]),
    "half": np.float32(0.5).reshape(()),
    "side": np.float32(20).reshape(()),
    "table": np.zeros(64, np.float32),
}
ONE = "s = Shape(x) n = Squeeze(s) "
# A condition g of the size n of a vector, or of the sides h and w of a picture, and sizes at which it holds.
CONDITIONS = {
    "an affine function": (ONE + "p = Mul(n, n3) q = Add(p, n7) g = Equal(q, n1000)", {"a": 331}),
    "a square": (ONE + "p = Mul(n, n) g = Equal(p, n1521)", {"a": 39}),
    "a row and a number": (ONE + "q = Mul(s, n) c = Equal(q, row1521) g = Squeeze(c)", {"a": 39}),
    "a root": (ONE + "v = Cast<to = 1>(n) r = Sqrt(v) q = Mul(r, half) g = Equal(q, side)", {"a": 1600}),
    "two remainders": (
        "p = Shape(x) q = Concat<axis = 0>(p, row331, p) m = Slice(q, row2, row3, axis) u = Mod(m, row16)"
        " v = Mod(m, row331) c = Equal(u, row5) d = Equal(v, row3) e = And(c, d) g = Squeeze(e)",
        {"a": next(n for n in range(9999) if n % 16 == 5 and n % 331 == 3)},
    ),
    "patches": (
        "h = Shape<end = 1>(x) w = Shape<start = 1>(x) c = Div(h, row16) d = Div(w, row16) j = Concat<axis = 0>(c, d)"
        " p = ReduceProd<keepdims = 0>(j) g = Equal(p, n196)",
        {"a": 224, "b": 224},
    ),
    "a product of sides": (
        "h = Shape<end = 1>(x) w = Shape<start = 1>(x) p = Mul(h, w) c = Equal(p, row1001) d = Less(h, w)"
        " g = And(c, d)",
        {"a": 7, "b": 143},
    ),
    "the length of a table that is cut to the size": (
        ONE + "q = Shape(x) u = Slice(table, row0, q, axis) t = Shape(u) m = Squeeze(t) g = Equal(m, n50)",
        {"a": 50},
    ),
    "the shorter of two that cut each other": (
        "w = Shape<start = 1>(x) c = Slice(x, row0, w, axis) t = Shape<end = 1>(c) m = Squeeze(t) p = Mul(m, n3)"
        " q = Add(p, n7) g = Equal(q, n1000)",
        {"a": 331, "b": 331},
    ),
    "a volume": (
        "h = Shape<end = 1>(x) w = Shape<start = 1, end = 2>(x) d = Shape<start = 2>(x) u = Mul(h, w) v = Mul(u, d)"
        " c = Equal(v, row1001) g = Squeeze(c)",
        {"a": 7, "b": 11, "c": 13},
    ),
    "the longer side": ("p = Shape(x) q = ReduceMax<keepdims = 0>(p) g = Equal(q, n1000)", {"a": 1000, "b": 2}),
    "the shorter side": ("p = Shape(x) q = ReduceMin<keepdims = 0>(p) g = Equal(q, n1000)", {"a": 1000, "b": 1000}),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_that_holds_at_single_sizes_is_found(name: str) -> None:
    text, sizes = CONDITIONS[name]
    x = f"float[{', '.join(sizes)}] x"
    a = model(f"{text} f = Cast<to = 1>(g) y = Add(x, f)", NUMBERS, x)
    b = model("y = Identity(x)", {}, x)
    usual = dict.fromkeys(sizes, 2)
    found = deciding_sizes((a, b), {"x": [*sizes]}, usual, lambda few: drawn_inputs(a, few, Shapes()))
    assert any(sizes.items() <= one.items() for one in found.sizes)
    assert not certify(a, b).ok and certify(a, a).ok


# How a graph comes to a number p of the sides of a picture, and what it is at 31 by 41.
REACHED = {
    "flattened": ("f = Reshape(x, last) p = Shape(f)", 1271),
    "joined": ("c = Concat<axis = 0>(x, x, x) f = Flatten<axis = 0>(c) p = Shape<start = 1>(f)", 3813),
    "pooled": (
        "u = Unsqueeze(x, two) v = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(u) f = Reshape(v, last)"
        " p = Shape(f)",
        300,
    ),
    "cut": ("f = Reshape(x, last) c = Slice(f, row2, last) p = Shape(c)", 1268),
    "halved": ("f = Reshape(x, last) c, d = Split<num_outputs = 2>(f) p = Shape(c)", 636),
    "a length": ("s = Shape(x) f = Cast<to = 1>(s) r = ReduceL2(f) l = Cast<to = 7>(r) p = Reshape(l, last)", 51),
    "of a table": ("s = Shape<end = 1>(x) m = Mod(s, row2) p = Gather(table, m)", 20),
    "added up": ("s = Shape(x) c = CumSum(s, none) p = Slice(c, row1, row2)", 72),
}
UNKNOWN = ("halved", "a length", "of a table", "added up")


@pytest.mark.parametrize("name", REACHED)
def test_where_it_is_not_known_at_which_sizes_something_is_decided_nothing_is_certified(name: str) -> None:
    text, found = REACHED[name]
    more = {"last": np.array([-1]), "two": np.array([0, 1]), "none": np.array(0), "row1": np.array([1])}
    more["table"] = np.array([10, 20])
    numbers = {**NUMBERS, **more, "row7": np.array([7]), "found": np.array([found + 7])}
    rest = " q = Add(p, row7) g = Equal(q, found) k = Cast<to = 1>(g) y = Add(x, k)"
    a = model(text + rest, numbers, "float[a, b] x")
    b = model("y = Identity(x)", {}, "float[a, b] x")
    assert not certify(a, b).ok and ("not known at which sizes" in certify(a, a).reason) == (name in UNKNOWN)


SOLVED = "s = Shape(x) p = Mul(s, row3) q = Add(p, row7) g = Equal(q, row1000) f = Cast<to = 1>(g) o = Add(x, f)"
# The same inside of something, and where a layer has made the size: what is decided, and what there is besides.
INSIDE = {
    "a branch": (
        "float[a] x, bool c",
        f"y = If(c) <then_branch = t () => (float[a] o) {{ {SOLVED} }},"
        " else_branch = e () => (float[a] p) { p = Identity(x) }>",
        "y = Identity(x)",
    ),
    "a loop": (
        "float[a] z",
        f"y = Loop(n3, , z) <body = b (int64 i, bool c, float[a] x) => (bool d, float[a] o)"
        f" {{ d = Identity(c) {SOLVED} }}>",
        "y = Identity(z)",
    ),
    "a convolution": (
        "float[1, 1, a] z",
        "x = Conv<strides = [2]>(z, kernel) l = Shape<start = 2>(x) p = Mul(l, row3) g = Equal(p, row1000m)"
        " f = Cast<to = 1>(g) y = Add(x, f)",
        "y = Conv<strides = [2]>(z, kernel)",
    ),
}


@pytest.mark.parametrize("name", INSIDE)
def test_a_condition_inside_of_a_node_or_behind_a_layer_is_found(name: str) -> None:
    x, *texts = INSIDE[name]
    more = {"row7": np.array([7]), "row1000": np.array([1000]), "row1000m": np.array([300])}
    numbers = {**NUMBERS, **more, "kernel": np.float32([[[1, 2, 3]]])}
    a, b = (model(text, numbers, x) for text in texts)
    assert not certify(a, b).ok and certify(a, a).ok == (name != "a loop")  # whose sizes are not known


def test_a_condition_of_a_function_is_found() -> None:
    """3 n + 7 is 1,000 at 331 alone."""
    text = """<ir_version: 10, opset_import: ["" : 20, "own" : 1]> g (float[a] x) => (float[a] y) {{ y = {} (x) }}
    <domain: "own", opset_import: ["" : 20]> f (x) => (o) {{ row3 = Constant<value = int64[1] {{3}}> ()
    row7 = Constant<value = int64[1] {{7}}> () row1000 = Constant<value = int64[1] {{1000}}> () {} }}"""
    a, b = (onnx.parser.parse_model(text.format(kind, SOLVED)) for kind in ("own.f", "Identity"))
    assert not certify(a, b).ok and certify(a, a).ok


def test_sizes_of_a_model_that_takes_multiples_alone_are_known() -> None:
    """In blocks of four; how many a Slice leaves, no rule tells."""
    text = "v = Reshape(x, blocks) t = Slice(v, one, last) s = Shape<end = 1>(t) q = Mul(s, row3) g = Equal(q, found)"
    numbers = {**NUMBERS, "blocks": np.array([-1, 4]), "one": np.array([1]), "last": np.array([2**40])}
    numbers["found"] = np.array([3 * 333])
    a = model(f"{text} k = Cast<to = 1>(g) y = Add(x, k)", numbers, "float[a] x")
    b = model(f"{text} k = Cast<to = 1>(g) y = Identity(x)", numbers, "float[a] x")
    assert certify(a, a).ok and not certify(a, b).ok  # they differ at 4 x 334


def test_a_mask_decides_for_each_place_and_not_by_sizes() -> None:
    size = "s = Shape<start = 1>(x) n = Squeeze(s) r = Range(zero, n, one)"
    text = f"{size} p = Unsqueeze(r, axis) q = Less(p, n5) y = Where(q, x, twice)"
    numbers = {**NUMBERS, "zero": np.array(0), "one": np.array(1), "twice": np.float32(2)}
    first, second = (model(text.replace("n5", k), numbers, "float[1, a] x") for k in ("n5", "n7"))
    assert certify(first, first).ok and not certify(first, second).ok


def test_each_of_many_sizes_that_decide_something_is_compared() -> None:
    """A table of a factor for each of some lengths, and the same with two factors in each other's place."""
    lengths = [100 + 73 * k for k in range(19)]
    numbers = {**{f"c{k}": np.array(n) for k, n in enumerate(lengths)}, "one": np.float32(1)}
    numbers |= {f"f{k}": np.float32(k + 2) for k in range(19)}

    def table(order: dict[int, int]) -> onnx.ModelProto:
        cases = [
            f"e{k} = Equal(n, c{k}) z{k} = Mul(x, f{order.get(k, k)}) y{k + 1} = Where(e{k}, z{k}, y{k})"
            for k in range(19)
        ]
        return model(f"{ONE} y0 = Identity(x) {' '.join(cases)} y = Identity(y19)", numbers, "float[a] x")

    assert not any(certify(table({}), table({k: k + 1, k + 1: k})).ok for k in (1, 9))


def test_conditions_that_come_together_in_more_ways_than_are_compared_are_not_certified() -> None:
    """Remainders of four numbers, 210 of their combinations at lengths up to 4,096."""
    text = [f"m{k} = Mod(n, k{k}) f{k} = Cast<to = 1>(m{k}) y{k} = Mul(x, f{k})" for k in (2, 3, 5, 7)]
    numbers = {f"k{k}": np.array(k) for k in (2, 3, 5, 7)}
    a = model(f"{ONE} {' '.join(text)} y = Sum(y2, y3, y5, y7)", numbers, "float[a] x")
    equal = [f"e{j}{k} = Equal(m{j}, k{k})" for j, k in ((5, 2), (5, 3), (7, 2), (7, 3), (7, 5), (3, 2))]
    b = model(f"{ONE} {' '.join(text)} {' '.join(equal)} y = Sum(y2, y3, y5, y7)", numbers, "float[a] x")
    assert certify(a, a).ok and "sizes decide something" in certify(b, b).reason


TWO = "h = Shape<end = 1>(x) w = Shape<start = 1>(x) p = Mul(h, w) q = Mul(p, p) "
PARTING = {  # numbers of which the second is larger, at few sizes, than the first
    "a quotient of a square": ("s = Shape(x) q = Mul(s, s) ", "float[a] x", {"a": 469}),
    "a quotient of two dims": (TWO, "float[a, b] x", {"a": 7, "b": 67}),
}


@pytest.mark.parametrize("name", PARTING)
def test_numbers_that_are_others_at_few_sizes_are_compared_there(name: str) -> None:
    made, x, sizes = PARTING[name]
    numbers = {"row1": np.array([1]), "row1009": np.array([1009])}
    first, second = (
        model(f"{made}{more} g = Div(r, row1009) f = Cast<to = 1>(g) y = Mul(x, f)", numbers, x)
        for more in ("r = Identity(q)", "r = Add(q, row1)")
    )
    usual = dict.fromkeys(sizes, 2)
    found = deciding_sizes((first, second), {"x": [*sizes]}, usual, lambda few: drawn_inputs(first, few, Shapes()))
    assert not found.unknown and len(found.sizes) < 10
    product = [np.prod([*one.values()]) for one in found.sizes]
    assert any((n * n + 1) % 1009 == 0 for n in product)
    assert certify(first, first).ok and not certify(first, second).ok


@pytest.mark.parametrize(
    "least", ["k = Div(h, row128) n = Min(h, row1000) m = Div(n, row128)", "k = Add(h, row17) m = Min(k, row1000)"]
)
def test_a_number_that_places_of_another_dim_are_held_against_is_compared_where_these_reach_it(least: str) -> None:
    """The first parts from 7 at 1,024 rows, which shows from 8 columns on; the second from 1,000, as many columns."""
    numbers = {f"row{n}": np.array([n]) for n in (17, 128, 1000)} | {"zero": np.array(0), "one": np.array(1)}
    made = "h = Shape<end = 1>(x) w = Shape<start = 1>(x) {} s = Squeeze(w) r = Range(zero, s, one) l = Less(r, {}) "
    a, b = (model(f"{made.format(least, k)} f = Cast<to = 1>(l) y = Mul(x, f)", numbers, "float[a, b] x") for k in "km")
    assert certify(a, a).ok and not certify(a, b).ok


@pytest.mark.parametrize(
    ("made", "complete"),
    [
        ("n = Shape<end = 1>(x) c = Slice(x, row0, n, row1) y = Relu(c)", True),
        ("n = Shape<end = 1>(x) m = Neg(n) z = Mul(n, row3) c = Slice(x, m, z, row1) y = Relu(c)", False),
        (
            "z = Loop(n2, , one) <body = l (int64 i, bool c, float v) => (bool d, float w) { d = Identity(c)"
            " w = Add(v, one) }> y = Mul(x, z)",
            True,
        ),
        (
            "k = ReduceMax<keepdims = 0>(x) z = Loop(n2, , k) <body = l (int64 i, bool c, float v) => (bool d, float w)"
            " { d = Identity(c) w = Add(v, v) }> y = Mul(x, z)",
            False,
        ),
        ("p = NonZero(x) q = Cast<to = 1>(p) y = ReduceSum(q)", False),
        ("s = Shape(x) c = CumSum(s, n0) f = Cast<to = 1>(c) g = ReduceSum(f) y = Mul(x, g)", False),
    ],
)
def test_all_sizes_are_known_where_no_tensor_and_no_number_is_left_out(made: str, complete: bool) -> None:
    numbers = {"row0": np.array([0]), "row1": np.array([1]), "row3": np.array([3]), "n0": np.array(0)}
    numbers |= {"n2": np.array(2), "one": np.float32(1).reshape(())}
    one = model(made, numbers, "float[a, b] x")
    usual = {"a": 2, "b": 3}
    found = deciding_sizes((one, one), {"x": ["a", "b"]}, usual, lambda few: drawn_inputs(one, few, Shapes()))
    assert (not found.unknown) is complete
    assert certify(one, one).ok is complete


def test_masks_of_a_table_are_made_alike_whether_it_is_passed_on_or_cut_first() -> None:
    """As of exporters that share weights: then nothing but the sizes at which something is decided is looked at."""
    made = "w = Shape<start = 1>(x) p = Slice({table}, row0, w) l = Less(p, n9) m = Cast<to = 1>(l) y = Mul(x, m)"
    numbers = {"row0": np.array([0]), "n9": np.array(54), "table": np.arange(64)}
    whole, shared = (
        model(nodes, numbers, "float[a, b] x")
        for nodes in (made.format(table="table"), "t = Identity(table) " + made.format(table="t"))
    )
    assert certify(shared, whole, seconds=0.01, patience=10).ok
    other = model(
        "u = Add(table, t) " + made.format(table="u"), {**numbers, "t": 9 * np.eye(64, dtype=int)[50]}, "float[a, b] x"
    )
    assert not certify(whole, other, seconds=0.01, patience=10).ok


def test_decisions_of_several_dims_are_compared_where_the_others_are_not_as_large() -> None:
    """A size of 1,009 beside a cut of the last five: not at 1,009 in each of three dims, for which time lacks."""
    nodes = "n = Shape<start = 2>(x) c = Slice(x, none, end, none) s = Sub(n, found) f = Cast<to = 1>(s) y = Mul(c, f)"
    numbers = {"none": np.array([0]), "end": np.array([-5]), "found": np.array([1009])}
    a, b = (model(nodes.replace("Sub", kind), numbers, "float[a, b, c] x") for kind in ("Sub", "Add"))
    assert certify(a, a).ok and not certify(a, b).ok


@pytest.mark.parametrize(
    ("made", "reached"),
    [
        ("n = Shape<end = 1>(x) d = Squeeze(n) h = Div(d, n3) k = Neg(h) y = Trilu(x, k)", 2),
        ("y = Trilu(x, n50)", 51),
        ("y = Trilu<upper = 0>(x, n50)", 52),
        ("z = Sub(x, x) e = EyeLike<k = -50>(z) y = Add(x, e)", 51),
    ],
)
def test_a_diagonal_is_met_at_the_sizes_that_reach_it(made: str, reached: int) -> None:
    one, same = (model(nodes, NUMBERS, "float[a, a] x") for nodes in (made, "y = Identity(x)"))
    found = deciding_sizes((one, one), {"x": ["a", "a"]}, {"a": 2}, lambda few: drawn_inputs(one, few, Shapes()))
    assert {"a": reached} in found.sizes
    assert certify(one, one).ok and not certify(one, same).ok


def test_a_diagonal_inside_of_a_branch_is_compared_at_the_sizes_that_reach_it() -> None:
    one, same = (
        model(
            "z = ReduceSum<keepdims = 0>(x) c = Greater(z, half) y = If(c) <then_branch = t () => (float[a, a] v)"
            f" {{ v = {kept} }}, else_branch = e () => (float[a, a] w) {{ w = Identity(x) }}>",
            {"half": NUMBERS["half"], "far": np.array(-800)},
            "float[a, a] x",
        )
        for kept in ("Trilu(x, far)", "Identity(x)")
    )
    assert certify(one, one).ok and not certify(one, same).ok
