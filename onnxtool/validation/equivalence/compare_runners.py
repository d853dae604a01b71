"""Are two Runners equal? The one comparison that convert, optimize, quantize and compare all use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from onnxtool.errors import InputError, UsageError
from onnxtool.model.spec import TensorSpec
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.flatten_outputs import flatten as flatten
from onnxtool.runtime.runner import Runner
from onnxtool.validation.equivalence.difference import Difference, Tolerance

if TYPE_CHECKING:
    from onnxtool.model.domains import Domain

Feeds = Mapping[str, np.ndarray]


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
) -> CompareReport:
    """Run two models on the same inputs and say how far their outputs are apart.

    Outputs are matched by name; when no name fits and both have equally many, by position. Inputs likewise.

    Args:
        a: the reference.
        b: what is judged.
        feeds: inputs in A's names, one mapping for each run.
        tolerance: for floats; everything else must be equal.
        names: how to call the two in the report.
        data: where the feeds came from, for the report.
        tolerances: for single outputs, by their name in A.
        top_k: how many largest elements of each row are held against each other.

    Raises:
        UsageError: `tolerances` names no output.
        InputError: a run fails, there are no feeds, or the two models do not have the same inputs.
    """
    inputs = match_names([s.name for s in a.inputs], [s.name for s in b.inputs], "inputs")
    differences: dict[str, Difference] = {}
    renamed: dict[str, str] = {}
    compared: set[str] = set()
    shapes = []
    own = tolerances or {}
    for feed in feeds:
        shapes.append({name: tuple(np.shape(array)) for name, array in feed.items()})
        left = flatten(a.run(feed))
        right = flatten(b.run({inputs[name]: array for name, array in feed.items() if name in inputs}))
        if not differences:
            renamed = match_names(list(left), list(right), "outputs")
        for name, expected in left.items():
            entry = differences.setdefault(name, Difference(name, own.get(name, tolerance), top_k=top_k))
            entry.add(expected, right[renamed[name]])
            if np.size(expected):
                compared.add(name)
    if not shapes:
        raise InputError("there is no input data to compare on.")
    unknown = [name for name in own if name not in differences]
    if unknown:
        raise UsageError(f"there is no output {unknown[0]!r}; the model gives {', '.join(differences)}.")
    outputs = tuple(d.result(renamed[name] if renamed[name] != name else None) for name, d in differences.items())
    return CompareReport(
        a=names[0],
        b=names[1],
        outputs=tuple(
            replace(o, rtol=own[o.name].rtol, atol=own[o.name].atol) if o.name in own else o for o in outputs
        ),
        runs=tuple(shapes),
        data=data,
        rtol=tolerance.rtol,
        atol=tolerance.atol,
        warnings=empty_outputs(n for n in differences if n not in compared),
    )


def empty_outputs(names: Iterable[str]) -> tuple[str, ...]:
    """A warning on outputs that had no element in any run: a detector that found nothing, say."""
    listed = ", ".join(repr(n) for n in names)
    return (f"{listed} had no elements in any run, so nothing was compared; give inputs that fill it.",) * bool(listed)


def match_names(a: Sequence[str], b: Sequence[str], what: str) -> dict[str, str]:
    """Name in A -> name in B: by name, or by position when the names share nothing.

    Raises:
        InputError: neither works.
    """
    if set(a) == set(b) or (set(a) <= set(b) and what == "inputs"):
        return {name: name for name in a}
    if len(a) == len(b):
        shared = set(a) & set(b)
        rest = iter([n for n in b if n not in shared])
        return {name: name if name in shared else next(rest) for name in a}
    raise InputError(f"the two models have other {what}: {', '.join(a)} against {', '.join(b)}.")


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
