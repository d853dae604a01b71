"""Another version of the standard operator set, by ONNX's own version converter."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper
from onnx.inliner import inline_local_functions, inline_selected_functions
from onnx.version_converter import convert_version
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model import io
from onnxtool.model.operators.table import STANDARD
from onnxtool.model.proto_nodes import all_nodes, inside_out
from onnxtool.optimization.normalize import lift_format
from onnxtool.optimization.type_inference import light_proto

_HIDDEN = "onnxtool.unchanged"  # domain of nodes that the converter is to leave as they are
_LARGE = 1 << 16  # bytes; no operator's meaning depends on the numbers in larger weights
_MOST_KINDS = 20  # operators without a converter
_NEWEST_IR = {7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10}


def convert_opset(model: ir.Model, version: int) -> ir.Model:
    """Convert a model to another opset version; the same version gives the model itself.

    The converter's own result is not trusted: `optimize` compares the finished model with the source as it was.

    Raises:
        UsageError: this build of onnx does not know the version.
        UnsupportedError: an operator that the converter cannot convert.
    """
    now = model.opset_imports.get("", 0)
    if now == version:
        return model
    newest = onnx.defs.onnx_opset_version()
    if not 7 <= version <= newest:
        raise UsageError(f"opset {version}: this onnx package knows 7 to {newest}.")
    lift_format(model)
    for value in model.graph.initializers.values():
        if isinstance(value.const_value, ir.ExternalTensor) and value.const_value.nbytes <= _LARGE:
            value.const_value = ir.tensor(value.const_value.numpy(), name=value.name)
    # The converter takes models up to 2 GB, and copies them: large weights wait outside, as inputs.
    names = list(model.graph.initializers)
    proto, _ = light_proto(model, _LARGE)
    if proto.functions:  # which the converter drops
        proto = inline_local_functions(proto, convert_version=True)
    light = io.from_proto(proto)
    # The converter cannot take Constant below opset 12; initializers are the same in all.
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(light)
    proto = io.to_proto(light)
    given = proto
    _write_changed(proto, now, version)
    for _ in range(_MOST_KINDS):
        try:
            converted = convert_version(proto, version)
            _show(converted)
            onnx.checker.check_model(converted)
            break
        except Exception as error:
            reason = _plain(str(error))
            kind = _culprit(proto, reason)
            other = _half_way(proto, reason, version) or (_without_adapter(proto, kind, version) if kind else None)
            if other is None:
                at = f" at {kind}" if kind else ""
                raise UnsupportedError(
                    f"from opset {now} to {version} the version converter fails{at}: {reason[:200]}"
                ) from error
            proto = other
    else:
        raise UnsupportedError(f"from opset {now} to {version}, too many operators have no converter.")
    _carry_over(given.graph, converted.graph)
    result = io.from_proto(converted)
    result.ir_version = max(model.ir_version, _NEWEST_IR.get(version, 10))
    result.metadata_props.update(model.metadata_props)
    _take_weights_back(result, model, names)
    return result


def _take_weights_back(light: ir.Model, model: ir.Model, names: list[str]) -> None:
    """The large weights, which were inputs of the copy, without another copy of their bytes; all in the old order."""
    given = {v.name for v in model.graph.inputs}
    slots = {v.name: v for v in light.graph.inputs}
    for name in dict.fromkeys([*names, *light.graph.initializers]):
        value = light.graph.initializers.pop(name, None)
        if value is None and (value := slots.get(name)) is not None:
            value.const_value = model.graph.initializers[name].const_value
            if name not in given:
                light.graph.inputs.remove(value)
        if value is not None:
            light.graph.register_initializer(value)


# "/project/onnx/version_converter/BaseConverter.h:63: adapter_lookup: Assertion `false` failed: No Adapter ..."
_SOURCE = re.compile(r"\S+\.(h|cc):\d+: (\w+: )?(Assertion `[^`]*` failed: )?")


def lift_opset(model: ir.Model, least: int) -> ir.Model:
    """A model at this version or a newer one; errors as of `convert_opset`."""
    return model if model.opset_imports.get("", 0) >= least else convert_opset(model, least)


def _plain(message: str) -> str:
    """The converter's message in one line, without its source positions."""
    return _SOURCE.sub("", " ".join(message.split())).replace("$", "")


