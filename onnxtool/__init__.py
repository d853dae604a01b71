"""onnxtool: any trained model to a checked, tested, optimized and quantized ONNX file.

The functions here mirror the commands and return report objects (`onnxtool.report`). They are imported when
first used, so that `import onnxtool` loads neither a framework nor ONNX Runtime.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from onnxtool._lazy_imports import defer

__version__ = "0.1.0"

# ONNX Runtime from 1.31 on sends usage events over the network, and marks the temporary folder, when it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
defer()

# name -> (module, attribute). No module or package of onnxtool has one of these names: it would hide the function.
_FUNCTIONS = {
    "bench": ("onnxtool.benchmark.bench", "bench"),
    "build": ("onnxtool.workflow.build", "build"),
    "cache": ("onnxtool.workflow.cache", "cache"),
    "certificate": ("onnxtool.equality.file_certificate", "certificate"),
    "check": ("onnxtool.lint.check", "check"),
    "compare": ("onnxtool.conversion.compare_sources", "compare"),
    "convert": ("onnxtool.conversion.convert", "convert"),
    "diff": ("onnxtool.model.diff", "diff"),
    "doctor": ("onnxtool.runtime.doctor", "doctor"),
    "edit": ("onnxtool.editing.edit", "edit"),
    "init": ("onnxtool.workflow.init", "init"),
    "inspect": ("onnxtool.model.inspect", "inspect"),
    "optimize": ("onnxtool.optimization.optimize", "optimize"),
    "package": ("onnxtool.packaging.package", "package"),
    "quantize": ("onnxtool.quantization.quantize", "quantize"),
    "quickstart": ("onnxtool.walkthrough", "quickstart"),
    "run": ("onnxtool.runtime.run", "run"),
    "serve": ("onnxtool.serving.serve", "serve"),
    "view": ("onnxtool.runtime.view", "view"),
    "verify": ("onnxtool.model.provenance.verify", "verify"),
}
__all__ = ["__version__", *sorted(_FUNCTIONS)]  # noqa: PLE0604  (names are served by __getattr__)

if TYPE_CHECKING:  # what type checkers see of the lazy names
    from onnxtool.benchmark.bench import bench as bench
    from onnxtool.conversion.compare_sources import compare as compare
    from onnxtool.conversion.convert import convert as convert
    from onnxtool.editing.edit import edit as edit
    from onnxtool.equality.file_certificate import certificate as certificate
    from onnxtool.lint.check import check as check
    from onnxtool.model.diff import diff as diff
    from onnxtool.model.inspect import inspect as inspect
    from onnxtool.model.provenance.verify import verify as verify
    from onnxtool.optimization.optimize import optimize as optimize
    from onnxtool.packaging.package import package as package
    from onnxtool.quantization.quantize import quantize as quantize
    from onnxtool.runtime.doctor import doctor as doctor
    from onnxtool.runtime.run import run as run
    from onnxtool.runtime.view import view as view
    from onnxtool.serving.serve import serve as serve
    from onnxtool.walkthrough import quickstart as quickstart
    from onnxtool.workflow.build import build as build
    from onnxtool.workflow.cache import cache as cache
    from onnxtool.workflow.init import init as init


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        module, attribute = _FUNCTIONS[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'onnxtool' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
