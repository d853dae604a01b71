"""What torch.export decided is tried at fewer sizes, except where the test is about that."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_ABOUT_GUARDS = {"test_decided_sizes.py", "test_traced_branches.py"}


@pytest.fixture(scope="module", autouse=True)
def fewer_sizes(request: pytest.FixtureRequest) -> Iterator[None]:
    """A comparison of sizes is put to each size up to 64 and bisected beyond, in place of 1,100.

    Each size is a substitution by sympy, several hundred thousand in a run of these tests.
    """
    guards = pytest.importorskip("onnxtool.conversion.pytorch.guards")
    with pytest.MonkeyPatch.context() as patch:
        if Path(request.path).name not in _ABOUT_GUARDS:
            patch.setattr(guards, "_LARGEST", 64)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_translation_table() -> Iterator[None]:
    """torch.onnx.export parses the source of its 500 translations for each export; here once for all of them."""
    registration = pytest.importorskip("torch.onnx._internal.exporter._registration")
    made = functools.cache(registration.ONNXRegistry.from_torchlib)

    def copied(cls: type[Any], opset_version: int = registration._constants.TORCHLIB_OPSET) -> Any:
        table, known = cls(), made(opset_version)
        table._opset_version = known._opset_version
        table.functions = {target: list(found) for target, found in known.functions.items()}
        return table

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration.ONNXRegistry, "from_torchlib", classmethod(copied))
        yield
