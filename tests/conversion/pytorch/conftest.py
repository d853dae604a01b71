"""What torch.export decided is tried at fewer sizes, except where the test is about that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.warm_process import translations_read_once

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
def one_translation_table() -> None:
    """Translations are read once for all exports."""
    pytest.importorskip("torch.onnx._internal.exporter._registration")
    translations_read_once()


@pytest.fixture(scope="session", autouse=True)
def standard_operators_listed_once() -> Iterator[None]:
    """torch goes through all its operators for each export, where onnxtool has it do so once; here once for all."""
    utils = pytest.importorskip("torch._export.utils")
    look = utils._collect_all_valid_cia_ops_for_namespace
    known: dict[str, object] = {}

    def listed(namespace: Any) -> object:
        if namespace.name != "aten":  # operators of other packages and of tests come and go
            return look(namespace)
        if "aten" not in known:
            known["aten"] = look(namespace)
        return known["aten"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "_collect_all_valid_cia_ops_for_namespace", listed)
        yield
