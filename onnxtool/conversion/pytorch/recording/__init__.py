"""The operators that a module calls, recorded by torch's dispatcher and written down as ONNX."""
