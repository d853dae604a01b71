"""Framework file -> ONNX model, proven equal to its source."""
