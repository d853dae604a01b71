"""What other packages bring: passes, adapters, operations, formats. Each registry reads entry points of a group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from onnxtool.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True)
class Extension:
    """Something that a package brings.

    Attributes:
        name: that of the entry point.
        package: where it comes from.
        entry: the entry point.
    """

    name: str
    package: str
    entry: EntryPoint

    def load(self) -> Any:
        """What the entry point names.

        Raises:
            UsageError: it cannot be loaded.
        """
        with self._loading():
            return self.entry.load()

    def make(self) -> Any:
        """What the class or function that it names gives, called without arguments. Errors as of `load`."""
        with self._loading():
            return self.entry.load()()

    @contextmanager
    def _loading(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise UsageError(f"{self} cannot be loaded: {error}") from error

    def __str__(self) -> str:
        return f"{self.name!r} of {self.package} ({self.entry.group})"


@cache
def installed_extensions(group: str) -> tuple[Extension, ...]:
    """What installed packages bring under a group of entry points, by name.

    Looked for once: going through all packages takes a tenth of a second.
    """
    from importlib.metadata import entry_points

    found = sorted(entry_points(group=group), key=lambda e: e.name)
    return tuple(Extension(e.name, e.value if e.dist is None else e.dist.name, e) for e in found)
