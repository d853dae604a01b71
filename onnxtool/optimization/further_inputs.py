"""Inputs beyond the usual ones, with what the source gives: other sizes, other values, an empty batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import onnx_ir as ir

from onnxtool.equality.trials.graph_trials import facts_of
from onnxtool.equality.trials.observe import observe
from onnxtool.equality.trials.trial import Budget, Trial
from onnxtool.errors import OnnxToolError
from onnxtool.model.domains import Domain, input_domains
from onnxtool.model.spec import TensorSpec, distinct_dims
from onnxtool.report.trial_kind import TrialKind
from onnxtool.runtime.feeds import feeds_bytes, random_feeds
from onnxtool.runtime.flatten_outputs import flatten
from onnxtool.runtime.probes import Probe
from onnxtool.runtime.runner import Runner

_SMALLEST, _STEP = 5, 3  # sizes of dims that are told apart
_MOST_BYTES = 1 << 26


@dataclass(frozen=True)
class FurtherInputs:
    """What the source gave beyond the usual inputs.

    Attributes:
        trials: inputs with its outputs.
        untrue_names: it takes inputs in which dims of one name differ, so that such names say nothing.
    """

    trials: Sequence[Trial] = ()
    untrue_names: bool = False


def further_inputs(
    runner: Runner, model: ir.Model, specs: Sequence[TensorSpec], probes: Sequence[Probe], seed: int, *, sizes: bool
) -> FurtherInputs:
    """Run the source on inputs beyond the usual ones, as far as it takes them.

    Args:
        runner: the source.
        model: its graph.
        specs: its inputs.
        probes: usual inputs.
        seed: of random numbers.
        sizes: whether dynamic dims may have other sizes.
    """
    domains = input_domains(model)
    apart = list(_names_apart(runner, specs, probes[0], domains, seed)) if sizes else []
    empty = list(_empty_batch(runner, specs, probes[0], domains, seed)) if sizes else []
    seen = observe(
        runner,
        distinct_dims(specs),
        [p.feeds for p in probes],
        facts_of([model], {}),
        Budget("quick"),
        seed=seed,
        sizes=sizes,
    )
    # A sequence that is empty has nothing to compare.
    return FurtherInputs([t for t in (*apart, *empty, *seen.trials) if flatten(t.outputs)], bool(apart))


def _names_apart(
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


def _empty_batch(
    runner: Runner, specs: Sequence[TensorSpec], probe: Probe, domains: Mapping[str, Domain], seed: int
) -> Iterator[Trial]:
    with suppress(OnnxToolError):
        feeds = random_feeds(distinct_dims(specs), seed, batch=0, length=probe.length, domains=domains)
        if any(a.size == 0 for a in feeds.values()):
            yield Trial("an empty batch", TrialKind.SIZE, feeds, dict(runner.run(feeds)))
