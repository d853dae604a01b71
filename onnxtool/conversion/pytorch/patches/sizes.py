"""Functions that make a number of a dynamic size, by which torch's exporters fix it or lose track of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import Any

import torch

from onnxtool.conversion.patches import Patch, replaced
from onnxtool.conversion.pytorch.patches import loop_steps
from onnxtool.conversion.pytorch.patches.size_fractions import square_root, stand_ins


def namespaces_of(module: torch.nn.Module) -> list[dict[str, Any]]:
    """Globals of the files in which the parts of a model stand."""
    kinds = {kind for part in module.modules() for kind in type(part).__mro__}
    found = [getattr(vars(kind).get("forward"), "__globals__", None) for kind in kinds]
    return list({id(names): names for names in found if names is not None}.values())


@contextmanager
def _followed(_module: torch.nn.Module, _opset: int) -> Iterator[None]:
    """Functions of Python's own, in the files of the model, and of torch's."""
    with ExitStack() as stack:
        for names in namespaces_of(_module):
            missing = {name: function for name, function in _FUNCTIONS.items() if name not in names}
            for name, function in (missing | stand_ins(names)).items():
                restore = (names.__setitem__, name, names[name]) if name in names else (names.pop, name)
                stack.callback(*restore)
                names[name] = function
        stack.enter_context(replaced(math, "sqrt", square_root))
        for owner in (torch, torch.Tensor):
            stack.enter_context(replaced(owner, "take_along_dim", _taken))
        yield


def _taken(values: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """Torch's own compares sizes in C++, where they are numbers."""
    if dim is None:
        return values.flatten().gather(0, indices.flatten())
    axis, both = dim % values.dim(), (values, indices)
    sizes = torch.broadcast_shapes(*((*t.shape[:axis], 1, *t.shape[axis + 1 :]) for t in both))
    values, indices = (t.expand(*sizes[:axis], -1, *sizes[axis + 1 :]) for t in both)
    return values.gather(dim, indices)


def _length(value: Any) -> Any:
    """Of a tensor its first size, of which Python's own makes a number."""
    return value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else len(value)


def _least(*values: Any, **options: Any) -> Any:
    """Of sizes a size, where Python's own takes one of them for good."""
    if _are_followed(values):
        return reduce(torch.sym_min, values)
    traced = torch.jit.is_tracing() and _are_traced(values)
    return reduce(torch.minimum, map(torch.as_tensor, values)) if traced else min(*values, **options)


def _most(*values: Any, **options: Any) -> Any:
    if _are_followed(values):
        return reduce(torch.sym_max, values)
    traced = torch.jit.is_tracing() and _are_traced(values)
    return reduce(torch.maximum, map(torch.as_tensor, values)) if traced else max(*values, **options)


def _are_followed(values: tuple[Any, ...]) -> bool:
    sizes = (torch.SymInt, torch.SymFloat)
    return all(isinstance(v, (int, float, *sizes)) for v in values) and any(isinstance(v, sizes) for v in values)


def _are_traced(values: tuple[Any, ...]) -> bool:
    numbers = all(isinstance(v, int) or (isinstance(v, torch.Tensor) and not v.shape) for v in values)
    return numbers and any(isinstance(v, torch.Tensor) for v in values)


def _steps(*given: Any) -> Any:
    """Of sizes so many steps as all of them have: one over the whole length; Python's own fixes a size."""
    steps = loop_steps.numbers(*given)
    if isinstance(steps, loop_steps.Dynamic):
        loop_steps.look()
        return range(*given)
    return steps


_FUNCTIONS = {"len": _length, "min": _least, "max": _most, "range": _steps}
FUNCTIONS = Patch(
    "torch", "", "torch's exporters take len, min, int, sqrt and their like of sizes for numbers", _followed
)
