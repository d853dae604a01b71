"""One labelled input, and how much effort goes into trying more of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtool.model.spec import TensorSpec
from onnxtool.options.shared import Effort
from onnxtool.report.proof import TrialKind
from onnxtool.runtime.feeds import Feeds

EXACTLY = "values of exactly"  # how labels of inputs of one number begin, which the graphs tell
# Seconds that any model has for inputs beyond the usual ones, and the share of the time of the usual ones.
_SECONDS = {"quick": (1.0, 0.25), "normal": (5.0, 0.5), "thorough": (60.0, 10.0)}
_CLOCK = 3.0  # seconds on the clock for each of the thread's own


@dataclass(frozen=True)
class Trial:
    """One input to hold two models against each other on.

    Attributes:
        label: what is particular about it: "length 300", "mask padded on the left".
        kind: what its verdict depends on.
        feeds: the inputs.
        outputs: what the reference gives; empty before it was run.
    """

    label: str
    kind: TrialKind
    feeds: Feeds
    outputs: Mapping[str, Any] = field(default_factory=dict)


def count_elements(feeds: Feeds) -> float:
    """How many elements inputs have."""
    return float(sum(np.size(array) for array in feeds.values()))


class Budget:
    """Time for trials, on both models together.

    It is the processor time of the calling thread, so that a busy machine does not make a proof smaller; a few times as
    much on the clock ends it all the same.

    Args:
        effort: how much of it.
        usual: seconds that the usual inputs took, which is what the proof costs anyway.
    """

    def __init__(self, effort: Effort = "normal", usual: float = 0.0) -> None:
        least, share = _SECONDS[effort]
        self.effort = effort
        self.seconds = max(least, share * usual)
        self._began = time.thread_time(), time.perf_counter()

    @property
    def left(self) -> float:
        """Seconds that remain; negative when it is spent."""
        own, clock = time.thread_time() - self._began[0], time.perf_counter() - self._began[1]
        return min(self.seconds - own, _CLOCK * self.seconds - clock)

    def part(self, share: float) -> Budget:
        """A share of what is left, as a budget of its own."""
        own = Budget(self.effort)
        own.seconds = max(0.0, self.left * share)
        return own


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
