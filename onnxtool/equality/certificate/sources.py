"""Certificates of a framework model and the file made from it: the operators that its own code calls, size by size."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from onnxtool.equality.certificate.certify import certify
from onnxtool.equality.certificate.ledger import constants_of
from onnxtool.equality.certificate.models import with_weights
from onnxtool.equality.reference import DescribedRunner
from onnxtool.errors import OnnxToolError
from onnxtool.report.certificate import CertificateReport, FieldPoint, RoundedConstant

_MOST_PRODUCTS = 1 << 29  # a few seconds for each of two points of both models
_MOST_ROWS = 5  # of a source whose formulas hold for all sizes
_LOWEST = "-infinity, which the file has as its lowest number: a row in which a mask leaves nothing is not covered"


def certify_source(
    source: DescribedRunner,
    graph: ir.Model,
    examples: Sequence[Mapping[str, np.ndarray]],
    *,
    names: tuple[str, str] = ("the source", "the file"),
    seconds: float = 30.0,
) -> CertificateReport:
    """Decide whether a file is the same real function as the source that it was made from.

    Args:
        source: its own code runs, once for each size.
        graph: of the file.
        examples: inputs that the source takes; their shapes are the sizes.
        names: how both are called in the report.
        seconds: no further size is taken after that.

    Returns:
        "certified" at the sizes of the examples, or "not tested" with the reason.
    """
    began = time.perf_counter()
    report = CertificateReport(*names, "not tested", reason="there is no input to trace")
    file = with_weights(graph)
    points: list[FieldPoint] = []
    smallest_first = sorted(examples, key=lambda e: sum(np.size(a) for a in e.values()))
    for sizes, example in {_sizes(e): e for e in smallest_first}.items():
        if points and time.perf_counter() - began > seconds:
            break
        try:
            recorded = source.operator_trace(example)
        except OnnxToolError as error:
            return replace(report, reason=str(error), seconds=time.perf_counter() - began)
        trace = ir.to_proto(recorded)
        if _is_dynamic(trace):  # right for all sizes: one certificate looks for those that matter
            return certify(trace, file, [_few_rows(example)], names=names, seconds=seconds, most=3)
        if (products := _products(recorded)) > _MOST_PRODUCTS:
            report = (
                report
                if points
                else replace(report, reason=f"{products:.2g} products are too many for exact arithmetic")
            )
            break
        lowest = _as_lowest(trace, file)
        made = {v.name or "": v.const_value.numpy() for n in recorded.graph for v in n.outputs if v.const_value}
        report = certify(trace, file, [example], names=names, seconds=seconds, made=made)
        if not report.ok:
            reason = f"{report.reason} ({', '.join(f'{n} {list(s)}' for n, s in sizes)})"
            return replace(report, reason=reason, seconds=time.perf_counter() - began)
        points += report.points
    if not report.ok:
        return report
    return replace(
        report, points=tuple(points), constants=(*report.constants, *lowest), seconds=time.perf_counter() - began
    )


def _is_dynamic(trace: onnx.ModelProto) -> bool:
    return any(not d.HasField("dim_value") for i in trace.graph.input for d in i.type.tensor_type.shape.dim)


def _few_rows(example: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.asarray(array)[:_MOST_ROWS] for name, array in example.items()}


def _products(graph: ir.Model) -> int:
    """How many numbers its matrix products and convolutions multiply, at fixed sizes."""
    total = 0
    for node in graph.graph:
        shapes = [
            None if v is None or v.shape is None else v.shape.numpy() for v in (*node.inputs[:2], node.outputs[0])
        ]
        if node.op_type in ("MatMul", "Conv", "ConvTranspose") and all(s is not None for s in shapes):
            left, right, result = (tuple(s or ()) for s in shapes)
            if node.op_type == "MatMul":
                total += math.prod(result) * left[-1]
            else:
                total += math.prod(right[1:]) * math.prod(result if node.op_type == "Conv" else left)
    return total


def _sizes(example: Mapping[str, np.ndarray]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, np.shape(array)) for name, array in example.items())


def _as_lowest(trace: onnx.ModelProto, file: onnx.ModelProto) -> tuple[RoundedConstant, ...]:
    """Infinity among the trace's constants as the lowest float, one step beside it, where the file has no infinity.

    Exporters write a mask so. Added to a score of usual size either gives a share of 0 in a softmax.
    """
    if any(a.dtype.kind == "f" and np.isneginf(a).any() for a in constants_of(file).values()):
        return ()
    found = []
    for tensor in trace.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind == "f" and np.isneginf(array).any():
            low = np.where(np.isneginf(array), np.finfo(array.dtype).min, array).astype(array.dtype)
            tensor.CopyFrom(numpy_helper.from_array(low, tensor.name))
            found.append(RoundedConstant(_LOWEST, tensor.name, "", 1.0))
    return tuple(found[:1])
