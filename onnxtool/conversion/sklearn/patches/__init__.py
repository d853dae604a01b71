"""Corrections of skl2onnx: what it writes wrongly or has no converter for."""