def _culprit(proto: onnx.ModelProto, reason: str) -> str:
    """The operator that the converter's message speaks of; "" where none can be made out."""
    words = re.findall(r"\w+", reason)
    kinds = {n.op_type for n in all_nodes(proto.graph.node)}
    return next((word for word in reversed(words) if word in kinds), "")


def _half_way(proto: onnx.ModelProto, reason: str, version: int) -> onnx.ModelProto | None:
    """At the version that the converter comes down to before it has no way on; None where it was there already.

    In that form an operator may be one that older versions have too: the axes of a reduction are attributes again.
    """
    found = re.search(r"From Version (\d+)", reason)
    now = next(o.version for o in proto.opset_import if o.domain in STANDARD)
    if found is None or not version < int(found[1]) < now:
        return None
    try:
        return convert_version(proto, int(found[1]))
    except Exception:
        return None


def _carry_over(before: onnx.GraphProto, after: onnx.GraphProto) -> None:
    """Give a graph the metadata, descriptions and quantization annotations that the converter has dropped."""
    after.metadata_props.extend(before.metadata_props)
    made = {tuple(n.output): n for n in all_nodes(before.node)}
    for node in all_nodes(after.node):
        if (same := made.get(tuple(node.output))) is not None and same.op_type == node.op_type:
            node.metadata_props.extend(same.metadata_props)
    described = {v.name: v for v in (*before.input, *before.output)}
    for value in (*after.input, *after.output):
        if (old := described.get(value.name)) is not None:
            value.metadata_props.extend(old.metadata_props)
    docs = {w.name: w.doc_string for w in before.initializer}
    for weight in after.initializer:
        weight.doc_string = docs.get(weight.name, "")
    names = {n for node in after.node for n in node.output} | {v.name for v in (*after.input, *after.initializer)}
    after.quantization_annotation.extend(
        note
        for note in before.quantization_annotation
        if names.issuperset([note.tensor_name, *(p.value for p in note.quant_parameter_tensor_names)])
    )


def _without_adapter(proto: onnx.ModelProto, kind: str, version: int) -> onnx.ModelProto | None:
    """A way round an operator that the converter has no way for; None where there is none.

    Where every node of the kind has a form that the older version has too, the converter does not get to see them. Else
    they are replaced by what ONNX defines them as.
    """
    nodes = [n for n in all_nodes(proto.graph.node) if n.op_type == kind and n.domain in STANDARD]
    if nodes and all(_is_known(n, version) for n in nodes):
        for node in nodes:
            node.domain = _HIDDEN
        if all(o.domain != _HIDDEN for o in proto.opset_import):
            proto.opset_import.add(domain=_HIDDEN, version=1)
        return proto
    try:
        made = inline_selected_functions(proto, [("", kind)], exclude=False, inline_schema_functions=True)
    except Exception:
        return None
    return made if nodes and not any(n.op_type == kind for n in all_nodes(made.graph.node)) else None


def _write_changed(proto: onnx.ModelProto, now: int, version: int) -> None:
    """Nodes whose meaning the converter of onnx 1.22 changes, in their later form, which it does not get to see.

    From version 11 on, Resize has pixels at their centres unless it says otherwise; Upsample, and Resize before, have
    them at their corners. From 13 on, Hardmax is along one axis; before, along it and all behind it. From 21 on, a
    GroupNormalization has a scale for each channel; before, for each group.
    """
    for graph in inside_out(proto):
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            change = _CHANGED.get(node.op_type) if node.domain in STANDARD else None
            nodes += change[1](node, proto.graph) if change and now < change[0] <= version else [node]
        del graph.node[:]
        graph.node.extend(nodes)
    if any(n.domain == _HIDDEN for n in all_nodes(proto.graph.node)):
        proto.opset_import.add(domain=_HIDDEN, version=1)


