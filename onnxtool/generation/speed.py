"""How fast decoders are, beside one another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxtool.generation.bundle import Bundle
from onnxtool.generation.decoder import Decoder, sparing
from onnxtool.runtime.session.memory import release_memory

_ROUNDS = 6
_STEPS = 6
_CONTEXT = 32
_TOGETHER = 4 << 30  # bytes of all models


def decode_speeds(bundles: Sequence[Bundle], threads: int | None) -> list[float]:
    """Tokens per second of each bundle, one token after the other.

    They take turns, so that a busy moment of the machine hits all of them; the figure is of the median step. Large ones
    are measured one after the other instead: together they would not fit into memory.
    """
    if sum(b.model_bytes for b in bundles) <= _TOGETHER or len(bundles) < 2:
        return _together(bundles, threads)
    found = []
    for bundle in bundles:
        found += _together([bundle], threads)
        release_memory()
    return found


def _together(bundles: Sequence[Bundle], threads: int | None) -> list[float]:
    options = [replace(sparing(b), threads=threads, spinning="runs") for b in bundles]
    decoders = [Decoder(b, o, generates=o.prepack) for b, o in zip(bundles, options, strict=True)]
    room = _CONTEXT + 1 + _ROUNDS * _STEPS
    times: list[list[float]] = [[] for _ in decoders]
    for decoder in decoders:
        length = min(_CONTEXT, decoder.bundle.context - _ROUNDS * _STEPS - 1)
        decoder.start(min(room, decoder.bundle.context))
        decoder.run(np.arange(max(1, length)) % decoder.bundle.vocabulary)
        decoder.run(np.asarray([0]))  # the first step of another size is slower
    for _ in range(_ROUNDS):
        for decoder, own in zip(decoders, times, strict=True):
            for step in range(_STEPS):
                began = time.perf_counter()
                decoder.run(np.asarray([step]))
                own.append(time.perf_counter() - began)
    return [1 / float(np.median(t)) for t in times]
