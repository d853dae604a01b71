"""Another version of the standard operator set, by ONNX's own version converter."""

from __future__ import annotations

import re

import onnx
import onnx_ir as ir
from onnx.inliner import inline_selected_functions
from onnx.version_converter import convert_version
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model import io
from onnxtool.model.operators.table import STANDARD
from onnxtool.model.proto_nodes import all_nodes

_HIDDEN = "onnxtool.unchanged"  # domain of nodes that the converter is to leave as they are
_MOST_KINDS = 20  # operators without a converter
_NEWEST_IR = {7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10}


def convert_opset(model: ir.Model, version: int) -> ir.Model:
    """Convert a model to another opset version; the same version gives the model itself.

    The converter's own result is not trusted: `optimize` compares the finished model with the source as it was.

    Raises:
        UsageError: this build of onnx does not know the version.
        UnsupportedError: an operator that the converter cannot convert, or a model too large for it.
    """
    now = model.opset_imports.get("", 0)
    if now == version:
        return model
    newest = onnx.defs.onnx_opset_version()
    if not 7 <= version <= newest:
        raise UsageError(f"opset {version}: this onnx package knows 7 to {newest}.")
    if io.weight_bytes(model) > io.INLINE_LIMIT:
        raise UnsupportedError("the version converter takes models up to 2 GB only.")
    for value in model.graph.initializers.values():
        if isinstance(value.const_value, ir.ExternalTensor):
            value.const_value = ir.tensor(value.const_value.numpy(), name=value.name)
    # The converter cannot take Constant below opset 12; initializers are the same in all.
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    proto = io.to_proto(model)
    for _ in range(_MOST_KINDS):
        try:
            converted = convert_version(proto, version)
            _show(converted)
            onnx.checker.check_model(converted)
            break
        except Exception as error:
            reason = _plain(str(error))
            kind = _culprit(proto, reason)
            other = _without_adapter(proto, kind, version) if kind else None
            if other is None:
                at = f" at {kind}" if kind else ""
                raise UnsupportedError(
                    f"from opset {now} to {version} the version converter fails{at}: {reason[:200]}"
                ) from error
            proto = other
    else:
        raise UnsupportedError(f"from opset {now} to {version}, too many operators have no converter.")
    result = io.from_proto(converted)
    result.ir_version = max(model.ir_version, _NEWEST_IR.get(version, 10))
    result.metadata_props.update(model.metadata_props)
    return result


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
