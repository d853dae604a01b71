"""Which kinds of package there are, and a package folder as a Runner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from onnxtool.errors import UnsafeError, UnsupportedError, UsageError
from onnxtool.packaging.kind import PackageKind
from onnxtool.packaging.manifest import read_manifest
from onnxtool.packaging.server_process import ServerRunner
from onnxtool.runtime.runner import Runner, closing

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


@contextmanager
def serve_package(folder: Path, *, trust: bool) -> Iterator[str]:
    """Inside the block the server of a package folder runs; gives the URL of its model.

    Args:
        folder: written by `package`.
        trust: whether its code may run.

    Raises:
        UnsafeError: without trust.
        UsageError: a package that is no server.
        InputError: not a package, or it does not start.
    """
    runner = open_package(folder, trust=trust)
    with closing(runner):
        if not isinstance(runner, ServerRunner):
            raise UsageError(f"{folder}: is a package for {read_manifest(folder).kind}, which is not a server here.")
        yield runner.endpoint


def open_package(folder: Path, *, trust: bool) -> Runner:
    """Start what a package folder holds.

    Args:
        folder: written by `package`.
        trust: whether its code may run.

    Raises:
        UnsafeError: without trust.
        UnsupportedError: a bundle's package, or one of a later onnxtool.
        InputError: not a package, or it does not start.
    """
    manifest = read_manifest(folder)
    if not trust:
        raise UnsafeError(f"{folder}: comparing a package runs its code. Pass --trust if you trust it.")
    if manifest.kind not in BUILT_IN:
        raise UnsupportedError(f"{folder}: a package of the kind {manifest.kind!r} cannot be run here.")
    runner, _ = find_kind(manifest.kind).start(folder, None)
    return runner
