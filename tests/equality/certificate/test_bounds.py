"""A guard against NaN is nothing where the numbers before it have a bound, and something everywhere else."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxtool.equality.certificate.bounds import bound_of, enter_bounds, enter_lowest
from onnxtool.equality.certificate.certify import certify
from onnxtool.equality.certificate.field import Field
from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.values import Value, exact, largest

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


def masked_attention(first: str, second: str) -> onnx.ModelProto:
    """Two layers under a mask of -inf: each begins with scores `u` and ends with the mixed values."""
    values = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
    layers = (
        "e = Gather(table, x) low = Where(mask, zero, masked) "
        f"t0 = Transpose<perm = [0, 2, 1]>(e) s0 = MatMul(e, t0) u0 = Add(s0, low) p0 = Softmax(u0) {first} "
        "f = MatMul(m0, values) "
        f"t1 = Transpose<perm = [0, 2, 1]>(f) s1 = MatMul(f, t1) u1 = Add(low, s1) p1 = Softmax(u1) {second} "
        "y = Identity(m1)"
    )
    text = (
        '<ir_version: 9, opset_import: ["" : 20]> g (int64[n, l] x, bool[n, l, l] mask) => (float[n, l, 4] y) '
        f"{{ {layers} }}"
    )
    made = onnx.parser.parse_model(text)
    held = {"table": TABLE, "values": values, "zero": np.float32(0).reshape(()), "masked": np.float32(-np.inf)}
    held["last"] = np.array([-1])  # type: ignore[assignment]
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in held.items())
    return made


def of_shares(layer: int) -> str:
    data = "e" if layer == 0 else "f"
    return f"n{layer} = IsNaN(p{layer}) q{layer} = Where(n{layer}, zero, p{layer}) m{layer} = MatMul(q{layer}, {data})"


def of_rows(layer: int, test: str = "IsInf<detect_positive = 0>", mask: str = "low") -> str:
    data = "e" if layer == 0 else "f"
    return (
        f"h{layer} = ReduceMax({mask}, last) r{layer} = {test}(h{layer}) "
        f"a{layer} = MatMul(p{layer}, {data}) m{layer} = Where(r{layer}, zero, a{layer})"
    )


def test_rows_that_a_mask_leaves_empty_are_told_by_the_mask() -> None:
    """Behind the guard of the first layer all numbers have bounds again."""
    a = masked_attention(of_shares(0), of_shares(1))
    assert certify(a, masked_attention(of_rows(0), of_rows(1)), seconds=5).verdict == "certified"
    assert certify(a, masked_attention(of_rows(0, "IsInf"), of_rows(1)), seconds=5).verdict == "certified"


@pytest.mark.parametrize(
    "other",
    [
        of_rows(1, "IsInf<detect_negative = 0>"),
        of_rows(1, "IsNaN"),
        of_rows(1, mask="s1"),
        "m1 = MatMul(p1, f)",
        of_rows(1).replace("Where(r1, zero, a1)", "Where(r1, a1, zero)"),
        of_rows(1).replace("ReduceMax", "ReduceMin"),
        of_rows(1).replace("last", "middle").replace("h1 =", "middle = Constant <value_ints = [1]> () h1 ="),
    ],
)
def test_other_tests_of_the_mask(other: str) -> None:
    a = masked_attention(of_shares(0), of_shares(1))
    assert certify(a, masked_attention(of_rows(0), other), seconds=5).verdict == "not tested"


def test_of_numbers_without_a_bound_the_mask_tells_nothing() -> None:
    a, b = masked_attention(of_shares(0), of_shares(1)), masked_attention(of_rows(0), of_rows(1))
    for model in (a, b):
        nodes = [n for n in model.graph.node if n.op_type != "Gather"]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.graph.input[0].CopyFrom(onnx.helper.make_tensor_value_info("e", onnx.TensorProto.FLOAT, ["n", "l", 4]))
    assert certify(a, b, seconds=5).verdict == "not tested"


def scored(nodes: str, end: str, held: dict[str, object], *, x: str = "4, 4", scores: str = "z") -> onnx.ModelProto:
    """Shares of each position of the others, by what nodes make of embeddings `e` of ids `x`."""
    text = (
        f'<ir_version: 9, opset_import: ["" : 20, "com.microsoft" : 1]> g (int64[{x}] x) => (float[a, b, b] y) '
        f"{{ e = Gather(table, x) {nodes} t = Transpose<perm = [0, 2, 1]>({scores}) s = MatMul({scores}, t) "
        f"p = Softmax(s) {end} }}"
    )
    made = onnx.parser.parse_model(text)
    held = {"zero": np.float32(0), **held}
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in held.items())
    return made


def normalized(steps: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A norm in single operators, multiplied until its own factors could overflow, before a guarded softmax."""
    numbers = {"eps": 1e-6, "two": 2.0, "one": 1.0, "large": 1e10, "half": 0.5, "back": -0.5}
    held: dict[str, object] = {name: np.float32(number) for name, number in numbers.items()}
    held |= {"table": TABLE * np.float32(1e9), "last": np.array([-1])}
    a, b = (scored(f"{steps} big = Mul(z, large)", end, held, x="n, l", scores="big") for end in (GUARD, PLAIN))
    return a, b


