"""Inputs for outputs that usual ones leave empty or constant: tones, pictures, other scales and lengths."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from onnxtool.equality.reference import Answered
from onnxtool.errors import OnnxToolError
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds, random_feeds
from onnxtool.runtime.probes import Probe
from onnxtool.runtime.runner import Runner

Tells = Callable[[Sequence[Mapping[str, Any]]], Collection[str]]
_LENGTHS = (64, 512, 1024, 4096, 16_000, 48_000)  # of dims that are dynamic
_MOST = 1 << 21  # elements of one input
_SECONDS = 10.0  # after which no other input is tried
_RATE = 16_000  # samples of sound in a second


def telling_probes(
    runner: Runner,
    specs: Sequence[TensorSpec],
    found: Sequence[Answered],
    silent: Tells,
    seed: int,
    domains: Mapping[str, Domain],
    *,
    sizes: bool = True,
) -> Iterator[Probe]:
    """Inputs, with the model's outputs, that tell something of outputs of which the runs so far tell nothing.

    Args:
        runner: the model.
        specs: its inputs.
        found: the runs so far.
        silent: which outputs a list of runs tells nothing of.
        seed: of random numbers.
        domains: values that inputs may take.
        sizes: dynamic dims may have other sizes.
    """
    runs = [p.outputs for p in found]
    left = set(silent(runs))
    sized = [replace(s, shape=np.shape(found[0].feeds[s.name])) for s in specs]
    open_at = [(s.name, i) for s in specs for i, d in enumerate(s.shape or ()) if not isinstance(d, int) and sizes]
    began = time.perf_counter()
    for feeds in telling_feeds(sized, open_at, seed, domains, {}) if left else ():
        if time.perf_counter() - began > _SECONDS:
            return
        try:
            outputs = runner.run(feeds)
        except OnnxToolError:
            continue
        still = set(silent([*runs, outputs]))
        if left - still:
            runs.append(outputs)
            left = still
            yield Probe(feeds, outputs)
        if not left:
            return


def telling_feeds(
    specs: Sequence[TensorSpec],
    open_at: Collection[tuple[str, int]],
    seed: int,
    domains: Mapping[str, Domain],
    batch: Mapping[str, int],
) -> Iterator[Feeds]:
    """Inputs of other kinds, then of larger sizes; the caller stops when every output tells something.

    Args:
        specs: the inputs, all dims numbers.
        open_at: (input, axis) of dims that may have another size.
        seed: of random numbers.
        domains: values that inputs may take; these are left as they are drawn.
        batch: input -> axis along which the rows of tones differ.
    """
    if any(isinstance(s.dtype, str) and s.dtype != "string" for s in specs):
        return  # sequences and optionals, which nothing draws
    for length in (0, *(_LENGTHS if open_at else ())):
        sized = [
            replace(
                s, shape=tuple(length if length and (s.name, i) in open_at else d for i, d in enumerate(s.shape or ()))
            )
            for s in specs
        ]
        if max((prod(d for d in s.shape or () if isinstance(d, int)) for s in sized), default=0) > _MOST:
            continue
        base = random_feeds(sized, seed, domains=domains)
        for kind in _KINDS:
            yield {
                n: kind(a, batch.get(n, 0)).astype(a.dtype) if a.dtype.kind == "f" and n not in domains else a
                for n, a in base.items()
            }


def _tones(array: np.ndarray, axis: int) -> np.ndarray:
    """A tone for each row, along the longest of the other axes: what models of sound listen to."""
    others = [a for a in range(array.ndim) if a != axis]
    if not others:
        return array
    along = max(others, key=lambda a: array.shape[a])
    shape = [1] * array.ndim
    shape[along] = -1
    time = (np.arange(array.shape[along]) / _RATE).reshape(shape)
    shape[along], shape[axis] = 1, -1
    pitch = 220 + 90 * np.arange(array.shape[axis]).reshape(shape)
    tones: np.ndarray = 0.5 * np.sin(2 * np.pi * pitch * time) + 0 * array
    return tones


_KINDS: tuple[Callable[[np.ndarray, int], np.ndarray], ...] = (
    lambda a, _: a,
    _tones,
    lambda a, _: 1 / (1 + np.exp(-a)),
    lambda a, _: 100 * a,
    lambda a, _: 0.01 * a,
    lambda a, _: 255 / (1 + np.exp(-2 * a)),
)
