"""What torch.export decided is tried at fewer sizes, except where the test is about that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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
