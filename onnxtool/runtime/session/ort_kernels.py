"""Which kernels really run: the operators of the runtime's own optimized graph."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import onnx

from onnxtool.model.header import operator_name
from onnxtool.model.io.lazy_read import read_without_weights

Opened = TypeVar("Opened")


def opened_and_counted(opening: Callable[[Path], Opened]) -> tuple[Opened, dict[str, int]]:
    """Open a session and count its kernels (operator name -> number of nodes after the runtime's own graph
    optimizations, most frequent first), without loading the model twice.

    Args:
        opening: loads it with the given `SessionOptions.optimized_path`.
    """
    with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
        path = Path(scratch) / "optimized.onnx"
        opened = opening(path)
        if not path.exists():  # a provider that compiles has no graph to write
            return opened, {}
        graph = (read_without_weights(path) or onnx.load(path, load_external_data=False)).graph
    counts = Counter(operator_name(n.domain, n.op_type).removeprefix("com.microsoft.") for n in graph.node)
    return opened, dict(counts.most_common())
