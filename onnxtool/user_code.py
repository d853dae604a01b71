"""Functions of Python files that the user names: generators of samples, and metrics."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.errors import InputError


def load_function(script: Path, function: str) -> Callable[..., Any]:
    """A function of a Python file that the user named.

    Raises:
        InputError: no such file or function, or the file fails to run.
    """
    if not script.is_file():
        raise InputError(f"{script}: no such file.")
    spec = importlib.util.spec_from_file_location(f"onnxtool_user_{script.stem}", script)
    if spec is None or spec.loader is None:
        raise InputError(f"{script}: cannot be read as a Python file.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{script}: fails to run: {type(error).__name__}: {error}") from error
    call = getattr(module, function, None)
    if not callable(call):
        raise InputError(f"{script}: there is no function {function!r} in it.")
    return call  # type: ignore[no-any-return]


def read_items(call: Callable[[], Any], label: str) -> Iterator[Mapping[str, np.ndarray]]:
    """What a generator function gives, one sample at a time.

    Raises:
        InputError: it fails, or gives nothing that could be gone through.
    """
    given = 0
    try:
        for item in call():
            yield as_feeds(item)
            given += 1
    except Exception as error:  # the user's own code
        raise InputError(f"{label}: fails at sample {given}: {type(error).__name__}: {error}") from error


def as_feeds(item: Any) -> Mapping[str, np.ndarray]:
    """Named arrays, or a lone one under ""."""
    if isinstance(item, Mapping):
        return {str(k): np.asarray(v) for k, v in item.items()}
    return {"": np.asarray(item)}
