"""What stays float between integer kernels, as the runtime's own fused operators.

Integers leave normalizations, rotary embeddings, the attention itself and activations in float. Of a transformer
whose products have become three times faster they take half of the time, and the runtime fuses only some of them by
itself. Passes that take weights in are left out: those weights are integers now.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.errors import UnsupportedError
from onnxtool.optimization.pass_base import FaultyPassError
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
    return sum(one.rewrites for one in result.passes if one.name.startswith("fuse-"))