def _flat_hardmax(node: onnx.NodeProto, _: onnx.GraphProto) -> list[onnx.NodeProto]:
    x, y = node.input[0], node.output[0]
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    return [
        helper.make_node("Shape", [x], [f"{y}_shape"]),
        helper.make_node("Flatten", [x], [f"{y}_flat"], axis=axis),
        helper.make_node("Hardmax", [f"{y}_flat"], [f"{y}_chosen"], domain=_HIDDEN, axis=-1),
        helper.make_node("Reshape", [f"{y}_chosen", f"{y}_shape"], [y], node.name),
    ]


def _scaled_by_channel(node: onnx.NodeProto, main: onnx.GraphProto) -> list[onnx.NodeProto]:
    x, *scales = node.input
    y = node.output[0]
    groups = next(a.i for a in node.attribute if a.name == "num_groups")
    table, one, flat = f"{y}_table", f"{y}_one", f"{y}_flat"
    for name, numbers in ((table, [1, groups]), (one, [1]), (flat, [-1])):
        main.initializer.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
    nodes = [
        helper.make_node("Shape", [x], [f"{y}_channels"], start=1, end=2),
        helper.make_node("Concat", [one, f"{y}_channels"], [f"{y}_row"], axis=0),
        helper.make_node("Div", [f"{y}_row", table], [f"{y}_each"]),  # [1, channels of a group]
    ]
    for place, scale in enumerate(scales):
        names = [f"{y}_{place}_{step}" for step in ("column", "matrix", "scale")]
        nodes += [
            helper.make_node("Unsqueeze", [scale, one], names[:1]),
            helper.make_node("Expand", [names[0], f"{y}_each"], names[1:2]),
            helper.make_node("Reshape", [names[1], flat], names[2:]),
        ]
    normal = onnx.NodeProto()
    normal.CopyFrom(node)
    normal.domain = _HIDDEN
    normal.input[1:] = [f"{y}_{place}_scale" for place, _ in enumerate(scales)]
    return [*nodes, normal]


def _enlarged(node: onnx.NodeProto, main: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Upsample, or Resize of version 10, as Resize of version 11."""
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    y = node.output[0]
    scales = node.input[1] if len(node.input) > 1 else f"{y}_scales"
    found = {f"{y}_roi": np.zeros(0, np.float32)}
    if len(node.input) < 2:
        found[scales] = np.asarray(given["scales"], np.float32)
    main.initializer.extend(numpy_helper.from_array(array, name) for name, array in found.items())
    mode = given.get("mode", b"nearest").decode()
    options = {"nearest_mode": "floor"} if mode == "nearest" else {}
    made = helper.make_node(
        "Resize", [node.input[0], f"{y}_roi", scales], [y], node.name, domain=_HIDDEN, mode=mode,
        coordinate_transformation_mode="asymmetric", **options,
    )  # fmt: skip
    return [made]


# The version that changes an operator's meaning, and what writes a node of before as one of it.
_CHANGED = {
    "Upsample": (11, _enlarged),
    "Resize": (11, _enlarged),
    "Hardmax": (13, _flat_hardmax),
    "GroupNormalization": (21, _scaled_by_channel),
}


def _is_known(node: onnx.NodeProto, version: int) -> bool:
    """Whether an older operator set has a node in this form, and all that is in its bodies."""
    try:
        schema = onnx.defs.get_schema(node.op_type, version, "")
    except onnx.defs.SchemaError:
        return False
    named = all(a.name in schema.attributes for a in node.attribute)
    if not named or not schema.min_input <= len(node.input) <= schema.max_input:
        return False
    return all(_is_known(n, version) for n in all_nodes([node]) if n is not node)


def _show(proto: onnx.ModelProto) -> None:
    """Put back the nodes that the converter did not get to see."""
    for node in all_nodes(proto.graph.node):
        if node.domain == _HIDDEN:
            node.domain = ""
    kept = [o for o in proto.opset_import if o.domain != _HIDDEN]
    del proto.opset_import[:]
    proto.opset_import.extend(kept)
