"""onnxscript's rules, which torch's exporter applies: a constant is a pattern's number, and not one near to it.

They take x + 1e-8 for x + 0, so that what is divided by a norm and 1e-8 is NaN where the norm is zero, and
x * 1.000009 for x * 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
from onnxscript.rewriter import _matcher

from onnxtool.conversion.patches import LibraryPatch, replaced


@contextmanager
def _exact() -> Iterator[None]:
    with replaced(_matcher, "math", SimpleNamespace(isclose=_is_written)):
        yield


def _is_written(constant: float, wanted: float, **_: object) -> bool:
    """Whether a constant is what is left of a number in float64, float32 or float16."""
    with np.errstate(over="ignore"):
        return constant in (wanted, float(np.float32(wanted)), float(np.float16(wanted)))


PATCH = LibraryPatch("onnxscript", "", "onnxscript 0.7.2 takes numbers within 1e-8 for a pattern's", _exact)