MEAN = "m = ReduceMean(q, last) a = Add(m, eps) "


@pytest.mark.parametrize(
    "steps",
    [
        "q = Pow(e, two) " + MEAN + "r = Sqrt(a) z = Div(e, r)",
        "q = Mul(e, e) " + MEAN + "r = Pow(a, half) w = Div(one, r) z = Mul(w, e)",
        "q = Mul(e, e) " + MEAN + "w = Pow(a, back) z = Mul(e, w)",
        "q = Pow(e, two) m = ReduceSum(q, last) a = Add(eps, m) r = Sqrt(a) w = Reciprocal(r) z = Mul(e, w)",
        "c = ReduceMean(e, last) d = Sub(e, c) q = Pow(d, two) " + MEAN + "r = Sqrt(a) z = Div(d, r)",
    ],
)
def test_a_norm_in_single_operators_has_a_bound(steps: str) -> None:
    assert certify(*normalized(steps), seconds=5).verdict == "certified"


@pytest.mark.parametrize(
    "steps",
    [
        "z = Identity(e)",
        "q = Pow(e, two) " + MEAN + "r = Sqrt(a) o = Neg(e) f = Add(o, one) z = Div(f, r)",  # of other numbers
        "q = Pow(e, two) m = ReduceMean(q, last) r = Sqrt(m) z = Div(e, r)",  # zero by zero
        "q = Mul(e, one) " + MEAN + "r = Sqrt(a) z = Div(e, r)",  # no square: the root of a negative number
        "q = Pow(e, two) " + MEAN + "z = Div(e, a)",
        "q = Pow(e, two) m = ReduceMean(q, last) a = Sub(m, eps) r = Sqrt(a) z = Div(e, r)",
        "q = Pow(e, two) m = ReduceMax(q, last) a = Add(m, back) r = Sqrt(a) z = Div(e, r)",
        "q = Pow(e, two) m = ReduceMean(q, last) a = Add(m, back) r = Sqrt(a) z = Div(e, r)",
    ],
)
def test_what_is_no_norm_has_none(steps: str) -> None:
    assert certify(*normalized(steps), seconds=5).verdict == "not tested"


@pytest.mark.parametrize(
    ("step", "factor", "verdict"),
    [
        ("z = com.microsoft.FusedMatMul<alpha = 2.0>(e, square)", 1e14, "certified"),
        ("z = com.microsoft.FusedMatMul<alpha = 1e9>(e, square)", 1e14, "not tested"),
        ("z = com.microsoft.FusedMatMul<transA = 1, alpha = 2.0>(e, wide)", 1e14, "certified"),
        ("z = com.microsoft.FastGelu(e, row)", 1e17, "certified"),
        ("z = com.microsoft.BiasGelu(e, row)", 1e17, "certified"),
        ("z = com.microsoft.BiasGelu(e, row)", 1e19, "not tested"),
        ("z = com.microsoft.SkipLayerNormalization(e, e, row, row)", 1e9, "certified"),
        ("z = com.microsoft.SkipLayerNormalization(e, e, row, row)", 1e19, "not tested"),
        ("v, mean, i = LayerNormalization<stash_type = 1>(e, row) z = Mul(i, row)", 1e9, "not tested"),
    ],
)
def test_bounds_of_the_runtime_s_operators(step: str, factor: float, verdict: str) -> None:
    """The scores of two large numbers overflow or do not."""
    held: dict[str, object] = {"table": TABLE * np.float32(factor), "row": TABLE[0], "square": TABLE[:4]}
    held["wide"] = np.ones((4, 4, 4), np.float32)
    found = certify(scored(step, GUARD, held), scored(step, PLAIN, held), seconds=5)
    assert found.verdict == verdict, found.reason


