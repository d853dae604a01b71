"""Runners of models so large that only one of them is loaded at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnxruntime as ort

from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.runner import CastingRunner, OnnxRunner
from onnxtool.runtime.session.memory import release_memory


class Turn:
    """Which of several runners is loaded; another one's turn ends with the memory given back."""

    def __init__(self) -> None:
        self._whose: object = None
        self._loaded: OnnxRunner | None = None

    def take(self, whose: object, opening: Callable[[], OnnxRunner]) -> OnnxRunner:
        """The session of `whose`, loaded by `opening` unless it is."""
        if self._loaded is None or self._whose is not whose:
            self.end()
            self._whose, self._loaded = whose, opening()
        return self._loaded

    def end(self) -> None:
        """Unload what is loaded."""
        if self._loaded is not None:
            self._whose = self._loaded = None
            release_memory()


class RunnerInTurn(CastingRunner):
    """A session that is loaded when it runs, after which no other one of its turn is.

    Attributes:
        seconds: what its runs took, once that was measured: it is not loaded again to be timed beside others.
    """

    def __init__(self, turn: Turn, opening: Callable[[], OnnxRunner]) -> None:
        """Load it, so that a model that cannot be loaded raises here; `opening` raises as `OnnxRunner.open`."""
        self._turn, self._opening = turn, opening
        self.seconds: tuple[float, ...] | None = None
        super().__init__(self.session)
        del self._session  # the turn has it

    @property
    def session(self) -> ort.InferenceSession:
        """The loaded session."""
        return self._turn.take(self, self._opening).session

    def run(self, feeds: Feeds) -> dict[str, Any]:
        """One forward pass; raises as `OnnxRunner.run`."""
        return self._turn.take(self, self._opening).run(feeds)
