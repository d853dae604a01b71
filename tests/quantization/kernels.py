"""The operators of the graph that the runtime makes of a model."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from onnxtool.runtime.session.ort_kernels import opened_and_counted
from onnxtool.runtime.session.session import SessionOptions, create_session


def count_kernels(model: ir.Model | bytes | str | Path) -> dict[str, int]:
    """Operator name -> number of nodes after the runtime's own graph optimizations, most frequent first."""
    return opened_and_counted(lambda path: create_session(model, SessionOptions(optimized_path=path)))[1]
