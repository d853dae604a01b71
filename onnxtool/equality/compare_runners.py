"""Runs two Runners on the same inputs, for `EquivalenceCheck` to judge."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from onnxtool.equality.equivalence_check import EquivalenceCheck, match_names
from onnxtool.equality.reference import Reference
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.model.spec import TensorSpec
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.feeds import Feeds, random_feeds
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
