"""Weights were inputs of the exporter's graph once; counted on, they stay in memory even when moved to the disk."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from onnxtool.conversion.patches import Patch


def _forget(graph: ir.Graph) -> None:
    counter = getattr(graph.inputs, "_ref_counter", None)
    if isinstance(counter, Counter):
        for value in [v for v, count in counter.items() if count <= 0]:
            del counter[value]


PATCH = Patch("onnx-ir", "1.2", "onnx_ir 1.1 goes on counting removed inputs, zero times each", _forget)
