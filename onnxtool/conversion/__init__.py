"""Framework file -> ONNX model, tested against its source."""
