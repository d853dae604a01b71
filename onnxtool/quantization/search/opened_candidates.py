"""Candidates that are loaded: one is judged, timed, judged on more samples and timed again by the same session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from onnxtool.model import io
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.runner import OnnxRunner

_KEPT = 2  # sessions; each keeps the memory of its largest run
_MOST_KEPT = 100_000_000  # bytes of their models


@dataclass(frozen=True)
class Opened:
    """A candidate that is loaded.

    Attributes:
        model: serialized.
        operators: how many of each type it has.
        runner: its session.
    """

    model: bytes
    operators: Mapping[str, int]
    runner: OnnxRunner


class OpenedCandidates:
    """A few loaded candidates, the fastest of those that were asked for."""

    def __init__(self, build: Callable[[QuantRecipe], ir.Model], load: Callable[[bytes], OnnxRunner]) -> None:
        """Build and load what is not kept."""
        self._build, self._load = build, load
        self._kept: list[tuple[QuantRecipe, Callable[[], float], Opened]] = []

    def get(self, recipe: QuantRecipe, speed: Callable[[], float]) -> Opened:
        """A loaded candidate; `speed` tells its latency as it is known later on, by which those to keep are chosen."""
        known = next((opened for kept, _, opened in self._kept if kept == recipe), None)
        if known is not None:
            return known
        model = self._build(recipe)
        operators = Counter(n.op_type for n in model.graph.all_nodes())
        payload = io.to_proto(model).SerializeToString()
        opened = Opened(payload, operators, self._load(payload))
        while self._kept and (
            len(self._kept) >= _KEPT or len(payload) + sum(len(o.model) for _, _, o in self._kept) > _MOST_KEPT
        ):
            self._kept.remove(max(self._kept, key=lambda kept: kept[1]()))
        self._kept.append((recipe, speed, opened))
        return opened
