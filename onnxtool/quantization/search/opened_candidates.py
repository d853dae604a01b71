"""Candidates that are built and loaded: one is judged, timed, judged on more samples and timed again by one session."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
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
Speed = Callable[[], float]
_Kept = TypeVar("_Kept")


class ScratchModel:
    """A model's path in a temporary folder, which is there as long as anybody holds this object."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="onnxtool-")
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def __fspath__(self) -> str:
        return os.path.join(self._folder, "model.onnx")


def on_disk(model: ir.Model) -> ir.Model:
    """The same with its weights in a scratch file, which is there as long as the model."""
    file = ScratchModel()
    io.save(model, Path(file), external=True)
    stored = io.load(Path(file))
    stored.meta["scratch"] = file
    return stored


@dataclass(frozen=True)
class Built:
    """A candidate that is built.

    Attributes:
        model: serialized, or a file.
        spare: bytes that storing float weights in 8 bits would save.
        size: bytes.
    """

    model: bytes | ScratchModel
    spare: int
    size: int

    @classmethod
    def of(cls, model: ir.Model, *, on_disk: bool) -> Built:
        """Of a model in memory, or of one whose weights are not to stay there."""
        spare = spared(model.graph)
        if not on_disk:
            written = io.to_bytes(model)
            return cls(written, spare, len(written))
        file = ScratchModel()
        io.save(model, Path(file), external=True)
        return cls(file, spare, io.total_bytes(Path(file)))


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
        load: Callable[[Built], OnnxRunner],
        release: Callable[[], None] = lambda: None,
        *,
        on_disk: bool = False,
    ) -> None:
        """Build and load what is not kept; `release` is called when a candidate has been built."""
        self._build, self._load, self._release, self._on_disk = build, load, release, on_disk
        self._models: _Fastest[Built] = _Fastest()
        self._sessions: _Fastest[tuple[int, OnnxRunner]] = _Fastest()

    def built(self, recipe: QuantRecipe, speed: Speed) -> Built:
        """A candidate's model; `speed` tells its latency as it is known later on, by which those to keep are chosen."""
        known = self._models.get(recipe)
        if known is not None:
            return known
        found = Built.of(self._build(recipe), on_disk=self._on_disk)
        self._release()
        self._models.put(
            recipe,
            speed,
            found,
            lambda kept: len(kept) <= _KEPT_MODELS and sum(b.size for b in kept) <= _MOST_MODEL_BYTES,
        )
        return found

    def session(self, recipe: QuantRecipe, speed: Speed) -> OnnxRunner:
        """A candidate's session."""
        known = self._sessions.get(recipe)
        if known is not None:
            return known[1]
        built = self.built(recipe, speed)
        release_memory(built.size)  # what building has freed
        runner = self._load(built)
        self._sessions.put(
            recipe,
            speed,
            (built.size, runner),
            lambda kept: len(kept) <= _KEPT_SESSIONS and sum(size for size, _ in kept) <= _MOST_BYTES,
        )
        return runner
