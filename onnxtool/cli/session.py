"""The options of the runtime that commands share, as one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxtool.runtime.session.session import OptimizationLevel, SessionOptions


def session_options(
    provider: Sequence[str] | None,
    threads: int | None = None,
    custom_op_library: Sequence[Path] | None = None,
    ep_library: Sequence[str] | None = None,
    optimization: OptimizationLevel = "all",
) -> SessionOptions:
    """What --provider, --threads, --custom-op-library and --ep-library ask for."""
    from onnxtool.runtime.session.session import SessionOptions

    return SessionOptions(
        tuple(provider or ()),
        threads,
        optimization,
        custom_op_libraries=tuple(_library(path) for path in custom_op_library or ()),
        ep_libraries=tuple(ep_library or ()),
    )


def _library(path: Path) -> Path:
    """A shared library; that of onnxruntime-extensions by the package's name."""
    from onnxtool.runtime.session.extensions import NAMES, extensions_library

    return extensions_library(f"--custom-op-library {path}") if str(path) in NAMES else path
