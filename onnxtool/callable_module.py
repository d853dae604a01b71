"""Lets `onnxtool.convert(...)` be a function although `onnxtool.convert` is also the folder of that name."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


def make_callable(module_name: str, function_module: str, function: str) -> None:
    """Make a package callable: calling it imports `function_module` and calls its `function`.

    The import system binds a subpackage over any function of the same name in its parent, so the package
    itself has to answer the call. The import is deferred: a package stays cheap until it is used.
    """

    class CallableModule(ModuleType):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            from importlib import import_module

            return getattr(import_module(function_module), function)(*args, **kwargs)

    sys.modules[module_name].__class__ = CallableModule
