"""`inspect`: a model's anatomy, from its protobuf. Nothing is run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
from onnx import numpy_helper

from onnxtool.errors import one_line
from onnxtool.model import io
from onnxtool.model.file import ModelFile
from onnxtool.model.header import element_type, operator_name
from onnxtool.model.io.in_memory import ModelLike, takes_models
from onnxtool.model.ir.queries import constant_array
from onnxtool.model.operators.cost import Shape, has_products, macs
from onnxtool.model.operators.reference import compute
from onnxtool.model.operators.shape_inference import infer_shapes
from onnxtool.model.operators.table import STANDARD, operator_of
from onnxtool.model.operators.value_facts import (
    elements_of,
    integers,
    remember_given,
    set_elements,
    sizes_of,
    static_shape,
)
from onnxtool.model.provenance.metadata import DIGEST_KEY, HISTORY_KEY, read_history
from onnxtool.model.randomness import is_random
from onnxtool.model.safety.tensors import declared_bytes
from onnxtool.model.shapes import ASSUMED_LENGTH, bind_inputs, infer, known_shapes, light_copy
from onnxtool.model.spec import Dim, apply_input_shapes, dtype_name, parse_input_shapes
from onnxtool.report.inspect import InspectReport, NodeInfo, OperatorUse, WeightInfo

_ROUNDS = 12  # each gets past the next layer of computed shapes
_SMALL = 1024  # elements of a constant that may be part of a shape
_QUICK = ("Constant", "ConstantOfShape", "Range")
_MOST = 20_000  # evaluations of nodes
_LONG = 32
_SHORT = 16  # the length to try where the assumed one fits no shape


@takes_models("model")
def inspect(
    model: ModelLike,
    *,
    input_shapes: Sequence[str] = (),
    nodes: bool = False,
    largest: int = 5,
) -> InspectReport:
    """Look into an .onnx file.

    Args:
        model: an .onnx file, or a model in memory.
        input_shapes: "NAME:1,3,224,224"; numbers for dynamic dims, for counting compute. Without it the first dim of
            an input is taken as 1 and others as 128.
        nodes: list all nodes.
        largest: how many of the largest initializers to list.

    Raises:
        InputError: the file is missing, no ONNX model or damaged.
        UnsafeError: external data outside the model's folder.
        UsageError: `input_shapes` do not fit the model.
    """
    file = ModelFile.of(model)
    proto, header = file.proto, file.header
    weights = sorted(_weights(proto), key=lambda w: (-w.bytes, w.name))
    shaped = apply_input_shapes(header.inputs, parse_input_shapes(input_shapes))
    report_facts = {
        "doc": proto.doc_string or proto.graph.doc_string,
        "domain": proto.domain,
        "graph_name": proto.graph.name,
    }
    given = {s.name: s.shape for s in shaped if s.shape is not None}
    warnings = [*filter(None, [file.age])]
    inlined = onnx.inliner.inline_local_functions(light_copy(proto)) if proto.functions else proto
    counted, assumed = _listed(inlined, given, ASSUMED_LENGTH, warnings)
    if _uncounted(counted) and ASSUMED_LENGTH in assumed.values():
        # A length beyond what the model takes (a short table of positions) leaves shapes that fit nothing.
        counted, assumed = min(
            (counted, assumed), _listed(inlined, given, _SHORT, []), key=lambda found: _uncounted(found[0])
        )
    listed = _listed(proto, given, ASSUMED_LENGTH, [])[0] if proto.functions else counted
    counts = [n.macs for n in counted if n.macs is not None]
    uncounted = _uncounted(counted)
    if uncounted:
        warnings.append(f"{uncounted} nodes with unknown shapes are not in the count of compute")
    return InspectReport(
        model=str(file),
        bytes=file.bytes,
        sha256=file.sha256,
        ir_version=header.ir_version,
        opsets=header.opsets,
        producer=header.producer,
        metadata={k: v for k, v in header.metadata.items() if k not in (HISTORY_KEY, DIGEST_KEY)},
        history=tuple(read_history(header.metadata)),
        functions=tuple(operator_name(f.domain, f.name) for f in proto.functions),
        inputs=tuple(s.info() for s in header.inputs),
        outputs=tuple(s.info() for s in header.outputs),
        dynamic_dims=tuple(dict.fromkeys(d for s in header.inputs for d in s.dynamic_dims)),
        assumed_dims=assumed,
        node_count=header.nodes,
        initializer_count=len(weights),
        parameters=sum(w.elements for w in weights if w.shape and not w.dtype.startswith(("int64", "bool", "string"))),
        parameter_bytes=sum(w.bytes for w in weights),
        dtypes=_bytes_by_dtype(weights),
        operators=_operators(listed, header.opsets, {w.name: w.elements for w in weights}),
        macs=sum(counts),
        flops=2 * sum(counts),
        uncounted=uncounted,
        largest=tuple(weights[:largest]),
        nodes=tuple(listed) if nodes else (),
        warnings=tuple(warnings),
        **report_facts,
    )


def _weights(model: onnx.ModelProto) -> Iterator[WeightInfo]:
    """Initializers of the main graph and of all subgraphs, and large Constant nodes."""
    for holder in _holders(model):
        graph = holder[1]
        for tensor in graph.initializer if isinstance(graph, onnx.GraphProto) else ():
            yield _weight(tensor, tensor.name)
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.name == "value" and math.prod(attribute.t.dims) > _LONG:
                    yield _weight(attribute.t, node.output[0])


def _weight(tensor: onnx.TensorProto, name: str) -> WeightInfo:
    shape = tuple(tensor.dims)
    size = declared_bytes(tensor)
    return WeightInfo(
        name=name,
        dtype=dtype_name(element_type(tensor.data_type)),
        shape=shape,
        elements=math.prod(shape),
        bytes=sum(len(s) for s in tensor.string_data) if size is None else size,
        external=tensor.data_location == onnx.TensorProto.EXTERNAL,
    )


def _bytes_by_dtype(weights: Iterable[WeightInfo]) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for weight in weights:
        totals[weight.dtype] += weight.bytes
    return dict(totals.most_common())


def _holders(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.GraphProto | onnx.FunctionProto]]:
    """(path, graph) of the main graph ("main"), its subgraphs ("main/If_3.then_branch") and the functions."""
    pending: list[tuple[str, onnx.GraphProto | onnx.FunctionProto]] = [("main", model.graph)]
    pending += [(operator_name(f.domain, f.name), f) for f in model.functions]
    while pending:
        path, graph = pending.pop(0)
        yield path, graph
        for index, node in enumerate(graph.node):
            for attribute in node.attribute:
                label = f"{path}/{node.name or f'{node.op_type}_{index}'}.{attribute.name}"
                if attribute.HasField("g"):
                    pending.append((label, attribute.g))
                pending += [(f"{label}[{i}]", g) for i, g in enumerate(attribute.graphs)]


def _listed(
    proto: onnx.ModelProto,
    given: Mapping[str, tuple[Dim, ...]],
    length: int,
    warnings: list[str],
) -> tuple[list[NodeInfo], dict[str, int]]:
    """All nodes with their shapes, and the numbers that were assumed for dims; what fails goes into `warnings`."""
    bound = light_copy(proto)
    assumed = bind_inputs(bound, given, length)
    shapes = known_shapes(bound)
    try:
        shapes = _shapes(infer(bound))
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        warnings.append(f"shape inference failed, compute is not counted: {one_line(error)}")
    return list(_nodes(proto, shapes)), assumed


def _shapes(inferred: onnx.ModelProto) -> dict[str, tuple[Dim, ...]]:
    """By ONNX's own inference and by our rules in turn: each goes on from what the other has found.

    Args:
        inferred: by ONNX; changed in place.
    """
    known: dict[str, tuple[Dim, ...]] = {}
    for _ in range(_ROUNDS):
        model = io.from_proto(inferred)
        values = [output for graph in model.graphs() for node in graph for output in node.outputs]
        for value in values:
            remember_given(value, value.shape)
        infer_shapes(model)
        if constants := _computed_constants(model):
            inferred = infer(_with_constants(inferred, constants))
            continue
        known |= known_shapes(inferred)
        found = []
        for value in values:
            sizes, name = sizes_of(value), value.name
            if sizes is None or not name or all(isinstance(d, int) for d in known.get(name, (None,))):
                continue
            known[name] = tuple(d if isinstance(d, int) else None for d in sizes)
            if value.dtype is not None and None not in known[name]:
                found.append(onnx.helper.make_tensor_value_info(name, value.dtype.value, known[name]))
        if not found:
            break
        inferred.graph.value_info.extend(found)
        inferred = infer(inferred)
    return known


def _computed_constants(model: ir.Model) -> dict[str, onnx.TensorProto]:
    """What nodes of the main graph make of small constants, by name.

    Exporters compute the target of a Reshape or Expand from sizes, and may do that in floats, which no rule follows.
    """
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
    made: dict[str, onnx.TensorProto] = {}
    for node in model.graph:
        if not _is_quick(node) or len(made) >= _MOST:
            continue
        inputs = {value.name or "": _numbers(value) for value in node.inputs if value is not None}
        given = {name: array for name, array in inputs.items() if array is not None}
        if len(given) < len(inputs) or not all(_is_small(value) for value in node.outputs if value.name):
            continue
        try:
            found = zip(
                filter(None, (v.name for v in node.outputs)), compute(ir.to_proto(node), given, opsets), strict=True
            )
            own = {name: numpy_helper.from_array(array, name) for name, array in found}
        except Exception:  # whatever a stranger's node does to the reference implementation: it stays as it is
            continue
        made |= own
        for value in node.outputs:
            value.const_value = ir.serde.deserialize_tensor(own[value.name]) if value.name else None
            set_elements(value, None)  # those of the tensor count
    return made


def _is_quick(node: ir.Node) -> bool:
    """Whether computing a node takes about as long as its operands and outputs are large."""
    row = operator_of(node)
    bounded = row.elementwise or row.moves or row.shape == "reduce" or row.name in _QUICK
    return node.domain in STANDARD and bounded and not is_random(node)


def _with_constants(model: onnx.ModelProto, made: Mapping[str, onnx.TensorProto]) -> onnx.ModelProto:
    """The model with initializers in the place of the nodes that make them, in place."""
    kept = [
        onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node if made.keys().isdisjoint(n.output)
    ]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.graph.initializer.extend(made.values())
    # ONNX's inference keeps the placeholders ("unk__0") that it wrote before, whatever it now knows.
    del model.graph.value_info[:]
    return model


def _is_small(value: ir.Value) -> bool:
    shape = static_shape(value)
    return shape is not None and math.prod(shape) <= _SMALL


def _numbers(value: ir.Value) -> np.ndarray | None:
    """The elements of a small constant, or of integers that are known as numbers."""
    if value.dtype is None or not _is_small(value):
        return None
    elements, found = elements_of(value), integers(value)
    if elements is None or found is None:
        return constant_array(value)
    return np.array(found[0] if elements.scalar else found, value.dtype.numpy())


def _uncounted(listed: Iterable[NodeInfo]) -> int:
    """How many nodes that multiply matrices have unknown shapes."""
    return sum(n.macs is None and has_products(n.operator) for n in listed)


def _nodes(model: onnx.ModelProto, shapes: Mapping[str, tuple[Dim, ...]]) -> Iterator[NodeInfo]:
    for path, graph in _holders(model):
        for index, node in enumerate(graph.node):
            yield NodeInfo(
                index=index,
                name=node.name,
                operator=operator_name(node.domain, node.op_type),
                graph=path,
                inputs=tuple(node.input),
                outputs=tuple(node.output),
                output_shapes=tuple(shapes.get(name) for name in node.output),
                attributes={a.name: _attribute(a) for a in node.attribute},
                macs=macs(node, _fixed(shapes, node.input), _fixed(shapes, node.output)),
            )


def _fixed(shapes: Mapping[str, tuple[Dim, ...]], names: Iterable[str]) -> list[Shape]:
    """Shapes with nothing but numbers; None for all others."""
    found: list[Shape] = []
    for name in names:
        shape = tuple(d for d in shapes.get(name, (None,)) if isinstance(d, int))
        found.append(shape if len(shape) == len(shapes.get(name, (None,))) else None)
    return found


def _attribute(attribute: onnx.AttributeProto) -> Any:
    """An attribute's value in plain types; tensors and graphs by a description."""
    if attribute.ref_attr_name:
        return f"@{attribute.ref_attr_name}"
    if attribute.HasField("t"):
        weight = _weight(attribute.t, attribute.t.name)
        return f"{weight.dtype}[{', '.join(map(str, weight.shape))}]"
    if attribute.HasField("g"):
        return f"graph of {len(attribute.g.node)} nodes"
    if attribute.type == onnx.AttributeProto.STRING:
        return attribute.s.decode("utf-8", "backslashreplace")
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [s.decode("utf-8", "backslashreplace") for s in attribute.strings[:_LONG]]
    if attribute.type in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.INT):
        return attribute.f if attribute.type == onnx.AttributeProto.FLOAT else attribute.i
    if attribute.type in (onnx.AttributeProto.FLOATS, onnx.AttributeProto.INTS):
        values = attribute.floats if attribute.type == onnx.AttributeProto.FLOATS else attribute.ints
        return list(values[:_LONG]) if len(values) <= _LONG else f"{len(values)} numbers"
    return onnx.AttributeProto.AttributeType.Name(attribute.type).lower()


def _operators(
    nodes: Iterable[NodeInfo], opsets: Mapping[str, int], elements: Mapping[str, int]
) -> tuple[OperatorUse, ...]:
    counts: Counter[str] = Counter()
    work: dict[str, int] = {}
    parameters: Counter[str] = Counter()
    taken: set[str] = set()
    for node in nodes:
        counts[node.operator] += 1
        if node.macs is not None:
            work[node.operator] = work.get(node.operator, 0) + node.macs
        for name in node.inputs:
            if name in elements and name not in taken:
                taken.add(name)
                parameters[node.operator] += elements[name]
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(OperatorUse(name, _since(name, opsets), n, work.get(name), parameters[name]) for name, n in ordered)


def _since(operator: str, opsets: Mapping[str, int]) -> int | None:
    """The opset in which the operator got the version that this model uses."""
    domain, _, name = operator.rpartition(".")
    try:
        return int(onnx.defs.get_schema(name, opsets.get(domain or "ai.onnx", 1), domain).since_version)
    except onnx.defs.SchemaError:
        return None
