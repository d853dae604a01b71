"""Floor 2: the embedded engine, ONNX Runtime in this process."""
