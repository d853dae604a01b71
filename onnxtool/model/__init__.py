"""Floor 1: the ONNX file itself."""
