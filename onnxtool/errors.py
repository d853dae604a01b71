"""The one exception family. Each class carries the exit code that the command line gives for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class OnnxToolError(Exception):
    """Base of every error that onnxtool raises on purpose.

    The message is one line that a person can act on: the file, the cause, what to do.
    """

    exit_code: ClassVar[int] = 70


class VerdictError(OnnxToolError):
    """The work was done and its verdict is bad, so that nothing was written (outputs differ, budget missed)."""

    exit_code = 1


class UsageError(OnnxToolError):
    """The options do not fit together, or an argument cannot be used."""

    exit_code = 2


class InputError(OnnxToolError):
    """A file is missing, unreadable or not valid, or data does not fit the model."""

    exit_code = 3


class UnsupportedError(OnnxToolError):
    """An operator or a framework feature that cannot be handled."""

    exit_code = 4


class MissingExtraError(UnsupportedError):
    """An optional framework is not installed."""

    def __init__(self, subject: str, package: str, extra: str) -> None:
        super().__init__(
            f"{subject}: this needs {package}, which is not installed. Run, in a clone of onnxtool: "
            f'pip install ".[{extra}]"'
        )
        self.extra = extra


class UnsafeError(OnnxToolError):
    """Refused: the input could run code or reach outside its folder."""

    exit_code = 5


class ResourceError(OnnxToolError):
    """Out of memory, time or disk, or a size beyond the limits."""

    exit_code = 6


def one_line(error: object, limit: int = 300) -> str:
    """What an error of another library says, in one line."""
    return " ".join(str(error).split())[:limit]


def first_line(error: BaseException, limit: int = 300) -> str:
    """The first line of what an error of another library says; its class where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:limit]


@contextmanager
def needs_extra(subject: str, package: str, extra: str) -> Iterator[None]:
    """Inside the block, a package that is not installed is a MissingExtraError: which extra brings it."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(subject, package, extra) from error


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Inside the block, a file that cannot be read is an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Inside the block, a file that cannot be written is a ResourceError."""
    try:
        yield
    except OSError as error:
        raise ResourceError(
            f"{path}: cannot be written ({error.strerror or error}). The old file, if any, is untouched."
        ) from error
