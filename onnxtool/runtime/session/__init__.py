"""Sessions of ONNX Runtime: options, memory, kernels."""
