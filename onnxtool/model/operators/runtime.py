"""The operators of ONNX Runtime (domain com.microsoft) that somebody asks about, one row each."""

# fmt: off

from __future__ import annotations

from onnxtool.model.operators.operator import ALL, Operator

_MS = "com.microsoft"
_OF_TABLES = (
    "Binarizer FeatureVectorizer Imputer LinearClassifier LinearRegressor Normalizer "
    "Scaler SVMClassifier SVMRegressor TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor"
)  # of ai.onnx.ml

ROWS = (
    Operator("Attention", _MS, shape="packed", accumulates=True, cost="packed_attention"),
    Operator("BiasAdd", _MS, shape="same", flops=1),
    Operator("BiasDropout", _MS, random=True),
    Operator("BiasGelu", _MS, shape="same", flops=5),
    Operator("BiasSoftmax", _MS, shape="same", accumulates=True, flops=5),
    Operator("BitmaskBiasDropout", _MS, random=True),
    Operator("BitmaskDropout", _MS, random=True),
    Operator("DecoderMaskedMultiHeadAttention", _MS, accumulates=True, cost="attention"),
    Operator("DequantizeBFP", _MS, integer="converts"),
    Operator("DequantizeLinear", _MS, shape="same", flops=1, integer="converts"),
    Operator("DequantizeWithOrder", _MS, integer="converts"),
    Operator("DynamicQuantizeLSTM", _MS, accumulates=True, cost="recurrent", integer="computes"),
    Operator("DynamicQuantizeMatMul", _MS, shape="matmul", accumulates=True, cost="matmul", integer="computes"),
    Operator("EmbedLayerNormalization", _MS, accumulates=True, flops=8, by_rows=(0, 1, 7)),
    Operator("FastGelu", _MS, shape="same", flops=5),
    Operator("FusedConv", _MS, shape="conv", accumulates=True, cost="convolution"),
    Operator("FusedGemm", _MS, shape="gemm", accumulates=True, cost="gemm"),
    Operator("FusedMatMul", _MS, shape="matmul", accumulates=True, cost="matmul"),
    Operator("FusedMatMulActivation", _MS, shape="matmul", accumulates=True, cost="matmul"),
    Operator("GatherBlockQuantized", _MS, integer="converts"),
    Operator("Gelu", _MS, shape="same", elementwise=True, flops=5),
    Operator("GemmFastGelu", _MS, shape="matmul", accumulates=True, cost="matmul"),
    Operator("GroupNorm", _MS, shape="same", accumulates=True, flops=8),
    Operator("GroupQueryAttention", _MS, shape="attention", accumulates=True, cost="attention"),
    Operator("MatMulBnb4", _MS, shape="blocks", accumulates=True, integer="computes"),
    Operator("MatMulInteger16", _MS, shape="matmul", accumulates=True, cost="matmul", integer="computes"),
    Operator("MatMulIntegerToFloat", _MS, shape="matmul", accumulates=True, cost="matmul", integer="computes"),
    Operator("MatMulNBits", _MS, shape="blocks", accumulates=True, cost="blocks", integer="computes", by_rows=(0,)),
    Operator("MulInteger", _MS, integer="computes"),
    Operator("MultiHeadAttention", _MS, shape="attention", accumulates=True, cost="attention"),
    Operator("NhwcConv", _MS, accumulates=True, cost="convolution"),
    Operator("NhwcFusedConv", _MS, accumulates=True, cost="convolution"),
    Operator("NhwcMaxPool", _MS, passes_through="chosen", cost="window"),
    Operator("QAttention", _MS, shape="packed", accumulates=True, cost="packed_attention", integer="computes"),
    Operator("QEmbedLayerNormalization", _MS, accumulates=True, flops=8, integer="computes"),
    Operator("QGemm", _MS, accumulates=True, cost="gemm", integer="computes"),
    Operator("QLinearAdd", _MS, flops=1, integer="computes"),
    Operator("QLinearAveragePool", _MS, accumulates=True, cost="window", integer="computes"),
    Operator("QLinearConcat", _MS, integer="computes"),
    Operator("QLinearConv", _MS, accumulates=True, cost="quantized_convolution", integer="computes"),
    Operator("QLinearGlobalAveragePool", _MS, accumulates=True, cost="inputs", integer="computes"),
    Operator("QLinearLeakyRelu", _MS, shape="same", flops=1, integer="computes"),
    Operator("QLinearMul", _MS, flops=1, integer="computes"),
    Operator("QLinearReduceMean", _MS, accumulates=True, cost="inputs", integer="computes"),
    Operator("QLinearSigmoid", _MS, shape="same", flops=5, integer="computes"),
    Operator("QLinearSoftmax", _MS, shape="same", accumulates=True, flops=5, integer="computes"),
    Operator("QLinearWhere", _MS, integer="computes"),
    Operator("QMoE", _MS, accumulates=True, integer="computes"),
    Operator("QOrderedAttention", _MS, accumulates=True, integer="computes"),
    Operator("QOrderedGelu", _MS, integer="computes"),
    Operator("QOrderedLayerNormalization", _MS, accumulates=True, integer="computes"),
    Operator("QOrderedMatMul", _MS, accumulates=True, integer="computes"),
    Operator("QuantizeBFP", _MS, integer="converts"),
    Operator("QuantizeLinear", _MS, shape="same", flops=1, integer="converts"),
    Operator("QuantizeWithOrder", _MS, integer="converts"),
    Operator("QuickGelu", _MS, shape="same", elementwise=True, flops=5),
    Operator("ReduceSumInteger", _MS, accumulates=True, integer="computes"),
    Operator("RotaryEmbedding", _MS, shape="same", flops=5),
    Operator("Sampling", _MS, random=True),
    # In the standard's domain, though not in it.
    Operator("SimplifiedLayerNormalization", shape="same", accumulates=True, flops=8),
    Operator("SkipLayerNormalization", _MS, shape="skip", accumulates=True, flops=8),
    Operator("SkipSimplifiedLayerNormalization", _MS, shape="skip", accumulates=True, flops=8),
    Operator("TransposeMatMul", _MS, shape="matmul", accumulates=True, cost="matmul"),
    *(Operator(name, "ai.onnx.ml", by_rows=ALL) for name in _OF_TABLES.split()),
)
