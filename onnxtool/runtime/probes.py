"""Inputs on which a model really runs, at several sizes of its dynamic dims, with the outputs it gives there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool import progress
from onnxtool.errors import InputError, OnnxToolError, ResourceError
from onnxtool.model.spec import TensorSpec, distinct_dims
from onnxtool.runtime.feeds import DEFAULT_BATCH, DEFAULT_LENGTH, Feeds, concrete_shape, dim_values, random_feeds
from onnxtool.runtime.worker.errors import WorkerTimeoutError
from onnxtool.runtime.worker.isolation import crashed_before

if TYPE_CHECKING:  # importing it at run time loads onnx_ir, which run and check do without
    from onnxtool.model.domains import Domain
    from onnxtool.runtime.runner import Runner

# Usual sizes first; the odd ones show dims that were frozen or swapped, the others fit models that need multiples.
_PAIRS = ((2, 16), (1, 9), (5, 23), (1, 32), (2, 48), (1, 48), (1, 64), (1, 224), (1, 128), (2, 8), (1, 1), (1, 256))
# For detectors that go down to 1/32 of the image several times, and for sound in samples.
_LARGE_LENGTHS = (320, 512, 640, 1024, 4096, 16000, 48000)
_AFTER_CRASH = ((1, 1024), (2, 1600), (1, 4096), (1, 16000))  # small sizes may have been the cause
_OTHER_LENGTHS = (96, 23, 160, 64, 7, 320)
_BATCH = "onnxtool.batch"
_MAX_ELEMENTS = 1 << 24  # of one input at a size that is only tried
_MOST_LATE = 3  # runs that took longer than a run may, until no other size is tried


@dataclass
class Probe:
    """One set of inputs and what the source gives for it.

    Attributes:
        feeds: the inputs.
        outputs: what the source gave.
        length: number that stands for the dynamic dims other than the first.
        batch: number that stands for the first dim where it is dynamic.
        specs: the inputs, with names for dims that turned out to be the same.
    """

    feeds: Feeds
    outputs: dict[str, Any] = field(default_factory=dict)
    length: int = DEFAULT_LENGTH
    batch: int = DEFAULT_BATCH
    specs: Sequence[TensorSpec] = ()


def given_probes(runner: Runner, feeds: Sequence[Feeds]) -> list[Probe]:
    """Run the source on inputs of the user's.

    Raises:
        InputError: the source does not run on them.
    """
    return [Probe(f, runner.run(f)) for f in feeds]


def find_probes(
    runner: Runner,
    specs: Sequence[TensorSpec],
    seed: int,
    domains: Mapping[str, Domain] | None = None,
    *,
    wanted: int = 3,
    batch: int | None = None,
    advice: str = "Give --data FILE.npz.",
) -> list[Probe]:
    """Random inputs at up to `wanted` sizes that the source accepts; one when all dims are fixed.

    Some models take only some sizes (a fixed text height in a dynamic dim, multiples of 32, at least one window of
    sound): what the source itself refuses is not a test of it, so other sizes are tried until enough have worked.

    Args:
        runner: the source.
        specs: its inputs, with the dims that the user froze.
        seed: of the random numbers.
        domains: values that integer inputs may take.
        wanted: how many are enough.
        batch: the only size of the first dim to try.
        advice: what the user may do when nothing works.

    Raises:
        InputError: the source runs on none of them.
        ResourceError: on each of them it took more time or memory than a run may.
        UnsupportedError: an input that random data cannot fill.
    """
    specs = distinct_dims(specs)
    dynamic = _is_dynamic(specs)
    found: list[Probe] = []
    failures: list[OnnxToolError] = []
    with progress.task("running the source", wanted) as task:
        for own in (specs, *_with_states(specs)):
            tried = _sizes(own, found, batch) if dynamic else iter([dict[str, Any]()])
            for probe in islice(_working(runner, own, tried, seed, domains, failures), wanted):
                found.append(probe)  # what has worked steers which sizes are tried next
                task.advance()
            if found and wanted > 1:
                apart = _apart(own, found[0])
                found += islice(_working(runner, own, apart, seed + len(found), domains, []), 1)
            if found:
                break
    if not found:
        reason = str(failures[0]).removesuffix(".") if failures else "no size was tried"
        limited = failures and all(isinstance(failure, ResourceError) for failure in failures)
        raise (ResourceError if limited else InputError)(
            f"the model does not run on random inputs{' of any usual size' * dynamic} ({reason}). {advice}"
        )
    return found


def _working(
    runner: Runner,
    specs: Sequence[TensorSpec],
    tried: Iterator[dict[str, Any]],
    seed: int,
    domains: Mapping[str, Domain] | None,
    failures: list[OnnxToolError],
) -> Iterator[Probe]:
    """The sizes that the source runs on; what it says of the others goes into `failures`."""
    for index, sizes in enumerate(tried):
        if index and _elements(specs, sizes) > _MAX_ELEMENTS:
            continue
        feeds = random_feeds(specs, seed + index, domains=domains, **sizes)
        try:
            outputs = runner.run(feeds)
        except (InputError, ResourceError) as error:
            failures.append(error)
            if sum(isinstance(failure, WorkerTimeoutError) for failure in failures) == _MOST_LATE:
                return
            continue
        yield Probe(feeds, outputs, sizes.get("length", DEFAULT_LENGTH), sizes.get("batch", DEFAULT_BATCH), specs)


def runnable_feeds(
    runner: Runner,
    specs: Sequence[TensorSpec],
    seed: int,
    domains: Mapping[str, Domain] | None = None,
    *,
    wanted: int = 1,
    batch: int | None = None,
) -> list[Feeds]:
    """Random inputs at up to `wanted` sizes that the model accepts: the usual sizes where those work.

    Fixed shapes leave nothing to choose: one set, and the model is not run.

    Raises:
        InputError: the model runs on none.
        UnsupportedError: an input that random data cannot fill.
    """
    if not _is_dynamic(specs):
        return [random_feeds(specs, seed, domains=domains)]
    return [p.feeds for p in find_probes(runner, specs, seed, domains, wanted=wanted, batch=batch)]


def _is_dynamic(specs: Sequence[TensorSpec]) -> bool:
    return any(not isinstance(d, int) for s in specs for d in ((None,) if s.shape is None else s.shape))


def _sizes(specs: Sequence[TensorSpec], found: list[Probe], only: int | None) -> Iterator[dict[str, Any]]:
    """Sizes to try; `found` grows meanwhile and steers what comes next."""
    pairs = _AFTER_CRASH if crashed_before() else (*_PAIRS, *((1, length) for length in _LARGE_LENGTHS))
    if only is not None:
        pairs = tuple(dict.fromkeys((only, length) for _, length in pairs))
    for index, (batch, length) in enumerate(pairs):
        yield {"batch": batch, "length": length}
        if found and index == 2 and len(found) > 1:
            return
        if len(found) == 1 and index > 2:
            break
    if not found:
        return
    # One size works: now vary each named dim alone, the others staying as they are.
    base = dict(_named_sizes(specs, found[0].feeds))
    for length in _OTHER_LENGTHS:
        for name in reversed(list(base)):
            yield {"dims": {**base, name: length}, "length": found[0].length, "batch": found[0].batch}


def _apart(specs: Sequence[TensorSpec], found: Probe) -> Iterator[dict[str, Any]]:
    """Sizes at which all dims other than the first ones differ, none of which can then pass for another."""
    first = {s.shape[0] for s in specs if s.shape}
    names = list(dict.fromkeys(d for s in specs for d in (s.shape or ())[1:] if isinstance(d, str)))
    names = [n for n in names if n not in first]
    for step in (3, found.length) if len(names) > 1 else ():
        dims = {name: found.length + place * step for place, name in enumerate(names)}
        yield {"dims": dims, "length": found.length, "batch": found.batch}


def _with_states(specs: Sequence[TensorSpec]) -> Iterator[Sequence[TensorSpec]]:
    """The same inputs with the batch where recurrent states have it: [layers, batch, size] beside [batch, ...]."""
    result, states = [], 0
    for spec in specs:
        shape = list(spec.shape or ())
        dynamic = [axis for axis, dim in enumerate(shape) if not isinstance(dim, int)]
        if len(dynamic) == 1 or (dynamic and dynamic[0] == 0):
            states += dynamic[0] > 0
            shape[dynamic[0]] = _BATCH
        result.append(spec if spec.shape is None else TensorSpec(spec.name, spec.dtype, tuple(shape)))
    if 0 < states < len(specs):
        # The plain batch first: the number of a name is that of the input where it comes first.
        order = sorted(result, key=lambda s: not s.shape or s.shape[0] != _BATCH)
        yield order


def _elements(specs: Sequence[TensorSpec], sizes: Mapping[str, Any]) -> float:
    """Of the largest input at these sizes."""
    numbers = dim_values(specs, sizes.get("dims"), batch=sizes.get("batch"), length=sizes.get("length"))
    batch, length = sizes.get("batch"), sizes.get("length")
    shapes = [concrete_shape(s.shape, numbers, batch=batch, length=length) for s in specs]
    return max((float(np.prod([float(d) for d in shape])) for shape in shapes), default=0.0)


def _named_sizes(specs: Sequence[TensorSpec], feeds: Feeds) -> Iterator[tuple[str, int]]:
    for spec in specs:
        for dim, size in zip(spec.shape or (), feeds[spec.name].shape, strict=False):
            if isinstance(dim, str):
                yield dim, size
