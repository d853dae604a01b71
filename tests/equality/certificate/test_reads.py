"""Tables of which short inputs read the first rows only: what another row holds is found, or nothing is certified."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.equality.certificate.certify import Filled, _Pair, certify
from onnxtool.equality.certificate.reads import ReadElements, unread_sizes

ROWS = 300


def table_model(
    before: str = "", changed: int | None = None, rows: int = ROWS, read: str = "Gather"
) -> onnx.ModelProto:
    """x[length, 4] + table[0 .. length - 1], the table after an operator."""
    table = np.random.default_rng(0).standard_normal((rows, 4)).astype(np.float32)
    if changed is not None:
        table[changed, 1] = np.nextafter(table[changed, 1], np.float32(9))
    if before == "Cast":
        table = table.astype(np.float16)
        if changed is not None:
            table[changed, 1] += np.float16(0.5)
    nodes = [
        helper.make_node("Shape", ["x"], ["length"], start=0, end=1),
        helper.make_node("Squeeze", ["length"], ["count"]),
        helper.make_node("Range", ["zero", "count", "one"], ["places"]),
    ]
    held = [("zero", np.array(0)), ("one", np.array(1)), ("table", table), ("first", np.array([0]))]
    source = "table"
    if before == "Mul":
        nodes.append(helper.make_node("Mul", ["table", "two"], ["scaled"]))
        held.append(("two", np.array(2, np.float32)))
        source = "scaled"
    elif before == "Add":  # of two tables
        nodes.append(helper.make_node("Add", ["table", "other"], ["scaled"]))
        held.append(("other", np.ones((rows, 4), np.float32)))
        source = "scaled"
    elif before == "Cast":
        nodes.append(helper.make_node("Cast", ["table"], ["scaled"], to=TensorProto.FLOAT))
        source = "scaled"
    elif before == "Transpose":
        nodes += [helper.make_node("Transpose", ["table"], ["t"]), helper.make_node("Transpose", ["t"], ["scaled"])]
        source = "scaled"
    if read == "Gather":
        nodes.append(helper.make_node("Gather", [source, "places"], ["rows"]))
    else:
        nodes.append(helper.make_node("Slice", [source, "first", "length"], ["rows"]))
    nodes.append(helper.make_node("Add", ["x", "rows"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["length_of_x", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["length_of_x", 4])],
        [numpy_helper.from_array(array, name) for name, array in held],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("before", ["", "Mul", "Add", "Cast", "Transpose"])
@pytest.mark.parametrize("read", ["Gather", "Slice"])
def test_a_table_is_its_own(before: str, read: str) -> None:
    a = table_model(before, read=read)
    assert certify(a, a).verdict == "certified"


@pytest.mark.parametrize("before", ["", "Mul", "Add", "Cast", "Transpose"])
@pytest.mark.parametrize("read", ["Gather", "Slice"])
@pytest.mark.parametrize("row", [0, 150, ROWS - 1])
def test_a_row_that_short_inputs_do_not_read(before: str, read: str, row: int) -> None:
    assert certify(table_model(before, read=read), table_model(before, row, read=read)).verdict == "not tested"


def test_a_table_that_was_cut() -> None:
    report = certify(table_model(), table_model(rows=200))
    assert report.verdict == "not tested"


def test_a_row_that_no_size_reads() -> None:
    """Inputs of one size alone."""
    a, b = table_model(), table_model(changed=250)
    for made in (a, b):
        for info in (*made.graph.input, *made.graph.output):
            info.type.tensor_type.shape.dim[0].dim_value = 9
    assert certify(a, a).verdict == "certified"
    report = certify(a, b)
    assert report.verdict == "not tested"
    assert "'table' is none of A's" in report.reason


def test_elements_that_are_read() -> None:
    model = table_model("Mul")
    read = ReadElements(model, model, ["table"]).at({"length_of_x": 7})
    assert read is not None
    assert read["table"].reshape(ROWS, 4).all(1).sum() == 7
    assert ReadElements(model, model, ["table"]).at({"length_of_x": ROWS + 1}) is None


@pytest.mark.parametrize("operator", ["CumSum", "Einsum", "Einsum of two", "Xor"])
def test_elements_that_are_read_by_sums_over_them(operator: str) -> None:
    model = table_model()
    last = {
        "CumSum": helper.make_node("CumSum", ["rows", "zero"], ["sums"]),
        "Einsum": helper.make_node("Einsum", ["rows"], ["sums"], equation="ij->ij"),
        "Einsum of two": helper.make_node("Einsum", ["rows", "x"], ["sums"], equation="ij,ij->ij"),
        "Xor": helper.make_node("Xor", ["bits", "bits"], ["sums"]),
    }[operator]
    made = [helper.make_node("Cast", ["rows"], ["bits"], to=TensorProto.BOOL), last]
    kind = TensorProto.BOOL if operator == "Xor" else TensorProto.FLOAT
    model.graph.node.extend(made)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("sums", kind, ["length_of_x", 4]))
    read = ReadElements(model, model, ["table"]).at({"length_of_x": 70})
    assert read is not None
    rows = read["table"].reshape(ROWS, 4).all(1)
    assert rows[:70].all() and not rows[70:].any()


def test_time_that_is_up_certifies_nothing() -> None:
    a, b = table_model(), table_model(changed=250)
    sizes, unread = unread_sizes(a, b, [{"length_of_x": 4}], deadline=0.0)
    assert not sizes
    assert unread == "table"


def resized(scale: float) -> onnx.ModelProto:
    """A float constant that decides a shape, in a list of which one is taken."""
    nodes = [
        helper.make_node("Gather", ["scales", "first"], ["own"]),
        helper.make_node("Resize", ["x", "", "own"], ["y"], mode="nearest"),
    ]
    held = {"scales": np.array([1, scale, 1], np.float32), "first": np.array([0, 1])}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", None])],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_constant_that_decides_a_shape_is_read() -> None:
    model = resized(2)
    read = ReadElements(model, model, ["scales", "first"]).at({"n": 3})
    assert read is not None
    assert read["scales"].all()
    assert read["first"].all()
    assert certify(model, resized(3)).verdict == "not tested"


def buckets(changed: bool) -> onnx.ModelProto:
    """A table of whole numbers, cut to the length, that says which row of another table is added."""
    places = np.arange(ROWS) % 7
    if changed:
        places[ROWS - 5] = 0
    nodes = [
        helper.make_node("Shape", ["x"], ["length"], start=0, end=1),
        helper.make_node("Slice", ["places", "first", "length"], ["own"]),
        helper.make_node("Gather", ["table", "own"], ["rows"]),
        helper.make_node("Add", ["x", "rows"], ["y"]),
    ]
    table = np.random.default_rng(1).standard_normal((7, 4)).astype(np.float32)
    held = {"places": places, "first": np.array([0]), "table": table}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_whole_numbers_that_short_inputs_do_not_read() -> None:
    assert certify(buckets(False), buckets(False)).verdict == "certified"
    assert certify(buckets(False), buckets(True)).verdict == "not tested"


def windows(weight: float, behind: str) -> onnx.ModelProto:
    """A large window of a picture of any size, times a number in front of it."""
    text = f"""<ir_version: 10, opset_import: ["" : 20]> g (float[n, 1, h, w] x) => (float y)
    <float w = {{{weight}}}> {{ h = Relu(x) s = Mul(h, w) {behind} y = GlobalAveragePool(p) }}"""
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize(
    "behind",
    [
        "p = MaxPool<kernel_shape = [40, 40]>(s)",
        "p = AveragePool<kernel_shape = [40, 3], strides = [40, 3]>(s)",
        "i = Constant<value_ints = [2]>() f = Constant<value_ints = [30]>() "
        "e = Constant<value_ints = [9223372036854775807]>() p = Slice(s, f, e, i)",
    ],
)
def test_sizes_at_which_nothing_is_computed_tell_nothing(behind: str) -> None:
    assert certify(windows(2.0, behind), windows(2.0, behind), seconds=15).verdict == "certified"
    assert certify(windows(2.0, behind), windows(2.5, behind), seconds=5).verdict == "not tested"


def test_what_has_no_element_at_any_size_is_named() -> None:
    behind = "l = Constant<value_ints = [0]>() q = Slice(s, l, l, l) p = Concat<axis = 0>(s, q)"
    found = certify(windows(2.0, behind), windows(2.0, behind), seconds=15)
    assert found.verdict == "not tested"
    assert "Slice 'q' has no element" in found.reason


def edges(node: str, weight: np.ndarray) -> onnx.ModelProto:
    """A weight of which short inputs reach the middle, or the first rows, alone."""
    text = f"""<ir_version: 10, opset_import: ["" : 20]> g (float[n, 1, t] x) => (float y)
    <int64[6] pads = {{0, 0, 0, 0, 0, 40}}, int64[1] o = {{0}}, int64[1] e = {{40}}, int64[1] a = {{2}}> {{ {node} }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


@pytest.mark.parametrize(
    ("node", "shape", "place"),
    [
        ("y = Conv<pads = [30, 30]>(x, w)", (1, 1, 61), (0, 0, 2)),
        ("p = Pad(x, pads) s = Slice(p, o, e, a) y = MatMul(s, w)", (40, 3), (38, 1)),
    ],
)
def test_weights_that_short_inputs_meet_with_zeros_alone(
    node: str, shape: tuple[int, ...], place: tuple[int, ...]
) -> None:
    weight = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    other = weight.copy()
    other[place] = np.nextafter(other[place], np.float32(9))
    short = [{"x": np.zeros((1, 1, 2), np.float32)}]
    assert certify(edges(node, weight), edges(node, weight), short, seconds=5).verdict == "certified"
    assert certify(edges(node, weight), edges(node, other), short, seconds=5, most=2).verdict == "not tested"


def padded_window(part: int) -> onnx.ModelProto:
    """A recording behind so many zeros that most of its window is empty, of which two parts are added up."""
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (float[n] x) => (float y)
        <int64[2] pads = {{0, 1020}}, int64[1] zero = {{0}}, int64[1] some = {{512}}, int64[1] more = {{128}},
         int64[1] length = {{1024}}, int64[1] part = {{{part}}}> {{
            p = Pad(x, pads) s = Slice(p, zero, length) e = Exp(s) o = Exp(z) d = Sub(e, o)
            f = Slice(d, zero, some) end = Add(part, more) h = Slice(d, part, end)
            i = ReduceSum<keepdims = 0>(f) j = ReduceSum<keepdims = 0>(h) y = Add(i, j) }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.array([0], np.float32), "z"))
    return model


