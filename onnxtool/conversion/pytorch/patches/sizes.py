"""Functions that make a number of a dynamic size, by which torch's exporters fix it or lose track of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import torch

from onnxtool.conversion.patches import Patch, replaced


def namespaces_of(module: torch.nn.Module) -> list[dict[str, Any]]:
    """Globals of the files in which the parts of a model stand."""
    kinds = {kind for part in module.modules() for kind in type(part).__mro__}
    found = [getattr(vars(kind).get("forward"), "__globals__", None) for kind in kinds]
    return list({id(names): names for names in found if names is not None}.values())


@contextmanager
def _followed(_module: torch.nn.Module, _opset: int) -> Iterator[None]:
    """Functions of Python's own, in the files of the model, and of torch's."""
    added = [(names, name) for names in namespaces_of(_module) for name in _FUNCTIONS if name not in names]
    for names, name in added:
        names[name] = _FUNCTIONS[name]
    try:
        with replaced(torch, "take_along_dim", _taken), replaced(torch.Tensor, "take_along_dim", _taken):
            yield
    finally:
        for names, name in added:
            del names[name]


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
    if _are_sizes(values, torch.SymInt):
        return reduce(torch.sym_min, values)
    traced = torch.jit.is_tracing() and _are_sizes(values, torch.Tensor)
    return reduce(torch.minimum, map(torch.as_tensor, values)) if traced else min(*values, **options)


def _most(*values: Any, **options: Any) -> Any:
    if _are_sizes(values, torch.SymInt):
        return reduce(torch.sym_max, values)
    traced = torch.jit.is_tracing() and _are_sizes(values, torch.Tensor)
    return reduce(torch.maximum, map(torch.as_tensor, values)) if traced else max(*values, **options)


def _are_sizes(values: tuple[Any, ...], kind: type) -> bool:
    numbers = all(isinstance(v, int) or (isinstance(v, kind) and not getattr(v, "shape", ())) for v in values)
    return numbers and any(isinstance(v, kind) for v in values)


def _steps(*given: Any) -> Any:
    """Of sizes so many steps as all of them have: one over the whole length; Python's own fixes a size."""
    if not any(isinstance(v, torch.SymInt) for v in given):
        return range(*given)
    start, stop, step = (0, *given, 1) if len(given) == 1 else (*given, 1)[:3]
    count = -((start - stop) // step)
    fixed = count if isinstance(count, int) else count.node.maybe_as_int()
    return range(*given) if fixed is None else [start + i * step for i in range(fixed)]


_FUNCTIONS = {"len": _length, "min": _least, "max": _most, "range": _steps}
FUNCTIONS = Patch(
    "torch", "", "torch's exporters take len, min, max, range and take_along_dim of sizes for numbers", _followed
)
