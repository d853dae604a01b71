"""Runs two Runners on the same inputs, the usual ones among them, for `EquivalenceCheck` to judge."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxtool.equality.equivalence_check import EquivalenceCheck, match_names
from onnxtool.equality.reference import Reference, known_domains
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.model import io
from onnxtool.model.domains import Domain, input_domains
from onnxtool.model.image_options import parse_options
from onnxtool.model.spec import TensorSpec
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.data.read_feeds import GivenInputs, read_feeds
from onnxtool.runtime.feeds import Feeds, random_feeds
from onnxtool.runtime.probes import find_probes, runnable_feeds
from onnxtool.runtime.runner import Runner

if TYPE_CHECKING:
    from onnxtool.model.domains import Domain


def compare_runners(
    a: Runner,
    b: Runner,
    feeds: Iterable[Feeds],
    tolerance: Tolerance = Tolerance(),  # noqa: B008  (frozen)
    *,
    names: tuple[str, str] = ("A", "B"),
    data: str = "given feeds",
    tolerances: Mapping[str, Tolerance] | None = None,
    top_k: int = 5,
    varying: Collection[str] = (),
) -> CompareReport:
    """Run two models on the same inputs and say how far their outputs are apart.

    Outputs are matched by name; when no name fits and both have equally many, by position. Inputs likewise.

    Args:
        a: what is right; a Reference where more is known of it.
        b: what is judged.
        feeds: inputs in A's names, one mapping for each run.
        tolerance: for floats; everything else must be equal.
        names: how to call the two in the report.
        data: where the feeds came from, for the report.
        tolerances: for single outputs, by their name in A.
        top_k: how many largest elements of each row are held against each other.
        varying: outputs that depend on what is drawn at random: only their types and shapes are compared.

    Raises:
        UsageError: `tolerances` names no output.
        InputError: a run fails, there are no feeds, or the two models do not have the same inputs.
    """
    inputs = match_names([s.name for s in a.inputs], [s.name for s in b.inputs], "inputs")
    reference = a if isinstance(a, Reference) else Reference(a)
    check = EquivalenceCheck(tolerance, reference, own=tolerances, names=names, top_k=top_k, varying=varying)
    for feed in feeds:
        expected = a.run(feed)
        check.add(feed, expected, b.run({inputs[name]: array for name, array in feed.items() if name in inputs}))
    return check.report(data)


def probe_feeds(
    specs: Sequence[TensorSpec],
    *,
    seed: int = 0,
    domains: Mapping[str, Domain] | None = None,
    batches: Sequence[int] = (2, 1, 5),
    lengths: Sequence[int] = (16, 9, 23),
) -> list[dict[str, np.ndarray]]:
    """Random inputs for proving two models equal: several sizes of every dynamic dim, one run when all are fixed.

    The sizes are odd and coprime on purpose: a dim that an exporter froze or swapped shows up.
    """
    dynamic = any(not isinstance(d, int) for s in specs for d in (s.shape or (None,)))
    count = max(len(batches), len(lengths)) if dynamic else 1
    return [
        random_feeds(
            specs,
            seed + i,
            batch=batches[i % len(batches)],
            length=lengths[i % len(lengths)],
            domains=domains,
        )
        for i in range(count)
    ]


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
