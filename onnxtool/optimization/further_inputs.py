"""Inputs at sizes that a pass may assume away: dims of one name that differ, an empty batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from onnxtool.equality.trials.trial import Trial
from onnxtool.errors import OnnxToolError
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec, distinct_dims
from onnxtool.report.trial_kind import TrialKind
from onnxtool.runtime.feeds import feeds_bytes, random_feeds
from onnxtool.runtime.probes import Probe
from onnxtool.runtime.runner import Runner

_SMALLEST, _STEP = 5, 3  # sizes of dims that are told apart
_MOST_BYTES = 1 << 26


def names_apart(
    runner: Runner, specs: Sequence[TensorSpec], probe: Probe, domains: Mapping[str, Domain], seed: int
) -> Iterator[Trial]:
    """An input in which no two dynamic dims are of one size, those of one name neither; if the source takes any."""
    dims = [d for s in specs for d in s.shape or () if isinstance(d, str)]
    if len(dims) == len(set(dims)):
        return
    own = distinct_dims(specs, trusting=False)
    names = list(dict.fromkeys(d for s in own for d in s.shape or () if isinstance(d, str)))
    for first, step in ((_SMALLEST, _STEP), (probe.length, probe.length)):
        sizes = {name: first + place * step for place, name in enumerate(names)}
        with suppress(OnnxToolError):
            feeds = random_feeds(own, seed + 50, dims=sizes, domains=domains)
            if feeds_bytes(feeds) <= _MOST_BYTES:
                yield Trial("dims of one name apart", TrialKind.SIZE, feeds, dict(runner.run(feeds)))
                return


def empty_batch(
    runner: Runner, specs: Sequence[TensorSpec], probe: Probe, domains: Mapping[str, Domain], seed: int
) -> Iterator[Trial]:
    """An input without a row, if the source takes one."""
    with suppress(OnnxToolError):
        feeds = random_feeds(distinct_dims(specs), seed, batch=0, length=probe.length, domains=domains)
        if any(a.size == 0 for a in feeds.values()):
            yield Trial("an empty batch", TrialKind.SIZE, feeds, dict(runner.run(feeds)))
