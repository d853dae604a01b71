"""Calling this package runs the command of the same name: `onnxtool.quantize(...)`."""

from onnxtool.callable_module import make_callable

make_callable(__name__, "onnxtool.quantize.api", "quantize")
