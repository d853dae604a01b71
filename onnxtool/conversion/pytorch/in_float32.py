"""Modules whose code asks for bfloat16, computed in float32, which holds all that bfloat16 does."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def narrow_tensors(module: torch.nn.Module) -> list[str]:
    """Names of parameters and buffers of bfloat16."""
    return [name for name, tensor in _tensors(module).items() if tensor.dtype == torch.bfloat16]


def run_in_float32(module: torch.nn.Module) -> None:
    """Let a module's own casts to bfloat16 be casts to float32, as its weights are; changes its forward.

    Args:
        module: with weights of float32 that were bfloat16.
    """
    forward = module.forward

    @functools.wraps(forward)
    def wider(*args: Any, **kwargs: Any) -> Any:
        with _InFloat32():
            return forward(*args, **kwargs)

    module.forward = wider


@contextmanager
def as_written(module: torch.nn.Module, names: Sequence[str]) -> Iterator[None]:
    """Inside the block, the module computes in bfloat16 again.

    Args:
        module: widened; with the forward of `run_in_float32` or its own.
        names: its tensors that were bfloat16, which their values still are.
    """
    found, wider = _tensors(module), module.forward
    narrow = [found[name] for name in names if name in found]  # a run may have taken some away
    module.forward = getattr(wider, "__wrapped__", wider)
    for tensor in narrow:
        tensor.data = tensor.data.bfloat16()
    try:
        yield
    finally:
        module.forward = wider
        for tensor in narrow:
            tensor.data = tensor.data.float()


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    named = module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)
    return dict(named[0]) | dict(named[1])


class _InFloat32(TorchFunctionMode):  # type: ignore[misc]
    """Wherever a function is asked for bfloat16, it gives float32."""

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        if function is torch.Tensor.bfloat16:
            return args[0].float()
        return function(*map(_wide, args), **{name: _wide(value) for name, value in (kwargs or {}).items()})


def _wide(value: Any) -> Any:
    return torch.float32 if value is torch.bfloat16 else value
