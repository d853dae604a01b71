"""What jax2onnx loses: the digits of small numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from onnxtool.conversion.patches import LibraryPatch, replaced
from onnxtool.conversion.small_numbers import AddNode, expm1, log1p

_BELOW = "0.18"


def _lower(function: Callable[[AddNode, Any], Any], context: Any, equation: Any) -> None:
    """Write a primitive of one input."""
    (source,), (result,) = equation.invars, equation.outvars
    x = context.get_value_for_var(source, name_hint=context.fresh_name("x"))
    kind = np.dtype(source.aval.dtype)

    def add(operator: str, *inputs: Any) -> Any:
        given = [
            context.bind_const_for_var(object(), np.asarray(i, kind)) if isinstance(i, float) else i for i in inputs
        ]
        value = getattr(context.builder, operator)(*given, _outputs=[context.fresh_name(operator)])
        value.shape = x.shape
        if operator not in ("Equal", "IsInf", "Or"):
            value.type = x.type
        return value

    context.bind_value_for_var(result, function(add, x))


def _precise(module: str, plugin: str, function: Callable[[AddNode, Any], Any]) -> AbstractContextManager[None]:
    kind = getattr(import_module(f"jax2onnx.plugins.jax.lax.{module}"), plugin)
    return replaced(kind, "lower", lambda _, context, equation: _lower(function, context, equation))


def _sized() -> AbstractContextManager[None]:
    """Shapes take sizes that JAX knows as formulas."""
    from onnx_ir import _core

    known = _core._maybe_convert_to_symbolic_dim

    def converted(dim: Any) -> Any:
        return _core.SymbolicDim(str(dim)) if type(dim).__name__ == "_DimExpr" else known(dim)

    return replaced(_core, "_maybe_convert_to_symbolic_dim", converted)


def _sorted_along_any() -> AbstractContextManager[None]:
    """Sorts along a dynamic axis, by as many of the smallest as it has."""
    from jax2onnx.converter.lower_dimexpr import LowerDimExpr
    from jax2onnx.plugins.jax.lax import sort

    known = sort.SortPlugin.lower

    def lower(self: Any, context: Any, equation: Any) -> Any:
        count = equation.invars[0].aval.shape[equation.params["dimension"]]
        if isinstance(count, int):
            return known(self, context, equation)
        any_size = SimpleNamespace(**{**vars(np), "integer": object, "asarray": lambda sizes, **_: sizes})
        number = replaced(sort, "_const_i64", lambda *_: LowerDimExpr(context)([count]))
        with number, replaced(sort, "np", any_size):
            return known(self, context, equation)

    return replaced(sort.SortPlugin, "lower", lower)


def _not_copied() -> AbstractContextManager[None]:
    """Formulas of sizes, whose copy fails, stay the one object that they are."""
    import copy

    from jax._src.export.shape_poly import _DimExpr

    return replaced(copy, "_deepcopy_dispatch", {**vars(copy)["_deepcopy_dispatch"], _DimExpr: lambda size, _: size})


def _half_scalars() -> AbstractContextManager[None]:
    """Numbers of half precision, which a product of matrices adds, say, stay so."""
    from jax2onnx.converter.ir_builder import IRBuilder

    known = IRBuilder.add_initializer_from_scalar

    def added(self: Any, name: str, value: Any) -> Any:
        half = getattr(value, "dtype", None) == np.float16
        with replaced(self, "enable_double_precision", half or self.enable_double_precision):  # does not narrow, then
            return known(self, name, value)

    return replaced(IRBuilder, "add_initializer_from_scalar", added)


def _rounded_down() -> AbstractContextManager[None]:
    """Quotients of sizes, by taking the remainder off first."""
    from jax2onnx.converter.lower_dimexpr import LowerDimExpr

    known = LowerDimExpr._convert_op

    def converted(self: Any, name: str, operands: list[Any]) -> Any:
        if name == "floordiv":
            rest = known(self, "mod", operands)
            whole = self.ctx.builder.Sub(operands[0], rest, _outputs=[self.ctx.fresh_name("dimexpr_whole")])
            self._set_metadata(whole)
            operands = [whole, operands[1]]
        return known(self, name, operands)

    return replaced(LowerDimExpr, "_convert_op", converted)


PATCHES = (
    LibraryPatch("jax2onnx", _BELOW, "jax2onnx 0.17 cuts off quotients of sizes where JAX rounds down", _rounded_down),
    LibraryPatch("jax2onnx", _BELOW, "jax2onnx 0.17's remainders and padding want a number for a dynamic size", _sized),
    LibraryPatch("jax2onnx", _BELOW, "jax2onnx 0.17 sorts along axes of a known size only", _sorted_along_any),
    LibraryPatch("jax2onnx", _BELOW, "jax2onnx 0.17 makes float32 of numbers in half precision", _half_scalars),
    LibraryPatch("jax2onnx", _BELOW, "jax2onnx 0.17 copies formulas of sizes, which fails", _not_copied),
    LibraryPatch(
        "jax2onnx",
        _BELOW,
        "jax2onnx 0.17's e^x - 1 has no correct digit left at 1e-7",
        partial(_precise, "expm1", "Expm1Plugin", expm1),
    ),
    LibraryPatch(
        "jax2onnx",
        _BELOW,
        "jax2onnx 0.17's log(1 + x) has no correct digit left at 1e-7",
        partial(_precise, "log1p", "Log1pPlugin", log1p),
    ),
)