@pytest.mark.parametrize("step", ["z = Pow(e, tenth)", "r = RandomNormal<shape = [4, 4]>() z = Add(e, r)"])
def test_a_bound_beyond_all_floats_is_none(step: str) -> None:
    """And an operator without inputs has none: neither ends the certificate."""
    made = scored(step, GUARD, {"table": TABLE * np.float32(1e37), "tenth": np.float32(10)})
    found = certify(made, made, seconds=5)
    assert found.verdict == "certified", found.reason


RNG = np.random.default_rng(11)


def f32(*shape: int) -> np.ndarray:
    return RNG.uniform(2, 3, shape).astype(np.float32)  # of one sign, so that sums come near their bound


def entered(kind: str, inputs: list[Value], shape: tuple[int, ...] = (2, 3), **attributes: object) -> float | None:
    """The bound of an operator's output."""
    output = Value(np.zeros(shape, np.int64), np.dtype(np.float32), False)
    enter_bounds(Interpreter(onnx.ModelProto(), Field(1)), kind, inputs, dict(attributes), [output])
    return output.bound


def bounded(array: np.ndarray, bound: float | None) -> Value:
    """Of numbers nothing is known but their bound."""
    value = Value(np.zeros(array.shape, np.int64), array.dtype, False)
    value.bound = bound
    return value


@pytest.mark.parametrize(
    ("kind", "arrays", "attributes"),
    [
        ("Add", [f32(2, 3), f32(3)], {}),
        ("Sub", [f32(2, 3), -f32(3)], {}),
        ("Mul", [f32(2, 3), f32(3)], {}),
        ("Div", [f32(2, 3), np.float32([0.5, 2, 4])], {}),
        ("Pow", [f32(2, 3), np.float32(3)], {}),
        ("MatMul", [f32(2, 4), f32(4, 3)], {}),
        ("Gemm", [f32(4, 2), f32(4, 3), f32(3)], {"transA": 1, "alpha": 2.0, "beta": 3.0}),
        ("Conv", [f32(1, 2, 5), f32(3, 2, 3), f32(3)], {}),
        ("ReduceSum", [f32(2, 3, 4), np.array([2])], {}),
        ("Concat", [f32(2, 3), 9 * f32(2, 3)], {"axis": 0}),
        ("Max", [f32(2, 3), 9 * f32(3)], {}),
        ("LayerNormalization", [np.float32([[9, 0, 0, 0, 0, 0]]), 2 * f32(6), f32(6)], {}),
    ],
)
def test_no_number_is_beyond_its_bound(kind: str, arrays: list[np.ndarray], attributes: dict[str, object]) -> None:
    names = [f"i{k}" for k in range(len(arrays))]
    graph = helper.make_graph(
        [helper.make_node(kind, names, ["y"], **attributes)],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, arrays, strict=True)
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    plain = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    y = np.asarray(plain.run(None, dict(zip(names, arrays, strict=True)))[0])
    known = kind in ("Div", "Pow", "ReduceSum")  # what it does hangs on numbers
    inputs = [exact(a) if k and known else bounded(a, largest(a)) for k, a in enumerate(arrays)]
    bound = entered(kind, inputs, y.shape, **attributes)
    assert bound is not None and np.abs(y).max() <= bound * 1.0001
    assert entered(kind, [bounded(arrays[0], None), *inputs[1:]], y.shape, **attributes) is None  # it may be NaN


