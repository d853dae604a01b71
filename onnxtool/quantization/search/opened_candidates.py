"""Candidates that are built and loaded: one is judged, timed, judged on more samples and timed again by one session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import onnx_ir as ir

from onnxtool.model import io
from onnxtool.quantization.algorithms.weight_storage import spared
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.memory import release_memory

_KEPT_SESSIONS = 2  # each keeps the memory of its largest run
_MOST_BYTES = 64_000_000  # of their models
_KEPT_MODELS, _MOST_MODEL_BYTES = 12, 24_000_000  # where they are not loaded
_LARGE = 16_000_000  # bytes of a model, whose graph refers to itself in circles and would stay until Python looks
Speed = Callable[[], float]
_Kept = TypeVar("_Kept")


@dataclass(frozen=True)
class Built:
    """A candidate that is built.

    Attributes:
        model: serialized.
        spare: bytes that storing float weights in 8 bits would save.
    """

    model: bytes
    spare: int


class _Fastest(Generic[_Kept]):
    """What belongs to some recipes; the slowest go first."""

    def __init__(self) -> None:
        self._entries: list[tuple[QuantRecipe, Speed, _Kept]] = []

    def get(self, recipe: QuantRecipe) -> _Kept | None:
        return next((kept for known, _, kept in self._entries if known == recipe), None)

    def put(self, recipe: QuantRecipe, speed: Speed, one: _Kept, fits: Callable[[list[_Kept]], bool]) -> None:
        while self._entries and not fits([*(kept for _, _, kept in self._entries), one]):
            self._entries.remove(max(self._entries, key=lambda entry: entry[1]()))
        self._entries.append((recipe, speed, one))


class OpenedCandidates:
    """A few built candidates and fewer sessions, those of the fastest that were asked for."""

    def __init__(
        self,
        build: Callable[[QuantRecipe], ir.Model],
        load: Callable[[bytes], OnnxRunner],
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """Build and load what is not kept; `release` is called when a candidate has been built."""
        self._build, self._load, self._release = build, load, release
        self._models: _Fastest[Built] = _Fastest()
        self._sessions: _Fastest[tuple[int, OnnxRunner]] = _Fastest()

    def built(self, recipe: QuantRecipe, speed: Speed) -> Built:
        """A candidate's model; `speed` tells its latency as it is known later on, by which those to keep are chosen."""
        known = self._models.get(recipe)
        if known is not None:
            return known
        model = self._build(recipe)
        found = Built(io.to_bytes(model), spared(model.graph))
        del model
        self._release()
        self._models.put(
            recipe,
            speed,
            found,
            lambda kept: len(kept) <= _KEPT_MODELS and sum(len(b.model) for b in kept) <= _MOST_MODEL_BYTES,
        )
        return found

    def session(self, recipe: QuantRecipe, speed: Speed) -> OnnxRunner:
        """A candidate's session."""
        known = self._sessions.get(recipe)
        if known is not None:
            return known[1]
        model = self.built(recipe, speed).model
        release_memory(collect=len(model) > _LARGE)  # what building has freed
        runner = self._load(model)
        self._sessions.put(
            recipe,
            speed,
            (len(model), runner),
            lambda kept: len(kept) <= _KEPT_SESSIONS and sum(size for size, _ in kept) <= _MOST_BYTES,
        )
        return runner
