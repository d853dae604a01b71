"""What the modules inside a PyTorch model give, as they run: for comparing it layer by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from onnxtool.conversion.pytorch.tensors import named_tensors, to_numpy

See = Callable[[str, str, np.ndarray], None]


@contextmanager
def watched_modules(module: torch.nn.Module, see: See) -> Iterator[None]:
    """Call `see` with name, kind and value of every module's output while the block runs the model.

    A module that is called again is "name#2"; the parts of a tuple or dict are "name.part".
    """
    calls: Counter[str] = Counter()

    def hook(name: str, inner: torch.nn.Module, result: Any) -> None:
        calls[name] += 1
        _show(name if calls[name] == 1 else f"{name}#{calls[name]}", type(inner).__name__, result, see)

    def hook_for(name: str) -> Callable[[torch.nn.Module, Any, Any], None]:
        return lambda inner, _, result: hook(name, inner, result)

    handles = [m.register_forward_hook(hook_for(name)) for name, m in _modules(module)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _modules(module: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """What can be watched inside: scripted modules run as one."""
    return [(n, m) for n, m in module.named_modules() if n and not isinstance(m, torch.jit.ScriptModule)]


def watch_program(module: torch.fx.GraphModule, inputs: Sequence[Any], see: See) -> None:
    """Run an exported program; it has no modules that can be watched, so its operations are shown instead."""
    with torch.inference_mode():
        _Interpreter(module, see).run(*inputs)


class _Interpreter(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a graph node by node, and shows what each gives."""

    def __init__(self, module: torch.fx.GraphModule, see: See) -> None:
        super().__init__(module)
        self._see = see

    def run_node(self, n: torch.fx.Node) -> Any:
        """One node, as torch.fx runs it."""
        result = super().run_node(n)
        if n.op == "call_function":
            _show(n.name, str(getattr(n.target, "__name__", n.target)), result, self._see)
        return result


def _show(name: str, kind: str, result: Any, see: See) -> None:
    for part, tensor in named_tensors(result):
        see(name if part == "output" else f"{name}.{part}", kind, to_numpy(tensor))
