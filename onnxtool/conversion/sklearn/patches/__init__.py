"""Corrections of skl2onnx: what they write wrongly or have no converter for."""
