"""Is a correction of another library still needed? What is converted with it turned off tells."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module

import pytest

from onnxtool.conversion.patches import Patch
from onnxtool.errors import OnnxToolError

NEEDED = Patch.is_needed


def patches_of(package: str) -> list[Patch[..., object]]:
    """All that the modules of a package have: alone, in a tuple or in a table."""
    found: dict[int, Patch[..., object]] = {}
    for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
        for value in vars(import_module(module.name)).values():
            found.update((id(patch), patch) for patch in _patches_in(value))
    return list(found.values())


def _patches_in(value: object) -> Iterator[Patch[..., object]]:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
    yield from (member for member in members if isinstance(member, Patch))


def hold_needed(patch: Patch[..., object], is_right: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a model comes out right with a correction turned off.

    Args:
        patch: the correction.
        is_right: converts a model that needs it; an error of the tool's own counts as not right.
        monkeypatch: pytest's.
    """
    if not patch.is_needed:
        pytest.skip(f"{patch.library} is newer than {patch.below} here")
    assert is_right(), "a case that fails with the correction says nothing"
    off = property(lambda self: self is not patch and NEEDED.fget(self))  # type: ignore[attr-defined]
    monkeypatch.setattr(Patch, "is_needed", off)
    try:
        right = is_right()
    except OnnxToolError:
        return
    assert not right, f"needless with this {patch.library}, so it goes: {patch.upstream}"
