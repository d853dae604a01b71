"""The embedded engine, ONNX Runtime in this process."""