def test_zeros_that_pad_short_inputs_hide_no_part_of_a_model() -> None:
    assert certify(padded_window(640), padded_window(640)).verdict == "certified"
    assert certify(padded_window(640), padded_window(768)).verdict == "not tested"


def test_without_time_for_larger_inputs_nothing_is_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Pair, "affordable", lambda _, sizes, __: max(sizes.values()) <= 3)
    short, weights = [{"x": np.zeros((1, 1, 2), np.float32)}], [np.ones((1, 1, 61), np.float32) for _ in range(2)]
    weights[1][0, 0, 2] = 2
    found = certify(*(edges("y = Conv<pads = [30, 30]>(x, w)", w) for w in weights), short)
    assert not found.ok and "meet padding alone" in found.reason
    monkeypatch.setattr(_Pair, "affordable", lambda _, sizes, __: sizes["n"] < 152)  # from there on the Slice cuts
    found = certify(padded_window(640), padded_window(640))
    assert not found.ok and "meet zeros alone" in found.reason


def test_places_that_held_zeros_alone_are_counted_where_a_dim_stays_as_long() -> None:
    filled = Filled()
    filled.add("t", np.array([[1, 0, 0], [2, 0, 0]]))
    assert filled.zeros() == 2
    assert filled.is_padded()
    filled.add("t", np.array([[0, 3, 0]]))  # another batch
    assert filled.zeros() == 1
    assert not filled.is_padded()
    filled.add("t", np.array([[0, 3, 0, 0]]))
    assert filled.zeros() == 0


def test_a_negative_dim_is_not_decided() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert certify(model, model).verdict == "not tested"
