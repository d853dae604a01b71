"""Passes that write ONNX Runtime's own fused operators (domain com.microsoft)."""
