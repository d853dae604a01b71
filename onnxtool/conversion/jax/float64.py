"""A traced JAX function evaluated in float64: the same steps on wider numbers, whatever types its code names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from onnxtool.conversion.jax.evaluation import Evaluation

_WIDER = {np.dtype("float32"): np.dtype("float64"), np.dtype("complex64"): np.dtype("complex128")}


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
        found = jax.jit(partial(Evaluation(constant=_widened, option=_wider_option), traced))(*map(_widened, arrays))
        return [np.asarray(value) for value in found]


def _wider(dtype: Any) -> Any:
    return _WIDER.get(dtype, dtype)


def _widened(array: Any) -> Any:
    return array.astype(_wider(array.dtype)) if array.dtype in _WIDER else array


def _wider_option(option: Any) -> Any:
    """A dtype among the options of a step."""
    return _wider(np.dtype(option)) if isinstance(option, np.dtype) or option is np.float32 else option
