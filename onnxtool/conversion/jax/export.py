"""A JAX function -> ONNX, by jax2onnx."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax2onnx
from jax.extend.core import ClosedJaxpr
from jax.interpreters.partial_eval import dce_jaxpr

from onnxtool.conversion.jax.complex_steps import ComplexParts
from onnxtool.conversion.jax.evaluation import Evaluation
from onnxtool.conversion.jax.model import JaxModel
from onnxtool.conversion.jax.patches import PATCHES
from onnxtool.conversion.jax.steps import STEPS
from onnxtool.conversion.opset import export_at
from onnxtool.conversion.patches import applied, replaced
from onnxtool.conversion.quiet import quiet
from onnxtool.errors import UnsupportedError, first_line
from onnxtool.options.convert import ConvertOptions

if TYPE_CHECKING:
    import onnx_ir as ir

# What jax2onnx 0.17 writes.
NEWEST_OPSET = 23


def export(model: JaxModel, options: ConvertOptions) -> ir.Model:
    """Convert the function.

    Raises:
        UnsupportedError: a primitive that jax2onnx does not know, or a decision by a dynamic size.
    """
    return export_at(options, NEWEST_OPSET, model.notes, lambda opset: _convert(model, opset, options.verbose))


def _convert(model: JaxModel, opset: int, verbose: int) -> ir.Model:
    inputs = [jax.ShapeDtypeStruct(s.shape or (), s.dtype) for s in model.inputs]
    try:
        with quiet(verbose), _plain_trace(), applied(PATCHES):
            return jax2onnx.to_onnx(  # type: ignore[no-any-return]
                partial(_needed, model.call),
                inputs,
                return_mode="ir",
                opset=opset,
                input_names=[s.name for s in model.inputs],
                enable_double_precision=bool(jax.config.jax_enable_x64),
            )
    except Exception as error:
        raise UnsupportedError(f"jax2onnx cannot convert this function: {_reason(error)}") from error
    finally:
        jax.clear_caches()  # what was traced while jax2onnx had replaced functions of JAX must not be run as JAX's


def _needed(call: Callable[..., Any], *inputs: Any) -> list[Any]:
    """Only the steps that the outputs depend on (recurrent cells split random keys for a state that is zeros), as
    jax2onnx has them right.
    """
    traced = jax.make_jaxpr(call)(*(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs))
    pruned, used = dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars))
    found = Evaluation(STEPS)(ClosedJaxpr(pruned, traced.consts), *itertools.compress(inputs, used))
    if any(isinstance(value, ComplexParts) for value in found):
        raise TypeError("it gives complex numbers, which ONNX has not; give both parts (.real and .imag)")
    return found


@contextmanager
def _plain_trace() -> Iterator[None]:
    """The function is traced as it is, to JAX's own primitives.

    jax2onnx 0.17.1 replaces functions of JAX and Flax by its own while it traces; these take fewer forms of arguments
    (max_pool with positional ones fails), and refuse dynamic sizes that the primitives take.
    """
    from jax2onnx.converter import conversion_api
    from jax2onnx.plugins.jax.numpy import cumsum
    from jax2onnx.plugins.plugin_system import import_all_plugins

    import_all_plugins()
    jax.numpy.cumsum = cumsum._ORIGINAL_JNP_CUMSUM  # which is replaced for good: it takes no axis by position then
    with replaced(conversion_api, "_activate_plugin_worlds", nullcontext):
        yield


def _reason(error: Exception) -> str:
    if type(error).__name__ == "InconclusiveDimensionOperation" or "_DimExpr" in str(error):  # what a size is there
        return f"it decides by a dynamic size ({first_line(error)}). Give that dim a number with --input-shape."
    return f"{type(error).__name__}: {first_line(error)}"
