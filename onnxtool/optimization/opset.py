"""Another version of the standard operator set, by ONNX's own version converter."""

from __future__ import annotations

import re

import onnx
import onnx_ir as ir
from onnx.version_converter import convert_version
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model import io
from onnxtool.model.ir.queries import all_nodes

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
    try:
        converted = convert_version(io.to_proto(model), version)
        onnx.checker.check_model(converted)
    except Exception as error:
        reason = _plain(str(error))
        raise UnsupportedError(
            f"from opset {now} to {version} the version converter fails{_culprit(model, reason)}: {reason[:200]}"
        ) from error
    result = io.from_proto(converted)
    result.ir_version = max(model.ir_version, _NEWEST_IR.get(version, 10))
    result.metadata_props.update(model.metadata_props)
    return result


# "/project/onnx/version_converter/BaseConverter.h:63: adapter_lookup: Assertion `false` failed: No Adapter ..."
_SOURCE = re.compile(r"\S+\.(h|cc):\d+: (\w+: )?(Assertion `[^`]*` failed: )?")


def _plain(message: str) -> str:
    """The converter's message in one line, without its source positions."""
    return _SOURCE.sub("", " ".join(message.split())).replace("$", "")


def _culprit(model: ir.Model, reason: str) -> str:
    """The operator that the converter's message speaks of, if one can be made out."""
    words = re.findall(r"\w+", reason)
    kinds = {n.op_type for n in all_nodes(model)}
    named = next((word for word in reversed(words) if word in kinds), None)
    return f" at {named}" if named else ""
