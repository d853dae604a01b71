"""Which standard operators the runtimes of browsers and phones have kernels for, as their own documentation lists them.

Sources:
    WebGPU: docs/webgpu-operators.md in the npm package onnxruntime-web 1.24.3.
    Core ML: tools/ci_build/github/apple/coreml_supported_mlprogram_ops.md in microsoft/onnxruntime (ML Program).
    NNAPI: tools/ci_build/github/android/nnapi_supported_ops.md in microsoft/onnxruntime.

What one of them lacks still runs, on the processor, at the price of copies there and back. The WebAssembly and mobile
builds of ONNX Runtime for the processor have every standard operator, and are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping

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
