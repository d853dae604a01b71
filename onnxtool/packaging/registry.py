"""Which kinds of package there are."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from onnxtool.errors import UsageError
from onnxtool.packaging.kind import PackageKind

# name -> (module, class)
BUILT_IN: Mapping[str, tuple[str, str]] = {
    "fastapi": ("onnxtool.packaging.kinds.fastapi", "FastApi"),
    "kserve": ("onnxtool.packaging.kinds.kserve", "KServe"),
    "triton": ("onnxtool.packaging.kinds.triton", "Triton"),
    "mlflow": ("onnxtool.packaging.kinds.mlflow", "MlFlow"),
    "ort": ("onnxtool.packaging.kinds.ort", "Ort"),
    "cpp": ("onnxtool.packaging.kinds.cpp", "Cpp"),
    "web": ("onnxtool.packaging.kinds.web", "Web"),
    "azureml": ("onnxtool.packaging.kinds.azureml", "AzureMl"),
}


def find_kind(name: str) -> PackageKind:
    """The kind of this name.

    Raises:
        UsageError: there is none.
    """
    if name not in BUILT_IN:
        raise UsageError(f"--for {name}: is not a kind of package; there is {', '.join(BUILT_IN)}.")
    module, attribute = BUILT_IN[name]
    made: PackageKind = getattr(import_module(module), attribute)()
    return made
