"""Exporters print, log and warn a great deal; none of it reaches the terminal below -vv."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterable, Iterator
from importlib import import_module

from onnxtool.conversion.tensorflow.environment import importing
from onnxtool.runtime.worker.isolation import descriptors_silenced, ending_code


@contextlib.contextmanager
def quiet(verbose: int, *, native: bool = False) -> Iterator[list[warnings.WarningMessage]]:
    """Silence Python's prints, logs and warnings inside the block; yields the warnings, which may say something.

    Args:
        verbose: from 2 on, all is let through.
        native: silence the C++ side too, by turning the process's stdout and stderr away for the time. The
            TorchScript exporter prints whole graphs that way when it fails.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if verbose >= 2:
            yield caught
            return
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
                descriptors_silenced(1, 2) if native else contextlib.nullcontext(),
            ):
                yield caught
        finally:
            logging.disable(disabled)


def import_all(modules: Iterable[str], verbose: int = 0) -> None:
    """Import what can be imported of these, without a word on the terminal (below `verbose` 2)."""
    with importing(verbose):
        for name in modules:
            try:
                import_module(name)
            except Exception:
                if ending_code() is not None:
                    raise  # Ctrl-C, which a library's initialization has turned into an error of its own
