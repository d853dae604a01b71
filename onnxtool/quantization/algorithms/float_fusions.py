"""What stays float between integer kernels, as the runtime's own fused operators.

Integers leave normalizations, rotary embeddings, the attention itself and activations in float. Of a transformer
whose products have become three times faster they take half of the time, and the runtime fuses only some of them by
itself. What it fuses is not always faster: onnxruntime 1.31 may take four times as long for SkipLayerNormalization as
for the sum and the normalization it is made of (48 rows of 384, AMD EPYC). Passes that take weights in are left out:
those weights are integers now.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.errors import UnsupportedError
from onnxtool.model.ir.editing import remove_unused
from onnxtool.model.ir.queries import is_op, producer
from onnxtool.optimization.pass_base import FaultyPassError
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.fusion.activations import gelu_of
from onnxtool.optimization.pipeline import optimize_model
from onnxtool.quantization.recipe import Fusions

_ATTENTION = (
    "eliminate-dead-code",
    "split-stacked-heads",
    "fuse-rotary-embedding",
    "fuse-attention",
    "fuse-quick-gelu",
)
_PASSES: dict[Fusions, tuple[str, ...]] = {
    "attention": _ATTENTION,
    "all": (*_ATTENTION, "fuse-skip-layernorm", "fuse-skip-rmsnorm"),
}
FUSIONS = tuple(_PASSES)
MICROSOFT = "com.microsoft"


def fuse_gelus(model: ir.Model) -> int:
    """Gelu in parts behind integers becomes one operator, in place; how many.

    In a float model the runtime does so by itself. Behind a DequantizeLinear it does not: it makes one of these for
    each node that reads the result, so that the parts no longer read the same tensor (onnxruntime 1.31).
    """
    context, count = PassContext(model), 0
    for node in context.nodes(model, "Mul"):
        found = gelu_of(node, context) if node.graph is not None else None
        if found is None or found[0].dtype != ir.DataType.FLOAT or producer(found[0], "DequantizeLinear") is None:
            continue
        context.replace_op(node, "FastGelu" if found[1] == "tanh" else "Gelu", [found[0]], (), MICROSOFT)
        count += 1
    if count:
        model.opset_imports.setdefault(MICROSOFT, 1)
        remove_unused(model)
    return count


def fuse_floats(model: ir.Model, fusions: Fusions) -> int:
    """Fuse float operators of a model, in place; the number of fusions.

    Raises:
        UnsupportedError: a fusion fails on this model.
    """
    if fusions not in _PASSES:
        return 0
    try:
        result = optimize_model(model, "all", exact=False, only=_PASSES[fusions])
    except FaultyPassError as error:
        raise UnsupportedError(f"--fuse {fusions} fails on this model: {error}") from error
    apart = _keep_sums_apart(model) if fusions == "attention" else 0
    return apart + sum(one.rewrites for one in result.passes if one.name.startswith("fuse-"))


def _keep_sums_apart(model: ir.Model) -> int:
    """Write the sums that are normalized as Sum, which gives the same, in place; how many.

    The runtime makes SkipLayerNormalization of an Add and its LayerNormalization, and knows no such rule for Sum.
    """
    normalizations = [node for node in model.graph.all_nodes() if is_op(node, "LayerNormalization")]
    added = [add for node in normalizations if (add := producer(node.inputs[0], "Add")) is not None]
    for add in added:
        add.op_type = "Sum"
    return len(added)
