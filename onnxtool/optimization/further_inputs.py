"""Inputs at sizes that a pass may assume away: an empty batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from onnxtool.equality.trials.trial import Trial
from onnxtool.errors import OnnxToolError
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec, distinct_dims
from onnxtool.report.trial_kind import TrialKind
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.probes import Probe
from onnxtool.runtime.runner import Runner


def empty_batch(
    runner: Runner, specs: Sequence[TensorSpec], probe: Probe, domains: Mapping[str, Domain], seed: int
) -> Iterator[Trial]:
    """An input without a row, if the source takes one."""
    with suppress(OnnxToolError):
        feeds = random_feeds(distinct_dims(specs), seed, batch=0, length=probe.length, domains=domains)
        if any(a.size == 0 for a in feeds.values()):
            yield Trial("an empty batch", TrialKind.SIZE, feeds, dict(runner.run(feeds)))
