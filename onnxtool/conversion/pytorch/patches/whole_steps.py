"""Convolutions of audio codecs that pad a recording to whole steps by tensors, whose values no exporter knows.

EnCodec, Mimi and what is made of them hold stride and width in tensors, and repeat the end of a recording that is
shorter than what is mirrored. The same in numbers, and without a branch on the length.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn import functional

from onnxtool.conversion.patches import Patch

_METHODS = ("_get_extra_padding_for_conv1d", "_pad1d")


@contextmanager
def _in_numbers(_module: torch.nn.Module, _opset: int) -> Iterator[None]:
    found = [part for part in _module.modules() if all(hasattr(type(part), name) for name in _METHODS)]
    with ExitStack() as stack:
        for part in found:
            for name, value in [*part._buffers.items()]:
                if value is not None and not value.dim() and not value.is_floating_point():
                    stack.callback(part._buffers.__setitem__, name, part._buffers.pop(name))
                    part.__dict__[name] = int(value)
                    stack.callback(part.__dict__.pop, name)
        owners = {id(kind): kind for part in found for kind in type(part).__mro__ if vars(kind).keys() & {*_METHODS}}
        for kind in owners.values():
            for name, method in zip(_METHODS, (_missing, staticmethod(_padded)), strict=True):
                if name in vars(kind):
                    stack.callback(setattr, kind, name, vars(kind)[name])
                    setattr(kind, name, method)
        yield


def _missing(part: Any, values: torch.Tensor) -> Any:
    """What the last step lacks: [..., length] -> a size."""
    length = values.shape[-1] - part.kernel_size + part.padding_total
    return (length + part.stride - 1) // part.stride * part.stride - length


def _padded(values: torch.Tensor, paddings: tuple[Any, Any], mode: str = "zero", value: float = 0.0) -> torch.Tensor:
    if mode != "reflect":
        return functional.pad(values, paddings, mode, value)
    more = torch.sym_max(0, torch.sym_max(*paddings) - values.shape[-1] + 1)
    padded = functional.pad(functional.pad(values, (0, more)), paddings, mode, value)
    return padded[..., : padded.shape[-1] - more]


PATCH = Patch("torch", "", "torch's exporters do not know the values of tensors that codecs pad by", _in_numbers)
