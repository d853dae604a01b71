"""How a run in a process of its own ends without an answer."""

from __future__ import annotations

from onnxtool.errors import InputError, ResourceError


class WorkerDiedError(InputError):
    """The model's process died on these inputs, or while it loaded the model."""


class WorkerTimeoutError(ResourceError):
    """A run took too long and was ended with its process."""


class OutOfTableError(InputError):
    """An id that a table has no row for.

    Attributes:
        input: the model's input that holds it.
        value: the id.
    """

    def __init__(self, message: str, input: str, value: int) -> None:
        super().__init__(message)
        self.input = input
        self.value = value
