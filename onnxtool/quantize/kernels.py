"""Which kernels really run: the operators of the runtime's own optimized graph."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import onnx
import onnx_ir as ir

from onnxtool.model.header import operator_name
from onnxtool.runtime.session import SessionOptions, create_session

INTEGER = {
    "QLinearConv",
    "QGemm",
    "QLinearMatMul",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul",
    "ConvInteger",
    "DynamicQuantizeLSTM",
    "MatMulNBits",
}


def count_kernels(model: ir.Model | bytes | str | Path) -> dict[str, int]:
    """Operator name -> number of nodes after the runtime's own graph optimizations, most frequent first.

    Raises:
        InputError, UnsupportedError, ResourceError: as `create_session`.
    """
    with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
        path = Path(scratch) / "optimized.onnx"
        create_session(model, SessionOptions(optimized_path=path))
        graph = onnx.load(path, load_external_data=False).graph
    counts = Counter(operator_name(n.domain, n.op_type).removeprefix("com.microsoft.") for n in graph.node)
    return dict(counts.most_common())


def integer_kernels(kernels: Mapping[str, int]) -> int:
    """Number of compute nodes that run on integers."""
    return sum(number for name, number in kernels.items() if name in INTEGER)
