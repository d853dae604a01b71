"""A traced JAX function evaluated in float64: the same steps on wider numbers, whatever types its code names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

_WIDER = {np.dtype("float32"): np.dtype("float64"), np.dtype("complex64"): np.dtype("complex128")}
# Primitives that only call what they hold.
_CALLS = ("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat2", "custom_jvp_call", "custom_vjp_call")


def evaluate_in_float64(traced: ClosedJaxpr, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Evaluate a trace, with float64 in place of float32; integers and half precision stay what they are.

    Args:
        traced: of the function, for the shapes of `arrays`.
        arrays: the inputs.

    Returns:
        Its outputs, of float64 where the trace has float32.

    Raises:
        TypeError, ValueError: a step insists on float32 (it reads the bits of a number, say).
    """
    with jax.enable_x64(True):
        found = jax.jit(partial(_evaluate, traced))(*map(_widened, arrays))
        return [np.asarray(value) for value in found]


def _evaluate(traced: ClosedJaxpr | Jaxpr, *inputs: Any) -> list[Any]:
    inner: Jaxpr = traced.jaxpr if isinstance(traced, ClosedJaxpr) else traced
    known = dict(zip(inner.constvars, map(_widened, getattr(traced, "consts", ())), strict=True))
    known.update(zip(inner.invars, inputs, strict=True))

    def value(variable: Any) -> Any:
        if isinstance(variable, Literal):
            return np.asarray(variable.val, _wider(variable.aval.dtype))
        return known[variable]

    for equation in inner.eqns:
        results = _step(equation, [value(v) for v in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
    return [value(v) for v in inner.outvars]


def _step(equation: Any, inputs: list[Any]) -> Sequence[Any]:
    name, params = equation.primitive.name, equation.params
    if name in _CALLS:
        return _evaluate(params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"], *inputs)
    if name == "cond":
        return jax.lax.switch(inputs[0], [partial(_evaluate, branch) for branch in params["branches"]], *inputs[1:])  # type: ignore[no-any-return]
    if name == "scan":
        return _scan(params, inputs)
    if name == "while":
        tests, steps = params["cond_nconsts"], params["body_nconsts"]
        of_test, of_body, start = inputs[:tests], inputs[tests : tests + steps], inputs[tests + steps :]
        return jax.lax.while_loop(  # type: ignore[no-any-return]
            lambda state: _evaluate(params["cond_jaxpr"], *of_test, *state)[0],
            lambda state: _evaluate(params["body_jaxpr"], *of_body, *state),
            start,
        )
    functions, rest = equation.primitive.get_bind_params(params)
    result = equation.primitive.bind(*functions, *inputs, **{key: _wider_option(v) for key, v in rest.items()})
    return result if equation.primitive.multiple_results else [result]


def _scan(params: dict[str, Any], inputs: list[Any]) -> Sequence[Any]:
    fixed, carried = params["num_consts"], params["num_carry"]

    def body(state: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        found = _evaluate(params["jaxpr"], *inputs[:fixed], *state, *row)
        return found[:carried], found[carried:]

    start, rows = inputs[fixed : fixed + carried], inputs[fixed + carried :]
    last, stacked = jax.lax.scan(body, start, rows, length=params["length"], reverse=params["reverse"])
    return [*last, *stacked]


def _wider(dtype: Any) -> Any:
    return _WIDER.get(dtype, dtype)


def _widened(array: Any) -> Any:
    return array.astype(_wider(array.dtype)) if array.dtype in _WIDER else array


def _wider_option(option: Any) -> Any:
    """A dtype among the options of a step."""
    return _wider(np.dtype(option)) if isinstance(option, np.dtype) or option is np.float32 else option
