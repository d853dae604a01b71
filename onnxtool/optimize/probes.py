"""Inputs on which a model really runs, at several sizes of its dynamic dims, with the outputs it gives there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtool import progress
from onnxtool.errors import InputError, ResourceError
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.runner import OnnxRunner

Feeds = dict[str, np.ndarray]
_WANTED = 3
# Usual sizes first; the odd ones show dims that were frozen or swapped, the others fit models that need multiples.
_PAIRS = ((2, 16), (1, 9), (5, 23), (1, 32), (2, 48), (1, 48), (1, 64), (1, 224), (1, 128), (2, 8), (1, 1), (1, 256))
_OTHER_LENGTHS = (96, 23, 160, 64, 7, 320)


@dataclass
class Probe:
    """One set of inputs and what the source gives for it."""

    feeds: Feeds
    outputs: dict[str, Any] = field(default_factory=dict)


def given_probes(runner: OnnxRunner, feeds: Sequence[Feeds]) -> list[Probe]:
    """Run the source on inputs of the user's.

    Raises:
        InputError: the source does not run on them.
    """
    return [Probe(f, runner.run(f)) for f in feeds]


def find_probes(
    runner: OnnxRunner, specs: Sequence[TensorSpec], seed: int, domains: Mapping[str, Domain]
) -> list[Probe]:
    """Random inputs at up to three sizes that the source accepts; one when all dims are fixed.

    Some models take only some sizes (a fixed text height in a dynamic dim, multiples of 32): what the source
    itself refuses is no test of its optimization, so other sizes are tried until enough have worked.

    Args:
        runner: the source.
        specs: its inputs, with the dims that the user froze.
        seed: of the random numbers.
        domains: values that integer inputs may take.

    Raises:
        InputError: the source runs on none of them.
        UnsupportedError: an input that random data cannot fill.
    """
    dynamic = any(not isinstance(d, int) for s in specs for d in (s.shape or (None,)))
    found: list[Probe] = []
    failure: InputError | None = None
    with progress.task("running the source", _WANTED) as task:
        for index, sizes in enumerate(_sizes(specs, found) if dynamic else ({},)):
            feeds = random_feeds(specs, seed + index, domains=domains, **sizes)
            try:
                found.append(Probe(feeds, runner.run(feeds)))
            except (InputError, ResourceError) as error:
                failure = failure or InputError(str(error))
                continue
            task.advance()
            if len(found) == _WANTED:
                break
    if not found:
        raise InputError(
            f"the source does not run on random inputs, so equality cannot be shown ({failure}). "
            "Give --data FILE.npz or --input-shape NAME:DIMS, or take the risk with --no-verify."
        )
    return found


def _sizes(specs: Sequence[TensorSpec], found: list[Probe]) -> Iterator[dict[str, Any]]:
    """Sizes to try; `found` grows meanwhile and steers what comes next."""
    for batch, length in _PAIRS:
        yield {"batch": batch, "length": length}
        if found and (batch, length) == _PAIRS[2] and len(found) > 1:
            return
        if len(found) == 1 and (batch, length) not in _PAIRS[:3]:
            break
    if not found:
        return
    # One size works: now vary each named dim alone, the others staying as they are.
    base = dict(_named_sizes(specs, found[0].feeds))
    for length in _OTHER_LENGTHS:
        for name in reversed(list(base)):
            yield {"dims": {**base, name: length}}


def _named_sizes(specs: Sequence[TensorSpec], feeds: Feeds) -> Iterator[tuple[str, int]]:
    for spec in specs:
        for dim, size in zip(spec.shape or (), feeds[spec.name].shape, strict=False):
            if isinstance(dim, str):
                yield dim, size
