"""The inputs on which two models are compared first: the user's, or random ones of usual sizes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxtool.equality.described_runner import known_domains
from onnxtool.model import io
from onnxtool.model.domains import Domain, input_domains
from onnxtool.model.image_options import parse_options
from onnxtool.runtime.data.read_feeds import GivenInputs, read_feeds
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.probes import find_probes, runnable_feeds
from onnxtool.runtime.runner import Runner

Source = str | os.PathLike[str] | ir.Model | Runner


def make_feeds(
    runner: Runner,
    sources: Sequence[Source],
    *,
    data: str | os.PathLike[str] | Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
    batches: Sequence[int] = (),
    samples: int | None = None,
    images: str = "",
) -> GivenInputs:
    """Inputs for a comparison, one mapping for each run, and where they came from.

    Args:
        runner: what they are for.
        sources: models that tell the domains of integer inputs; the first goes before the others.
        data: as for `compare`.
        seed: of random inputs.
        batches: batch sizes of random inputs.
        samples: how many random inputs.
        images: how pictures become tensors (see `image_options.parse_options`).

    Raises:
        InputError: the data do not fit.
    """
    if data is None:
        domains, origin = domains_of(sources), f"random, seed {seed}"
        if not batches and not samples:
            return GivenInputs(tuple(runnable_feeds(runner, runner.inputs, seed, domains, wanted=3)), origin)
        sizes = batches or (2, 1, 5)
        probe = find_probes(runner, runner.inputs, seed, domains, wanted=1, batch=sizes[0])[0]
        feeds = [
            random_feeds(probe.specs, seed + i, batch=sizes[i % len(sizes)], length=probe.length, domains=domains)
            for i in range(samples or len(sizes))
        ]
        return GivenInputs(tuple(feeds), origin)
    return read_feeds(data, runner.inputs, parse_options(images))


def domains_of(sources: Sequence[Source]) -> dict[str, Domain]:
    """Which values the inputs may take, as the models tell; the first goes before the others."""
    domains: dict[str, Domain] = {}
    for source in sources:
        if isinstance(source, Runner):  # a framework model may know the domains of its inputs better than a graph
            domains = {**domains, **known_domains(source)}
        else:
            domains = input_domains(source if isinstance(source, ir.Model) else io.load(source)) | domains
    return domains
