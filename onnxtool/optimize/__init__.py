"""Calling this package runs the command of the same name: `onnxtool.optimize(...)`."""

from onnxtool.callable_module import make_callable

make_callable(__name__, "onnxtool.optimize.api", "optimize")
