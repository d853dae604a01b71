"""What all tests of JAX share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def compiled_plainly() -> Iterator[None]:
    """XLA compiles each function for each shape, which takes longer than all its runs: without most optimizations."""
    jax = pytest.importorskip("jax")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
