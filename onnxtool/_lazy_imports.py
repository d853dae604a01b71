"""Libraries that are imported by others but seldom used: loaded when somebody first asks them for something.

onnx_ir imports sympy for arithmetic on symbolic dims. That takes 33 MB and a third of the time in which a command
starts, and our own shape inference does without (`model.operators.symbolic_dims`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_DEFERRED = ("sympy", "onnx_ir._symbolic_shapes")  # the second one takes functions of the first as it is imported


class _Finder:
    """Finds the deferred modules, each once; what is found loads at the first use of one of its attributes."""

    def __init__(self) -> None:
        self._left = {name for name in _DEFERRED if name not in sys.modules}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As of `importlib.abc.MetaPathFinder`; None for all other modules."""
        if name not in self._left:
            return None
        from importlib.util import LazyLoader

        self._left.discard(name)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def defer() -> None:
    """From now on the deferred modules load when they are used, not when they are imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
