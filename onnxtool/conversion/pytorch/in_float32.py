"""Modules whose code asks for bfloat16, computed in float32, which holds all that bfloat16 does."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


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
