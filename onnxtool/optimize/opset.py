"""Another version of the standard operator set, by ONNX's own version converter."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx.version_converter import convert_version

from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model import io
from onnxtool.model.graph import all_nodes

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
    try:
        converted = convert_version(io.to_proto(model), version)
        onnx.checker.check_model(converted)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise UnsupportedError(
            f"from opset {now} to {version} the version converter fails{_culprit(model, reason)}: {reason[:200]}"
        ) from error
    result = io.from_proto(converted)
    result.ir_version = max(model.ir_version, _NEWEST_IR.get(version, 10))
    result.metadata_props.update(model.metadata_props)
    return result


def _culprit(model: ir.Model, reason: str) -> str:
    """The operator that the converter's message speaks of, if one can be made out."""
    kinds = sorted({n.op_type for n in all_nodes(model)}, key=len, reverse=True)
    named = next((k for k in kinds if k in reason), None)
    return f" at {named}" if named else ""
