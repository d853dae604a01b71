"""Code of Python files that the user names: factories, generators of samples, metrics; naming it is consent."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from onnxtool.errors import InputError, UsageError


def load_file(path: Path, subject: str) -> ModuleType:
    """Run a Python file as a module.

    Args:
        path: the file; its folder is on the path for its own imports.
        subject: how messages begin: the option and what was written after it.

    Raises:
        UsageError: no such file.
        InputError: the file fails to run.
    """
    if not path.is_file():
        raise UsageError(f"{subject}: no such file {path}.")
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{subject}: {path} cannot be read as a Python file.")
    module = module_from_spec(spec)
    # Registered, so that pickles and dataclasses inside find their module.
    sys.modules.setdefault(path.stem, module)
    with importable([path.parent]):
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{subject}: {path} fails to import: {type(error).__name__}: {reason}") from error
    return module


def load_function(script: Path, function: str) -> Callable[..., Any]:
    """A function of a Python file.

    Raises:
        UsageError: no such file or function.
        InputError: the file fails to run.
    """
    subject = f"{script}:{function}"
    call = getattr(load_file(script, subject), function, None)
    if not callable(call):
        raise UsageError(f"{subject}: there is no function {function!r} in {script}.")
    return call  # type: ignore[no-any-return]


@contextmanager
def importable(folders: Sequence[Path]) -> Iterator[None]:
    """Let imports find modules in `folders` inside the block."""
    added = [os.path.abspath(f) for f in folders]
    sys.path[:0] = added
    try:
        yield
    finally:
        for entry in added:
            if entry in sys.path:
                sys.path.remove(entry)


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
