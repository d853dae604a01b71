"""onnxtool: any trained model to a checked, proven-equal, optimized and quantized ONNX file.

The functions here mirror the commands and return report objects (`onnxtool.report`). They are imported when
first used, so that `import onnxtool` loads neither a framework nor ONNX Runtime.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from onnxtool.deferred import defer

__version__ = "0.1.0"

# ONNX Runtime from 1.31 on sends usage events over the network, and marks the temporary folder, when it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
defer()

# name -> (module, attribute). `convert`, `optimize` and `quantize` are folders too; see callable_module.
_FUNCTIONS = {
    "bench": ("onnxtool.validate.bench", "bench"),
    "check": ("onnxtool.validate.check", "check"),
    "compare": ("onnxtool.validate.compare", "compare"),
    "convert": ("onnxtool", "convert"),
    "diff": ("onnxtool.model.diff", "diff"),
    "doctor": ("onnxtool.runtime.doctor", "doctor"),
    "inspect": ("onnxtool.model.inspect", "inspect"),
    "optimize": ("onnxtool", "optimize"),
    "quantize": ("onnxtool", "quantize"),
    "quickstart": ("onnxtool.cli.quickstart_job", "quickstart"),
    "run": ("onnxtool.runtime.run", "run"),
    "verify": ("onnxtool.model.verify", "verify"),
}
_PACKAGES = ("convert", "optimize", "quantize")

__all__ = ["__version__", *sorted(_FUNCTIONS)]  # noqa: PLE0604  (names are served by __getattr__)

if TYPE_CHECKING:  # what type checkers see of the lazy names
    from onnxtool.cli.quickstart_job import quickstart as quickstart
    from onnxtool.convert.api import convert as convert
    from onnxtool.model.diff import diff as diff
    from onnxtool.model.inspect import inspect as inspect
    from onnxtool.model.verify import verify as verify
    from onnxtool.optimize.api import optimize as optimize
    from onnxtool.quantize.api import quantize as quantize
    from onnxtool.runtime.doctor import doctor as doctor
    from onnxtool.runtime.run import run as run
    from onnxtool.validate.bench import bench as bench
    from onnxtool.validate.check import check as check
    from onnxtool.validate.compare import compare as compare


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"onnxtool.{name}")
    if name in _FUNCTIONS:
        module, attribute = _FUNCTIONS[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'onnxtool' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
