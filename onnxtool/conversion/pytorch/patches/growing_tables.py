"""Tables of positions that modules of transformers make larger when an input is longer than all before.

An exporter decides for good that the table is large enough. Empty while the model is followed, it is made as long as
the input is, and of the same numbers: frequencies are torch's own, since position times frequency keeps no more digits
than these have.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from onnxtool.conversion.patches import Patch, replaced

# The method that makes a table -> the buffer that holds it, and along which dim it grows.
_TABLES = {"make_weights": ("weights", 0), "extend_pe": ("pe", 1)}
_FREQUENCIES = "_onnxtool_frequencies"
_EXP = torch.exp


@contextmanager
def _grown(_module: torch.nn.Module, _opset: int) -> Iterator[None]:
    with ExitStack() as stack:
        tables: dict[int, torch.Tensor] = {}
        for method, (name, dim) in _TABLES.items():
            found = [p for p in _module.modules() if name in p._buffers and method in _names_in_forward(p)]
            for part in found:
                tables[id(part)] = part._buffers[name].narrow(dim, 0, 0)
                part.register_buffer(_FREQUENCIES, _frequencies(part, method), persistent=False)
                stack.callback(part._buffers.pop, _FREQUENCIES)
                stack.callback(part._buffers.__setitem__, name, part._buffers.pop(name))
            for kind in {type(part) for part in found}:
                stack.enter_context(replaced(kind, method, _making(getattr(kind, method), name)))
                setattr(kind, name, _held_in(tables))
                stack.callback(delattr, kind, name)
        yield


def _names_in_forward(part: torch.nn.Module) -> tuple[str, ...]:
    code = getattr(inspect.unwrap(type(part).forward), "__code__", None)
    return code.co_names if code is not None else ()


def _frequencies(part: Any, method: str) -> torch.Tensor:
    """What a module takes the exponential of, to make its table."""
    found = []

    def noted(values: torch.Tensor) -> torch.Tensor:
        found.append(_EXP(values))
        return found[-1]

    with replaced(torch, "exp", noted):
        part.get_embedding(2, part.embedding_dim) if method == "make_weights" else part.extend_pe(torch.zeros(1, 2))
    return found[0]


def _making(method: Any, name: str) -> Any:
    def made(part: Any, *given: Any) -> torch.Tensor:
        with replaced(torch, "exp", lambda _: getattr(part, _FREQUENCIES)):
            table: torch.Tensor = part.get_embedding(*given) if name == "weights" else method(part, given[0])
        setattr(part, name, table.to(getattr(part, name).dtype))
        return getattr(part, name)

    return made


def _held_in(tables: dict[int, torch.Tensor]) -> property:
    """An attribute that is no buffer, so that it may be set while the model is followed."""

    def read(part: Any) -> torch.Tensor:
        if torch.compiler.is_dynamo_compiling():  # torch's second way, which would take the table for a constant
            raise NotImplementedError("a table of positions that grows")
        return tables[id(part)]

    def write(part: Any, table: torch.Tensor) -> None:
        tables[id(part)] = table

    return property(read, write)


PATCH = Patch("torch", "", "torch's exporters decide for good whether a table of positions is large enough", _grown)
