"""The table of operators against the schemas of the standard, and against what the operators give when they run."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxtool.errors import OnnxToolError
from onnxtool.model.operators import runtime, standard
from onnxtool.model.operators.cost import has_products, macs
from onnxtool.model.operators.operator import Operator
from onnxtool.model.operators.shape_inference import infer_shapes
from onnxtool.model.operators.shape_rules import RULES
from onnxtool.model.operators.table import lookup, lookup_full, named, operator_of
from onnxtool.model.operators.value_facts import static_shape
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

_OPSET = 21
_SCHEMAS = {s.name: s for s in onnx.defs.get_all_schemas() if s.domain == ""}
# Operators of which there is nothing to say: with a new version of ONNX somebody looks at what it adds.
_WITHOUT_A_ROW = {
    "AffineGrid", "ConcatFromSequence", "ImageDecoder", "MaxRoiPool", "MaxUnpool",
    "Optional", "OptionalGetElement", "OptionalHasElement", "RoiAlign", "SequenceAt", "SequenceConstruct",
    "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SplitToSequence", "StringNormalizer",
    "StringSplit", "SwiGLU",
}  # fmt: skip
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Cast": {"to": int(onnx.TensorProto.DOUBLE)},
    "BitShift": {"direction": "LEFT"},
    "RegexFullMatch": {"pattern": "1.*"},
    "Mod": {"fmod": 1},
}
_MISSING_IN_RUNTIME = {"BitCast", "Swish"}  # of opsets that the installed runtime does not have


def _open(op_type: str, inputs: list[np.ndarray], outputs: int = 1, **attributes: Any) -> OnnxRunner:
    """A node in the runtime, without its optimizations."""
    names, made = [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(outputs)]
    declared = []
    for name, array in zip(names, inputs, strict=True):
        kind = onnx.TensorProto.STRING if array.dtype.kind == "O" else onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        declared.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
    node = onnx.helper.make_node(op_type, names, made, **attributes)
    graph = onnx.helper.make_graph([node], "one", declared, [onnx.ValueInfoProto(name=n) for n in made])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", _OPSET)], ir_version=10)
    return OnnxRunner.open(model, SessionOptions(optimization="off"))


def _run(op_type: str, inputs: list[np.ndarray], outputs: int = 1, **attributes: Any) -> list[np.ndarray]:
    """What a node gives in the runtime."""
    found = _open(op_type, inputs, outputs, **attributes).run({f"x{i}": a for i, a in enumerate(inputs)})
    return [np.asarray(found[f"y{i}"]) for i in range(outputs)]


def _sample(kind: str, seed: int) -> np.ndarray:
    numbers = np.random.default_rng(seed).permutation(np.linspace(0.1, 0.9, 6))
    if kind == "tensor(string)":
        return np.array([f"{n:.3f}" for n in numbers], object)
    if kind == "tensor(bool)":
        return numbers > 0.5
    if kind.startswith(("tensor(int", "tensor(uint")):
        return (numbers * 10).astype(kind.removeprefix("tensor(").removesuffix(")"))
    return numbers.astype(np.float32)


def _samples(op_type: str) -> list[np.ndarray]:
    """Arrays of six elements, of a type that all inputs of a type variable can have."""
    schema = _SCHEMAS[op_type]
    count = max(schema.min_input, 2 if schema.max_input > 100 else 1)
    found = []
    for place in range(count):
        formal = schema.inputs[min(place, len(schema.inputs) - 1)]
        preferred = ("tensor(float)", "tensor(bool)", "tensor(uint64)", "tensor(int64)", "tensor(string)")
        found.append(_sample(next(k for k in preferred if k in formal.types), place))
    return found


def _mixes(op_type: str) -> bool:
    """Whether an element of the result depends on elements at other places: each element of the inputs is changed."""
    inputs, attributes = _samples(op_type), _ATTRIBUTES.get(op_type, {})
    if op_type == "Where":
        inputs[0] = inputs[0].astype(bool)
    (before,) = _run(op_type, inputs, **attributes)
    if before.shape != inputs[0].shape:
        return True
    for place in range(6):
        order = np.arange(6)
        order[place] = (place + 1) % 6
        (after,) = _run(op_type, [a[order] for a in inputs], **attributes)
        others = np.arange(6) != place
        if after.shape != before.shape or repr(before[others].tolist()) != repr(after[others].tolist()):  # NaN is NaN
            return True
    return False


def test_every_operator_of_the_standard_has_a_row_or_nothing_to_say() -> None:
    rows = {row.name for row in standard.ROWS}
    assert set(_SCHEMAS) - rows == _WITHOUT_A_ROW & set(_SCHEMAS)
    assert rows <= set(_SCHEMAS)
    every = [*standard.ROWS, *runtime.ROWS]
    assert len({(row.domain, row.name) for row in every}) == len(every)
    assert all(row != Operator(row.name, row.domain) for row in every)


def test_a_row_is_found_by_domain_and_name() -> None:
    assert lookup("Attention").cost == "attention"
    assert lookup("Attention", "com.microsoft").cost == "packed_attention"
    assert lookup("Relu", "ai.onnx") is lookup("Relu")
    assert lookup("Relu", "of.my.own") == Operator("Relu", "of.my.own")
    assert lookup_full("com.microsoft.QAttention").integer == "computes"
    assert operator_of(None).passes_through == "no"
    assert has_products("Conv") and has_products("com.microsoft.nchwc.Conv") and not has_products("of.my.own.Conv")


def test_what_the_schemas_say_is_what_the_rows_say() -> None:
    graph = (onnx.defs.OpSchema.AttrType.GRAPH, onnx.defs.OpSchema.AttrType.GRAPHS)
    holding = {n for n, s in _SCHEMAS.items() if any(a.type in graph for a in s.attributes.values())}
    assert named(has_bodies=True) == holding
    determinism = onnx.defs.OpSchema.NodeDeterminism.NonDeterministic
    # AffineGrid is called so because its definition has an If.
    open_ended = {n for n, s in _SCHEMAS.items() if s.node_determinism == determinism} - holding - {"AffineGrid"}
    assert named(random=True) == open_ended
    points = {n for n, s in _SCHEMAS.items() if any("zero_point" in i.name for i in (*s.inputs, *s.outputs))}
    assert named(integer="computes") | named(integer="converts") == points
    boolean = {n for n, s in _SCHEMAS.items() if s.outputs and set(s.outputs[0].types) == {"tensor(bool)"}}
    numeric = {n for n in boolean if len(_SCHEMAS[n].inputs) == 2 and "tensor(float)" in _SCHEMAS[n].inputs[1].types}
    assert named(compares=True) == numeric
    for row in standard.ROWS:
        places = {*row.sizes, *row.packed, *(row.carried or ())}
        most = _SCHEMAS[row.name].max_input
        assert row.passes_through == "no" or not row.accumulates, row.name
        assert all(place < most for place in places - {0}), row.name
        assert row.shape in RULES or not row.shape, row.name


@pytest.mark.parametrize("op_type", sorted(named(elementwise=True) - _MISSING_IN_RUNTIME))
def test_an_elementwise_operator_takes_each_result_from_its_own_place(op_type: str) -> None:
    assert not _mixes(op_type)


def test_no_other_operator_does() -> None:
    keeping = set()
    for op_type in {n for n, s in _SCHEMAS.items() if s.inputs} - named(elementwise=True):
        with suppress(OnnxToolError, StopIteration):  # six elements are no input for it
            keeping |= set() if _mixes(op_type) else {op_type}
    drawing = {"Bernoulli", "Dropout", "RandomNormalLike", "RandomUniformLike"}  # from the same seed in each session
    assert keeping == drawing | {"Optional", "OptionalGetElement", "Squeeze", "StringNormalizer", "Transpose"}


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


_DATA = np.random.default_rng(0).permutation(24).reshape(1, 4, 2, 3).astype(np.float32)
_OTHER = _DATA + 100
# Operator -> inputs beside the data, or all of them where several are data, and attributes.
_PASSING: dict[str, tuple[list[np.ndarray], dict[str, Any]]] = {
    "Identity": ([], {}),
    "Dropout": ([], {}),
    "Reshape": ([_ints(4, 6)], {}),
    "Flatten": ([], {}),
    "Squeeze": ([_ints(0)], {}),
    "Unsqueeze": ([_ints(1)], {}),
    "Transpose": ([], {"perm": [3, 1, 0, 2]}),
    "Slice": ([_ints(1), _ints(4), _ints(1)], {}),
    "Split": ([_ints(1, 3)], {"axis": 1}),
    "Gather": ([_ints(2, 0)], {"axis": 1}),
    "GatherElements": ([np.array([[[[1, 0, 1]]]])], {"axis": 2}),
    "GatherND": ([np.array([[0, 1], [0, 3]])], {}),
    "Expand": ([_ints(2, 4, 2, 3)], {}),
    "Tile": ([_ints(2, 1, 1, 2)], {}),
    "DepthToSpace": ([], {"blocksize": 2}),
    "SpaceToDepth": ([], {"blocksize": 1}),
    "ReverseSequence": ([_ints(3)], {"batch_axis": 0, "time_axis": 1}),
    "Compress": ([np.array([True, False, True, True])], {"axis": 1}),
    "TopK": ([_ints(2)], {}),
    "Unique": ([], {}),
    "MaxPool": ([], {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}),
    "GlobalMaxPool": ([], {}),
    "ReduceMax": ([], {}),
    "ReduceMin": ([], {}),
    "Clip": ([np.float32(3), np.float32(9)], {}),
    "Concat": ([_DATA, _OTHER], {"axis": 1}),
    "Max": ([_DATA, _OTHER[:, ::-1] - 100], {}),
    "Min": ([_DATA, _OTHER[:, ::-1] - 100], {}),
    "Where": ([_DATA > 5, _DATA, _OTHER], {}),
    "OneHot": ([_ints(0, 2), _ints(3), np.array([3, 7], np.float32)], {}),
}


def _outputs(op_type: str) -> int:
    return 2 if op_type in ("Split", "TopK") else 1


@pytest.mark.parametrize("op_type", sorted(_PASSING))
def test_what_passes_through_is_there_before(op_type: str) -> None:
    more, attributes = _PASSING[op_type]
    row = lookup(op_type)
    alone = len(more) < 2 or row.carried in ((0,), (0, 1, 2))
    inputs = [np.asarray(a) for a in ([_DATA, *more] if alone and op_type not in ("Concat", "Max", "Min") else more)]
    outputs = _run(op_type, inputs, outputs=_outputs(op_type), **attributes)
    outputs = outputs[: 2 if op_type == "Split" else 1]
    before = np.concatenate([a.ravel() for i, a in enumerate(inputs) if row.carries(i)])
    for output in outputs:
        assert output.size and np.isin(output, before).all()
    same = outputs[0].size == _DATA.size and np.array_equal(outputs[0].ravel(), _DATA.ravel())
    assert same == (row.passes_through == "order" or op_type == "SpaceToDepth")


def test_every_operator_that_passes_through_is_tried() -> None:
    passing = {row.name for row in standard.ROWS if row.passes_through != "no"}
    assert passing - set(_PASSING) == {"TensorScatter"}  # of an opset that the installed runtime does not have


@pytest.mark.parametrize("op_type", ["Relu", "Sigmoid", "ReduceSum", "Add", "Softmax", "CumSum"])
def test_what_does_not_pass_through_is_not_there_before(op_type: str) -> None:
    extra = {"Add": [_OTHER], "CumSum": [np.array(1)]}.get(op_type, [])
    (output,) = _run(op_type, [_DATA - 11.5, *extra])
    assert lookup(op_type).passes_through == "no"
    assert op_type == "Relu" or not np.isin(output, _DATA - 11.5).all()


@pytest.mark.parametrize("op_type", sorted(named(never_negative=True)))
def test_what_is_never_negative_is_not_where_its_input_is(op_type: str) -> None:
    (output,) = _run(op_type, [_DATA - 11.5])
    assert (output[~np.isnan(output)] >= 0).all()


@pytest.mark.parametrize("op_type", ["RandomNormalLike", "RandomUniformLike", "Bernoulli"])
def test_a_random_operator_gives_other_values_each_time(op_type: str) -> None:
    data = np.full((1, 64), 0.5, np.float32)
    runner = _open(op_type, [data])
    assert not np.array_equal(*(runner.run({"x0": data})["y0"] for _ in range(2)))


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMean", "MatMul", "CumSum"])
def test_what_accumulates_rounds_by_the_order_of_its_terms(op_type: str) -> None:
    terms = np.random.default_rng(0).normal(size=4096).astype(np.float32)
    extra = {"MatMul": [np.ones(4096, np.float32)], "CumSum": [np.array(0)]}.get(op_type, [])
    sums = {float(np.ravel(_run(op_type, [t, *extra])[0])[-1]) for t in (terms, terms[::-1], np.sort(terms))}
    assert lookup(op_type).accumulates
    assert len(sums) > 1


@pytest.mark.parametrize("op_type", ["Relu", "Add", "Softmax", "MatMul", "Concat"])
def test_what_runs_empty_does(op_type: str) -> None:
    extra = {"Add": [np.ones((1, 3))], "MatMul": [np.ones((3, 2))], "Concat": [np.ones((0, 3))]}.get(op_type, [])
    inputs = [np.ones((0, 3), np.float32), *(a.astype(np.float32) for a in extra)]
    assert lookup(op_type).runs_empty
    assert _run(op_type, inputs, **({"axis": 0} if op_type == "Concat" else {}))[0].shape[0] == 0


def _inferred(op_type: str, inputs: list[np.ndarray], outputs: int, attributes: dict[str, Any]) -> list[ir.Value]:
    """The outputs of a node of constants, with what the rules know of them."""
    tensors = [ir.tensor(a) for a in inputs]
    given = [ir.Value(name=f"x{i}", const_value=t, type=ir.TensorType(t.dtype)) for i, t in enumerate(tensors)]
    node = ir.node(op_type, given, attributes, num_outputs=outputs)
    graph = ir.Graph([], [], nodes=[node], opset_imports={"": _OPSET}, initializers=given)
    infer_shapes(ir.Model(graph, ir_version=10))
    return list(node.outputs)


@pytest.mark.parametrize("op_type", sorted(n for n in _PASSING if lookup(n).shape))
def test_the_shape_rule_gives_what_the_runtime_gives(op_type: str) -> None:
    more, attributes = _PASSING[op_type]
    whole = op_type in ("Concat", "Max", "Min", "Where")
    inputs = [np.asarray(a) for a in (more if whole else [_DATA, *more])]
    count = _outputs(op_type)
    made = _inferred(op_type, inputs, count, attributes)
    expected = [a.shape for a in _run(op_type, inputs, outputs=count, **attributes)]
    assert [static_shape(v) for v in made] == expected


_BYTES = np.arange(12, dtype=np.uint8)
_RULED: dict[str, tuple[list[np.ndarray], dict[str, Any]]] = {
    "MatMul": ([np.ones((2, 1, 4, 3), np.float32), np.ones((5, 3, 2), np.float32)], {}),
    "MatMulInteger": ([_BYTES.reshape(2, 2, 3), _BYTES.reshape(3, 4)], {}),
    "Gemm": ([np.ones((3, 4), np.float32), np.ones((2, 3), np.float32)], {"transA": 1, "transB": 1}),
    "Conv": ([np.ones((2, 4, 9, 8), np.float32), np.ones((6, 2, 3, 3), np.float32)], {"group": 2, "strides": [2, 1]}),
    "AveragePool": ([_DATA], {"kernel_shape": [2, 2]}),
    "GlobalAveragePool": ([_DATA], {}),
    "BatchNormalization": ([_DATA, *(np.ones(4, np.float32),) * 4], {}),
    "LSTM": ([np.ones((7, 2, 3), np.float32), np.ones((1, 20, 3), np.float32), np.ones((1, 20, 5), np.float32)],
             {"hidden_size": 5}),
    "ReduceSum": ([_DATA, _ints(1, -1)], {"keepdims": 0}),
    "ArgMax": ([_DATA], {"axis": 1}),
    "Shape": ([_DATA], {"start": 1}),
    "Size": ([_DATA], {}),
    "Pad": ([_DATA, _ints(0, 0, 1, 2, 0, 0, 0, 1)], {}),
    "Range": ([np.array(2), np.array(9), np.array(3)], {}),
    "ConstantOfShape": ([_ints(2, 3)], {}),
}  # fmt: skip


@pytest.mark.parametrize("op_type", sorted(_RULED))
def test_a_rule_of_shapes_gives_the_shape_and_type_that_the_runtime_gives(op_type: str) -> None:
    inputs, attributes = _RULED[op_type]
    (made,) = _inferred(op_type, inputs, 1, attributes)
    (expected,) = _run(op_type, inputs, **attributes)
    assert static_shape(made) == expected.shape
    assert op_type == "ConstantOfShape" or made.dtype == ir.DataType.from_numpy(expected.dtype)


def test_attention_of_the_runtime_makes_its_own_query_key_and_value() -> None:
    batch, length, hidden = 2, 8, 16
    inputs = [(batch, length, hidden), (hidden, 3 * hidden), (3 * hidden,)]
    packed = onnx.helper.make_node("Attention", ["x", "w", "b"], ["y"], domain="com.microsoft", num_heads=4)
    products = batch * length * hidden * 3 * hidden + 2 * batch * length * length * hidden
    assert macs(packed, inputs, [(batch, length, hidden)]) == products
    plain = onnx.helper.make_node("Attention", ["q", "k", "v"], ["y"])
    heads = [(batch, 4, length, 4)] * 3
    assert macs(plain, heads, [(batch, 4, length, 4)]) == 2 * batch * length * length * hidden
