"""The ONNX file itself: reading and writing it safely, its history, questions asked of its graph."""
