"""Corrections of tf2onnx."""
