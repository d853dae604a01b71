"""What is served is looked at again and again, and a changed file is taken in when it has passed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from onnxtool.errors import OnnxToolError
from onnxtool.serving.admission import Signature, file_signature
from onnxtool.serving.logs import Log
from onnxtool.serving.metrics import Metrics
from onnxtool.serving.targets import ServeTarget

_TRIES = 3
Loaded = TypeVar("Loaded")


class Reloadable(Protocol):
    """One model that is served.

    Attributes:
        target: where it is from.
        signature: of what is loaded.
        refused: of a change that was not taken; it is not tried again until there is another one.
    """

    target: ServeTarget
    signature: Signature
    refused: Signature | None


class Models(Protocol):
    """Models of one kind."""

    def all(self) -> Sequence[Any]:
        """Every one of them, each a Reloadable."""

    async def replace(self, served: Any) -> Any:
        """Load what is there now, hold it against what is served, and serve it; gives what was served before.

        Raises:
            OnnxToolError: it is not to be taken.
        """

    async def end(self, old: Any) -> None:
        """End what was served before, when its last request has its answer."""


async def watch(
    groups: Sequence[Models],
    seconds: float,
    metrics: Metrics,
    log: Log,
    follow: Callable[[], Awaitable[None]],
) -> None:
    """Look at the files until cancelled. A file must be at rest between two looks before it is taken in.

    Args:
        groups: what is served.
        seconds: between two looks.
        metrics: where what was taken and refused is counted.
        log: where it is told.
        follow: looks at folders for versions that have come and gone.
    """
    last: dict[int, Signature] = {}
    while True:
        await asyncio.sleep(seconds)
        await follow()
        for group in groups:
            for served in group.all():
                now = file_signature(served.target.path)
                at_rest = last.get(id(served)) == now
                last[id(served)] = now
                if now and at_rest and now not in (served.signature, served.refused):
                    await _take(group, served, now, metrics, log)


async def _take(group: Models, served: Reloadable, now: Signature, metrics: Metrics, log: Log) -> None:
    target = served.target
    names = {"model": target.name, "version": target.version}
    try:
        old = await group.replace(served)
    except Exception as error:
        served.refused = now
        metrics.reloads.labels(target.name, target.version, "refused").inc()
        reason = str(error) if isinstance(error, OnnxToolError) else f"{type(error).__name__}: {error}"
        log.event("reload_refused", "warning", **names, reason=reason)
        return
    metrics.reloads.labels(target.name, target.version, "taken").inc()
    log.event("reloaded", **names, path=str(target.path))
    await group.end(old)


def load_at_rest(target: ServeTarget, load: Callable[[], Loaded]) -> tuple[Loaded, Signature]:
    """What has been checked must be what is loaded: again, when the file changed in between.

    Raises:
        OnnxToolError: what `load` raises, or a file that keeps changing.
    """
    for _ in range(_TRIES):
        before = file_signature(target.path)
        loaded = load()
        if file_signature(target.path) == before:
            return loaded, before
    raise OnnxToolError(f"{target.path}: keeps changing while it is loaded.")
