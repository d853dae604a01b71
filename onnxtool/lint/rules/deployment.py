"""Rules on where else a model can run: operators that the runtimes of browsers and phones lack (OT206, OT207)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from onnxtool.lint.rule import LintRule
from onnxtool.model.model_view import ModelView
from onnxtool.report.check import Finding, Severity

# Constants are folded before any runtime places nodes; these take no time of their own.
_FREE = frozenset({"Constant", "ConstantOfShape", "Identity", "Dropout"})

_WEBGPU = """
Abs Acos Acosh Add ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast Ceil Clip Concat Conv
ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Div Einsum Elu Equal Erf Exp Expand Flatten Floor Gather
GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GridSample HardSigmoid If
InstanceNormalization LayerNormalization LeakyRelu Less LessOrEqual Log MatMul MaxPool Mul Neg Not Pad Pow Range
Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
ReduceSumSquare Relu Reshape Resize ScatterND Shape Sigmoid Sin Sinh Slice Softmax Split Sqrt Squeeze Sub Tan Tanh
ThresholdedRelu Tile Transpose Unsqueeze Where
"""
_COREML = """
Add ArgMax AveragePool Cast Ceil Clip Concat Conv ConvTranspose Cos DepthToSpace Div Elu Erf Exp GatherND Gelu Gemm
GlobalAveragePool GlobalMaxPool GridSample GroupNormalization HardSigmoid InstanceNormalization LayerNormalization
LeakyRelu MatMul Max MaxPool Mul PRelu Pow Range Reciprocal ReduceMax ReduceMean ReduceSum Relu Reshape Resize Round
Shape Sigmoid Sin Slice Softmax Softplus Split Sqrt Squeeze Sub Tanh Tile Transpose Unsqueeze
"""
_NNAPI = """
Abs Add AveragePool Cast Clip Concat Conv DepthToSpace DequantizeLinear Div Elu Exp Flatten Floor Gather Gemm
GlobalAveragePool GlobalMaxPool Log MatMul Max MaxPool Min Mul Neg PRelu Pad Pow QLinearConv QLinearMatMul
QuantizeLinear Relu Reshape Resize Sigmoid Sin Slice Softmax Sqrt Squeeze Sub Tanh Transpose Unsqueeze
"""
BROWSER: Mapping[str, frozenset[str]] = {"WebGPU": _FREE.union(_WEBGPU.split())}
MOBILE: Mapping[str, frozenset[str]] = {
    "Core ML": _FREE.union(_COREML.split()),
    "NNAPI": _FREE.union(_NNAPI.split()),
}


_MANY = 6

BROWSER_LACKS = LintRule(
    "OT206",
    Severity.NOTE,
    "operators without a kernel in the browser",
    "ONNX Runtime Web has no WebGPU kernel for them (list of onnxruntime-web 1.24.3): they run in WebAssembly on the "
    "processor, with copies from and to the GPU around them.",
    "Look for a form of the model without them, if the browser is meant; otherwise ignore this.",
)
MOBILE_LACKS = LintRule(
    "OT207",
    Severity.NOTE,
    "operators without a kernel on phones",
    "The Core ML and NNAPI providers of ONNX Runtime do not list them: the graph is cut there, and these nodes run on "
    "the processor, with copies around them.",
    "Look for a form of the model without them, if phones are meant; otherwise ignore this.",
)
RULES = (BROWSER_LACKS, MOBILE_LACKS)


def edge(view: ModelView) -> Iterator[Finding]:
    """Standard operators that a target lacks; nodes that compute constants do not count, nor do custom domains."""
    counts = Counter(
        n.op_type
        for n in view.nodes
        if n.domain in ("", "ai.onnx") and not (n.output and n.output[0] in view.constants)
    )
    for rule, targets in ((BROWSER_LACKS, BROWSER), (MOBILE_LACKS, MOBILE)):
        yield from (
            rule.finding(f"{name} lacks {_told(missing)}")
            for name, known in targets.items()
            if (missing := {op: n for op, n in counts.items() if op not in known})
        )


def _told(missing: Mapping[str, int]) -> str:
    """Operators with their numbers, the most frequent first."""
    ordered = sorted(missing.items(), key=lambda item: (-item[1], item[0]))
    told = [f"{name} ({count})" for name, count in ordered[:_MANY]]
    return ", ".join(told) + (f" and {len(ordered) - _MANY} more" if len(ordered) > _MANY else "")
