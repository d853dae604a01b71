"""Importing and calling TensorFlow without its chatter on the terminal."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from onnxtool.errors import MissingExtraError, UnsupportedError, needs_extra
from onnxtool.runtime.worker.isolation import descriptors_silenced

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LOGGERS = ("tensorflow", "absl", "tf2onnx", "h5py", "numba")


def import_tensorflow(subject: str, verbose: int = 0) -> Any:
    """Import TensorFlow, on the CPU and silent below `verbose` 2.

    Args:
        subject: the file being converted, for the message.
        verbose: how much the user wants to see (-v counted).

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        with importing(verbose):
            import tensorflow
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] != "tensorflow":
            raise
        raise MissingExtraError(subject, "TensorFlow", "keras") from error
    return tensorflow


def prepare_environment(verbose: int = 0) -> None:
    """Set what TensorFlow reads once, when it loads. oneDNN sums in another order, which blurs what is compared."""
    if "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if verbose >= 2 else "3")


def import_keras(subject: str, verbose: int = 0) -> Any:
    """Import Keras on TensorFlow, whatever KERAS_BACKEND or keras.json say; silent below `verbose` 2.

    Raises:
        MissingExtraError: Keras or TensorFlow is not installed.
        UnsupportedError: this process has imported Keras on another backend already.
    """
    import_tensorflow(subject, verbose)
    with needs_extra(subject, "Keras", "keras"), importing(verbose):
        import keras
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise UnsupportedError(
            f"{subject}: Keras runs on its {backend} backend here, and Keras models are converted on TensorFlow's. "
            "Leave KERAS_BACKEND to onnxtool; .keras files do not depend on the backend."
        )
    return keras


@contextmanager
def importing(verbose: int = 0) -> Iterator[None]:
    """For imports of frameworks: without a word on the terminal (below `verbose` 2), and with Keras on TensorFlow.

    TensorFlow imports Keras, which takes its backend for good. Garbage is not looked for meanwhile: what is imported
    stays, and looking through it takes a fifth of an import's time.
    """
    prepare_environment(verbose)
    collects = gc.isenabled()
    gc.disable()
    try:
        with quiet(verbose), silent_native_stderr(verbose), tensorflow_backend():
            yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def tensorflow_backend() -> Iterator[None]:
    """Inside the block an import of Keras takes TensorFlow: other backends cannot be traced into a graph here."""
    wanted = os.environ.get("KERAS_BACKEND")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    try:
        yield
    finally:
        if wanted is None:
            del os.environ["KERAS_BACKEND"]
        else:
            os.environ["KERAS_BACKEND"] = wanted


def reason(error: Exception, limit: int = 300) -> str:
    """The message of a framework's exception in one line, without colours and without Keras's list of arguments."""
    text = " ".join(_COLOURS.sub("", str(error)).split("Arguments received by")[0].split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


@contextmanager
def quiet(verbose: int = 0) -> Iterator[None]:
    """Inside the block, third-party code neither warns nor logs (below `verbose` 2)."""
    if verbose >= 2:
        yield
        return
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in levels:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)


@contextmanager
def silent_native_stderr(verbose: int = 0) -> Iterator[None]:
    """Inside the block, nothing reaches the terminal's error stream (below `verbose` 2). Native code of TensorFlow
    writes there whatever the log level. Keep it short: progress goes there too.
    """
    with nullcontext() if verbose >= 2 else descriptors_silenced(2):
        yield
