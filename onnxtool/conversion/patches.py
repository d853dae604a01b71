"""Corrections of other libraries as data, each applied to the versions that need it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Generic, ParamSpec, TypeVar

from onnxtool.model.provenance.metadata import installed_version

Inputs = ParamSpec("Inputs")
Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True)
class Patch(Generic[Inputs, Result_co]):
    """A correction of another library: of its code while it works (`LibraryPatch`), or of what it has made.

    A `test_patches.py` in `tests/conversion/` converts a model with each patch turned off: where that works, the patch
    has become needless and goes.

    Attributes:
        library: its name among the installed distributions: "skl2onnx".
        below: the first version that is not corrected; "" where none is known to be right. Where the library lacks
            something, `apply` looks whether it still does.
        upstream: what is wrong there: a sentence, or the address of its report.
        apply: gives a context inside which the library is corrected, or takes what is to be corrected.
    """

    library: str
    below: str
    upstream: str
    apply: Callable[Inputs, Result_co]

    @property
    def is_needed(self) -> bool:
        """Whether the installed version needs it; one that is not known does."""
        installed = installed_version(self.library)
        return not self.below or not installed or _release(installed) < _release(self.below)


LibraryPatch = Patch[[], AbstractContextManager[object]]


@contextmanager
def applied(
    patches: Iterable[Patch[Inputs, AbstractContextManager[object]]], *given: Inputs.args, **more: Inputs.kwargs
) -> Iterator[None]:
    """Inside the block, the libraries are corrected by those of the patches that the installed versions need."""
    with ExitStack() as stack:
        for patch in patches:
            if patch.is_needed:
                stack.enter_context(patch.apply(*given, **more))
        yield


def correct(patches: Iterable[Patch[Inputs, object]], *made: Inputs.args, **more: Inputs.kwargs) -> None:
    """Correct what libraries have made, by those of the patches that the installed versions need."""
    for patch in patches:
        if patch.is_needed:
            patch.apply(*made, **more)


@contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """Inside the block, an attribute of a module or class has another value."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _release(text: str) -> tuple[int, ...]:
    """ "1.21.0rc1" -> (1, 21, 0)."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
