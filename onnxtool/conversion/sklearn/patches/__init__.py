"""Corrections of skl2onnx and onnxmltools: what they write wrongly or have no converter for."""