def test_what_has_no_bound() -> None:
    some, much = bounded(f32(2, 3), 2.0), bounded(f32(2, 3), 1e30)
    assert entered("Mul", [much, much]) is None  # beyond all floats
    assert entered("Div", [some, exact(np.float32([1, 0, 2]))]) is None
    assert entered("Div", [some, some]) is None
    assert entered("Pow", [some, exact(np.float32(-1))]) is None  # of zero
    assert entered("Pow", [some, exact(np.float32(0.5))]) is None  # of a negative number
    assert entered("Sqrt", [some]) is None
    assert entered("LayerNormalization", [much, some]) is None  # whose squares overflow


@pytest.mark.parametrize(("number", "followed"), [(-np.inf, True), (np.inf, False), (np.nan, False)])
def test_only_the_lowest_number_is_followed_from_a_mask(number: float, followed: bool) -> None:
    scores = bounded(f32(2, 3), 2.0)
    output = Value(np.zeros((2, 3), np.int64), np.dtype(np.float32), False)
    inputs = [scores, exact(np.float32([[0, number, 0]]))]
    enter_lowest(Interpreter(onnx.ModelProto(), Field(1)), "Add", inputs, {}, [output])
    assert (output.tag[:1] == ("lowest",)) is followed
    if followed:
        assert output.tag[1].tolist() == [[0, 1, 0]] * 2  # one that is lowest in either
    of_constants = Value(np.zeros((1, 3), np.int64), np.dtype(np.float32), False)
    enter_lowest(Interpreter(onnx.ModelProto(), Field(1)), "Softmax", inputs[1:], {}, [of_constants])
    assert (of_constants.nan is not None) is followed  # of +inf it is NaN too


def test_where_a_mask_is_followed_to() -> None:
    """A softmax over the last axis, and a choice by its own test for NaN; no sum beyond all floats."""
    m, shape = Interpreter(onnx.ModelProto(), Field(1)), (2, 3)

    def after(kind: str, inputs: list[Value], **attributes: object) -> Value:
        output = Value(np.zeros(shape, np.int64), np.dtype(np.float32), False)
        enter_lowest(m, kind, inputs, dict(attributes), [output])
        return output

    m._opsets[""] = 18
    masked = after("Add", [bounded(f32(2, 3), 2.0), exact(np.float32([[0, -np.inf, 0]]))])
    much = exact(np.float32([[2e38, -np.inf, 0]]))
    assert masked.tag and not after("Add", [bounded(f32(2, 3), 2e38), much]).tag
    shares = after("Softmax", [masked])
    assert shares.nan is not None and after("Softmax", [masked], axis=0).nan is None
    shares.nan = m.field.draw("rows", (2, 1))
    test = Value(np.broadcast_to(shares.nan, shape), np.dtype(bool), False)
    other = Value(m.field.draw("others", shape), np.dtype(bool), False)
    assert bound_of(after("Where", [test, bounded(f32(2, 3), 3.0), shares])) == 3.0
    assert bound_of(after("Where", [other, bounded(f32(2, 3), 3.0), shares])) is None


def test_a_norm_is_as_large_as_the_root_of_its_length() -> None:
    steps = "q = Mul(e, e) m = ReduceMean(q, last) a = Add(m, eps) r = Sqrt(a) z = Div(e, r) t = IsNaN(z)"
    made = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 20]> g (int64[n] x) => (bool[n, 4] t) {{ e = Gather(table, x) {steps} }}'
    )
    held = {"table": TABLE, "last": np.array([-1]), "eps": np.float32([1e-6])}
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in held.items())
    seen: dict[str, Value] = {}
    field = Field(1)
    feeds = {"x": Value(field.draw("x", (3,)), np.dtype(np.int64), False)}
    Interpreter(made, field, see=lambda _, name, value: seen.update({name: value})).run(feeds)
    found = bound_of(seen["z"])
    assert found is not None and 2.0 <= found < 2.1  # of 9, 0, 0 and 0


@pytest.mark.parametrize("end", ["z = Div(e, r)", "w = Reciprocal(r) z = Mul(e, w)"])
def test_a_norm_without_an_epsilon_is_still_itself(end: str) -> None:
    made = normalized(f"q = Mul(e, e) m = ReduceMean(q, last) r = Sqrt(m) {end}")[0]
    found = certify(made, made, seconds=5)
    assert found.ok, found.reason
