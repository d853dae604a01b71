"""Rules on the form of quantized models: what TensorRT and Qualcomm's QNN take of it (OT208, OT209).

Neither runs everywhere, so their documented demands are checked as structure; nothing is run for it.

Sources: TensorRT's developer guide, "Working with Quantized Types" (symmetric int8 only); microsoft/onnxruntime #14229
and onnx/onnx-tensorrt #850 (no int32 biases); ONNX Runtime's page of the QNN provider (integers, fixed shapes) and its
`get_qnn_qdq_config` (per-channel weights are those of Conv and ConvTranspose alone).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx

from onnxtool.lint.rule import LintRule
from onnxtool.model.model_view import ModelView, label
from onnxtool.model.operators.table import operator_of
from onnxtool.report.check import Finding, Severity

TENSORRT_REFUSES = LintRule(
    "OT208",
    Severity.NOTE,
    "a quantized form that TensorRT does not take",
    "TensorRT takes Q/DQ pairs of int8 with zero point 0 and float biases. It refuses to parse other models, or, as a "
    "provider, leaves these nodes to others. The structure alone was checked: TensorRT was not run.",
    "If TensorRT is meant: onnxtool quantize --target tensorrt writes its form.",
)
QNN_REFUSES = LintRule(
    "OT209",
    Severity.NOTE,
    "a quantized form that QNN does not take",
    "Qualcomm's NPU (HTP) runs nodes between Q/DQ pairs of uint8 or uint16, with fixed shapes and one scale for the "
    "weights of matrix products. The rest runs on the processor. The structure alone was checked: QNN was not run.",
    "If QNN is meant: fix the shapes (onnxtool edit --set-shape), and quantize every operator.",
)
RULES = (TENSORRT_REFUSES, QNN_REFUSES)

_Q, _DQ = "QuantizeLinear", "DequantizeLinear"
_SPLIT_BY_CHANNEL = ("Conv", "ConvTranspose")
_PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
# What computes with sizes and indices, or moves values about: no arithmetic that has to be quantized.
_UNQUANTIZED = (
    *("Shape", "Size", "Range", "Constant", "ConstantOfShape", "Cast", "Identity", "NonZero", "Where"),
    *("Equal", "Greater", "Less", "And", "Or", "Not"),
)


def quantized_forms(view: ModelView) -> Iterator[Finding]:
    """What keeps a quantized model from TensorRT and from QNN; nothing for a float model."""
    if not any(_is_quantized(node) for node in view.nodes):
        return
    for rule, faults in ((TENSORRT_REFUSES, tensorrt_faults(view)), (QNN_REFUSES, qnn_faults(view))):
        yield from (rule.finding(f"{text}: {_counted(places)}", places[0]) for text, places in faults.items())


def tensorrt_faults(view: ModelView) -> Mapping[str, list[str]]:
    """What TensorRT does not take -> the nodes where it is, by name."""
    found: dict[str, list[str]] = {}
    for node in view.nodes:
        if node.op_type not in (_Q, _DQ):
            if _is_quantized(node):
                _note(found, "an operator that TensorRT lacks", node)
            continue
        kind, zero = _stored(view, node)
        if kind == onnx.TensorProto.INT32:
            _note(found, "a quantized bias, which has to be float", node)
        elif kind in (onnx.TensorProto.UINT8, onnx.TensorProto.UINT16, onnx.TensorProto.INT16):
            _note(found, f"{onnx.TensorProto.DataType.Name(kind).lower()}, where TensorRT takes int8", node)
        elif zero is not None and zero.dtype.kind in "iu" and zero.any():
            _note(found, "a zero point that is not 0", node)
    return found


def qnn_faults(view: ModelView) -> Mapping[str, list[str]]:
    """What QNN does not take -> the nodes or inputs where it is, by name."""
    found: dict[str, list[str]] = {}
    for spec in view.header.inputs:
        if spec.shape is None or not all(isinstance(dim, int) for dim in spec.shape):
            found.setdefault("a dynamic shape", []).append(spec.name)
    makers, constants = view.producers, view.constants
    for node in view.proto.graph.node:
        if node.op_type == _Q and _stored(view, node)[0] == onnx.TensorProto.INT8:
            _note(found, "activations of int8, where QNN takes uint8 or uint16", node)
        elif node.op_type in _PRODUCTS and node.op_type not in _SPLIT_BY_CHANNEL:
            weight = makers.get(node.input[1]) if len(node.input) > 1 else None
            if weight is not None and weight.op_type == _DQ and _is_split(view, weight):
                _note(found, "weights with a scale for each channel, which QNN takes for Conv alone", node)
        if node.op_type in (_Q, _DQ, *_UNQUANTIZED) or all(name in constants for name in node.output):
            continue
        if _is_quantized(node):
            _note(found, "an operator that QNN lacks", node)
        elif not _between_pairs(view, node):
            _note(found, "operators that are not between Q/DQ pairs", node)
    return found


def _is_quantized(node: onnx.NodeProto) -> bool:
    """True for Q and DQ, and for the operators that compute in integers without them."""
    return operator_of(node).integer != "no"


def _stored(view: ModelView, node: onnx.NodeProto) -> tuple[int, np.ndarray | None]:
    """The integer type of a Q or DQ, and its zero point where that is a constant."""
    tensors = view.initializers
    if len(node.input) > 2 and node.input[2] in tensors:
        zero = tensors[node.input[2]]
        return zero.data_type, view.values(zero)
    stored = tensors.get(node.input[0])
    if node.op_type == _DQ and stored is not None:
        return stored.data_type, None
    maker = view.producers.get(node.input[0])
    if node.op_type == _DQ and maker is not None and maker.op_type == _Q:
        return _stored(view, maker)
    asked = next((a.i for a in node.attribute if a.name == "output_dtype"), 0)
    return asked or onnx.TensorProto.UINT8, None  # what the specification says of a Q without a zero point


def _is_split(view: ModelView, node: onnx.NodeProto) -> bool:
    scale = view.initializers.get(node.input[1])
    return scale is not None and scale.dims != [] and int(np.prod(scale.dims)) > 1


def _between_pairs(view: ModelView, node: onnx.NodeProto) -> bool:
    """True for a node whose inputs come from DQ and whose outputs go to Q."""
    makers = [view.producers.get(name) for name in node.input if name and name not in view.constants]
    read = all(maker is not None and maker.op_type == _DQ for maker in makers)
    users = [user for name in node.output if name for user in view.readers.get(name, [])]
    if len(users) == 1 and users[0].op_type in ("Relu", "Clip"):  # taken together with what is before it
        users = [user for name in users[0].output for user in view.readers.get(name, [])]
    if node.op_type in ("Relu", "Clip") and len(makers) == 1 and makers[0] is not None:
        read = read or makers[0].op_type in (*_PRODUCTS, "Add")
    return read and bool(users) and all(user.op_type == _Q for user in users)


def _note(found: dict[str, list[str]], text: str, node: onnx.NodeProto) -> None:
    found.setdefault(text, []).append(node.name or label(node))


def _counted(places: list[str]) -> str:
    return f"{len(places)} node{'s' if len(places) > 1 else ''}, the first {places[0]}"
