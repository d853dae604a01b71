"""Inputs with changed values, and which inputs are masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtool.model.spec import TensorSpec
from onnxtool.report.trial_kind import TrialKind
from onnxtool.runtime.feeds import Feeds

Changed = tuple[str, TrialKind, Feeds]  # label, kind, feeds


def is_kind(spec: TensorSpec, kinds: str) -> bool:
    """Whether its numbers are of these kinds, as NumPy calls them."""
    return isinstance(spec.dtype, np.dtype) and spec.dtype.kind in kinds


def is_mask(spec: TensorSpec) -> bool:
    """Whether an input says which elements of another are there."""
    return "mask" in spec.name.lower() and is_kind(spec, "iubf") and len(spec.shape or ()) >= 2


def cast(specs: Sequence[TensorSpec], arrays: Mapping[str, Any]) -> Feeds:
    """Arrays in the types of the inputs."""
    with np.errstate(all="ignore"):
        return {s.name: np.asarray(arrays[s.name]).astype(s.dtype) for s in specs}
