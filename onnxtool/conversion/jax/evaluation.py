"""Evaluates the trace of a JAX function step by step, with another way to compute some of its steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from onnxtool.conversion.jax.complex_steps import ComplexParts, complex_step

# Primitives that only call what they hold.
_CALLS = ("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat2", "custom_jvp_call", "custom_vjp_call")
# A step: its equation and inputs -> its result.
Step = Callable[..., Any]


# Elements of the largest array that is computed once, and not in every run.
_LARGEST = 1 << 20


def _is_constant(equation: Any, inputs: Sequence[Any]) -> bool:
    """Whether a step gives the same in every run, as what a fixed random key gives."""
    if equation.primitive.name == "dim_as_value":
        return False
    shapes = [v.aval.shape for v in equation.outvars]
    sized = all(isinstance(d, int) for shape in shapes for d in shape)
    return (
        sized
        and max(map(math.prod, shapes), default=0) <= _LARGEST
        and not any(isinstance(i, jax.core.Tracer) for i in jax.tree.leaves(inputs))
    )


def _choice(branches: Sequence[Callable[..., Any]], index: Any, *inputs: Any) -> Any:
    """One of several functions, by choices between two: of more the exporter knows nothing."""
    if len(branches) == 1:
        return branches[0](*inputs)
    first, *others = branches
    return jax.lax.cond(index <= 0, first, partial(_choice, others, index - 1), *inputs)


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Evaluation:
    """What is done otherwise than the trace says, also inside loops and branches.

    Attributes:
        steps: by the name of a primitive: what computes it. It is given the equation and the inputs.
        constant: what becomes of the constants in the trace.
        option: what becomes of the options of a step.
    """

    steps: Mapping[str, Step] = field(default_factory=dict)
    constant: Callable[[Any], Any] = _same
    option: Callable[[Any], Any] = _same

    def __call__(self, traced: ClosedJaxpr | Jaxpr, *inputs: Any) -> list[Any]:
        """Outputs of the trace for these inputs."""
        inner: Jaxpr = traced.jaxpr if isinstance(traced, ClosedJaxpr) else traced
        known = dict(zip(inner.constvars, map(self.constant, getattr(traced, "consts", ())), strict=True))
        known.update(zip(inner.invars, inputs, strict=True))

        def value(variable: Any) -> Any:
            if isinstance(variable, Literal):
                return self.constant(np.asarray(variable.val, variable.aval.dtype))
            return known[variable]

        for equation in inner.eqns:
            given = [value(v) for v in equation.invars]
            with jax.ensure_compile_time_eval() if _is_constant(equation, given) else nullcontext():
                results = self._step(equation, given)
            known.update(zip(equation.outvars, results, strict=True))
        return [value(v) for v in inner.outvars]

    def _step(self, equation: Any, inputs: list[Any]) -> Sequence[Any]:
        name, params = equation.primitive.name, equation.params
        if name in _CALLS:
            return self(params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"], *inputs)
        if name == "custom_linear_solve":  # how it is solved; the rest is for derivatives
            sizes, solve = params["const_lengths"], params["jaxprs"].solve
            first = sizes.matvec + sizes.vecmat
            return self(solve, *inputs[first : first + sizes.solve], *inputs[sum(sizes) :])
        if name == "cond":
            return list(_choice([partial(self, branch) for branch in params["branches"]], *inputs))
        if name == "scan":
            return self._scan(params, inputs)
        if name == "while":
            tests, steps = params["cond_nconsts"], params["body_nconsts"]
            of_test, of_body, start = inputs[:tests], inputs[tests : tests + steps], inputs[tests + steps :]
            return jax.lax.while_loop(  # type: ignore[no-any-return]
                lambda state: self(params["cond_jaxpr"], *of_test, *state)[0],
                lambda state: self(params["body_jaxpr"], *of_body, *state),
                start,
            )
        if any(isinstance(i, ComplexParts) for i in inputs):
            result = complex_step(equation, *inputs)
        elif name in self.steps:
            result = self.steps[name](equation, *inputs)
        else:
            result = equation.primitive.bind(*inputs, **{key: self.option(option) for key, option in params.items()})
        return result if equation.primitive.multiple_results else [result]

    def _scan(self, params: dict[str, Any], inputs: list[Any]) -> Sequence[Any]:
        """A loop over rows; one that goes backwards as one over the rows turned round, which every exporter takes."""
        fixed, carried = params["num_consts"], params["num_carry"]

        def body(state: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
            found = self(params["jaxpr"], *inputs[:fixed], *state, *row)
            return found[:carried], found[carried:]

        def turned(rows: Sequence[Any]) -> list[Any]:
            return [jax.lax.rev(r, (0,)) if params["reverse"] else r for r in rows]

        start, rows = inputs[fixed : fixed + carried], turned(inputs[fixed + carried :])
        last, stacked = jax.lax.scan(body, start, rows, length=None if rows else params["length"])
        return [*last, *turned(stacked)]


_WIDER = {np.dtype("float32"): np.dtype("float64"), np.dtype("complex64"): np.dtype("complex128")}
_WITHOUT_BFLOAT16 = {np.dtype(jax.numpy.bfloat16): np.dtype("float32")}


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
        found = jax.jit(partial(_with_types(_WIDER), traced))(*(_cast(_WIDER, array) for array in arrays))
        return [np.asarray(value) for value in found]


def without_bfloat16(traced: ClosedJaxpr, *arrays: Any) -> list[Any]:
    """Evaluate a trace in float32, which holds all that bfloat16 does, where it computes in bfloat16."""
    return _with_types(_WITHOUT_BFLOAT16)(traced, *arrays)


def computes_in_bfloat16(traced: ClosedJaxpr | Jaxpr) -> bool:
    """Whether a step gives bfloat16 that does not only round to it."""
    for equation in getattr(traced, "jaxpr", traced).eqns:
        inner = jax.tree.leaves(equation.params, is_leaf=lambda p: isinstance(p, ClosedJaxpr | Jaxpr))
        if any(computes_in_bfloat16(p) for p in inner if isinstance(p, ClosedJaxpr | Jaxpr)):
            return True
        narrow = any(getattr(v.aval, "dtype", None) in _WITHOUT_BFLOAT16 for v in equation.outvars)
        if narrow and equation.primitive.name != "convert_element_type":
            return True
    return False


def _with_types(wider: Mapping[Any, np.dtype]) -> Evaluation:
    """With constants and options of other types."""
    return Evaluation(constant=partial(_cast, wider), option=partial(_wider_option, wider))


def _cast(wider: Mapping[Any, np.dtype], array: Any) -> Any:
    return array.astype(wider[array.dtype]) if array.dtype in wider else array


def _wider_option(wider: Mapping[Any, np.dtype], option: Any) -> Any:
    """A dtype among the options of a step."""
    is_dtype = isinstance(option, np.dtype) or option is np.float32
    return wider.get(np.dtype(option), option) if is_dtype else option
