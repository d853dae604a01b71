"""Importing frameworks before a file is looked at, so that the limits of loading it begin after that.

What fails here fails again, and is said, where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from onnxtool.conversion.tensorflow.environment import importing
from onnxtool.runtime.isolation import ending_code


def import_all(modules: Iterable[str], verbose: int = 0) -> None:
    """Import what can be imported of these, without a word on the terminal (below `verbose` 2)."""
    with importing(verbose):
        for name in modules:
            try:
                import_module(name)
            except Exception:
                if ending_code() is not None:
                    raise  # Ctrl-C, which a library's initialization has turned into an error of its own
