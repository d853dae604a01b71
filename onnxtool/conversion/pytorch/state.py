"""What a module changes in itself when it runs, and what draws random numbers in it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

_MOST_BYTES = 1 << 28
_OWN = frozenset(vars(torch.nn.Module()))  # attributes that every module has


class ModuleState:
    """The buffers and plain attributes of a module as they were when it was loaded.

    Attributes:
        changed: names of buffers that a run has changed.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self.changed: tuple[str, ...] = ()
        buffers = _buffers(module)
        small = sum(b.nbytes for b in buffers.values()) <= _MOST_BYTES
        self._kept = {n: b.detach().clone() for n, b in buffers.items()} if small else {}
        self._plain = {path: (part, _plain_attributes(part)) for path, part in module.named_modules()}
        self._parts = [(part, dict(part._modules.items())) for part, _ in self._plain.values()]
        self._replaced: list[tuple[torch.nn.Module, str, torch.nn.Module]] = []
        self._holds_attributes = False

    def look(self) -> tuple[str, ...]:
        """Which buffers are no longer as they were."""
        now = _buffers(self._module)
        self.changed = tuple(n for n, kept in self._kept.items() if n not in now or not _same(now[n], kept))
        return self.changed

    def hold_attributes(self) -> tuple[str, ...]:
        """Put numbers, words and switches among the attributes of its modules back, now and before each run from now,
        and the modules in whose place the runs so far have put others.

        Returns:
            Those that runs have changed.
        """
        self._holds_attributes = True
        self._replaced = [
            (part, name, kept)
            for part, parts in self._parts
            for name, kept in parts.items()
            if name not in part._modules or part._modules[name] is not kept
        ]
        return self._restore_attributes()

    def restore(self) -> None:
        """Put back what runs have changed."""
        if self._holds_attributes:
            self._restore_attributes()
        if not self.changed:
            return
        with torch.no_grad():
            for name, buffer in _buffers(self._module).items():
                kept = self._kept.get(name)
                if kept is None or name not in self.changed:
                    continue
                if buffer.shape == kept.shape and not buffer.is_inference():
                    buffer.copy_(kept)
                else:
                    owner, _, own = name.rpartition(".")
                    setattr(self._module.get_submodule(owner), own, kept.clone())

    def _restore_attributes(self) -> tuple[str, ...]:
        found: list[str] = []
        for part, name, kept in self._replaced:
            part._modules[name] = kept
        for path, (part, before) in self._plain.items():
            now = _plain_attributes(part)
            changed = [name for name, value in now.items() if name not in before or before[name] != value]
            for name in changed:
                if name in before:
                    setattr(part, name, before[name])
                else:
                    delattr(part, name)
            found += [f"{path}.{name}" if path else name for name in changed]
        return tuple(found)


class AsLoaded:
    """A module before it has run, to tell whether what it remembers of its first input matters.

    Its weights are the module's own; what else its parts hold is copied.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        shared = {id(t): t for t in (*module.parameters(), *module.buffers())}
        self._module = module
        self._before = _held(module)
        self.copy: torch.nn.Module | None = None
        try:
            self.copy = None if isinstance(module, torch.jit.ScriptModule) else copy.deepcopy(module, shared)
        except Exception:  # hooks and handles of other libraries cannot be copied
            self.copy = None

    def remembers(self) -> list[str]:
        """Tensors, arrays and collections among the attributes that runs have put in the place of others."""
        return [name for name, held in _held(self._module).items() if self._before.get(name) != held]


def _held(module: torch.nn.Module) -> dict[str, tuple[int, int]]:
    """(identity, size) of what the modules hold beside their weights, by path."""
    found: dict[str, tuple[int, int]] = {}
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            size = len(value) if isinstance(value, (list, dict, set)) else 0
            if isinstance(value, (torch.Tensor, np.ndarray, list, dict, set)) and name not in _OWN:
                found[f"{path}.{name}" if path else name] = id(value), size
    return found


def random_operators(run: Callable[[], Any]) -> list[str]:
    """Names of the operators that draw random numbers in a run: "randn_like", "dropout"."""
    found: dict[str, None] = {}

    class _RandomOperatorMode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            may_draw = torch.Tag.nondeterministic_seeded in getattr(function, "tags", ())
            before = torch.random.get_rng_state() if may_draw else None
            result = function(*args, **(kwargs or {}))
            if before is not None and not torch.equal(before, torch.random.get_rng_state()):  # dropout may be off
                found[str(function.overloadpacket).removeprefix("aten.")] = None
            return result

    try:
        with _RandomOperatorMode():
            run()
    except Exception:  # some modules do not run under a dispatch mode; then the names stay unknown
        return list(found)
    return list(found)


def _plain_attributes(part: torch.nn.Module) -> dict[str, Any]:
    """Attributes of a module that are plain values."""
    return {
        name: value
        for name, value in vars(part).items()
        if not name.startswith("_") and isinstance(value, (bool, int, float, str, type(None))) and value == value
    }


def _buffers(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    try:
        return {n: b for n, b in module.named_buffers() if isinstance(b, torch.Tensor)}
    except Exception:  # modules of other making
        return {}


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(torch.equal(a, b)) or (a.is_floating_point() and bool(torch.allclose(a, b, 0, 0, equal_nan=True)))
