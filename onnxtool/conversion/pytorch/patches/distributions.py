"""torch.distributions without the checks of their arguments, which branch on the data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.distributions import Distribution

from onnxtool.conversion.patches import Patch, replaced


@contextmanager
def unchecked_distributions() -> Iterator[None]:
    """Inside the block, distributions are made without checks, as in Python with -O.

    A check can only raise an error: the source, which keeps it, refuses such inputs.
    """
    with replaced(Distribution, "_validate_args", False):
        yield


@contextmanager
def _unchecked(_module: torch.nn.Module, _opset: int) -> Iterator[None]:
    with unchecked_distributions():
        yield


PATCH = Patch("torch", "", "distributions check their arguments by a branch on the data", _unchecked)
