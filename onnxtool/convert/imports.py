"""Importing frameworks before a file is looked at, so that the limits of loading it begin after that.

What fails here fails again, and is said, where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module

from onnxtool.convert.tensorflow_quiet import prepare_environment, quiet, silent_native_stderr, tensorflow_backend


def import_all(modules: Iterable[str], verbose: int = 0) -> None:
    """Import what can be imported of these, without a word on the terminal (below `verbose` 2)."""
    prepare_environment(verbose)
    with quiet(verbose), silent_native_stderr(verbose), tensorflow_backend():
        for name in modules:
            with suppress(Exception):
                import_module(name)
