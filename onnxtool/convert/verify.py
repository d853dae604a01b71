"""The proof: source model and ONNX graph on the same inputs, at several sizes of every dynamic dim."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxtool.convert.adapter import ConvertOptions, SourceModel
from onnxtool.errors import InputError
from onnxtool.model.domains import Domain, input_domains
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.feeds import adapt
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session import SessionOptions
from onnxtool.validate.equality import compare_runners, probe_feeds
from onnxtool.validate.tolerance import Tolerance

# Sizes tried for dynamic dims that are no batch: odd ones first, then multiples of 32 and 224, which
# networks with strides or fixed patch grids need.
LENGTHS = ((16, 9, 23), (32, 64, 96), (224, 256, 288))
_SAMPLE_ROWS = (32, 1, 5)

Feeds = Mapping[str, np.ndarray]


def verify(
    model: SourceModel,
    graph: ir.Model,
    options: ConvertOptions,
    tolerance: Tolerance,
    names: tuple[str, str] = ("source", "ONNX"),
) -> CompareReport:
    """Run both on the same inputs.

    Raises:
        InputError: the source fails on every input that was tried, or the runtime refuses the graph.
    """
    runner = OnnxRunner.open(graph, SessionOptions(custom_op_libraries=options.custom_op_libraries))
    domains = input_domains(graph) | dict(model.feeds_hint or {})
    feeds = feeds_for(model, options, domains)
    origin = "the sample" if options.sample is not None else f"random, seed {options.seed}"
    return compare_runners(model, runner, feeds, tolerance, names=names, data=origin)


def feeds_for(
    model: SourceModel, options: ConvertOptions, domains: Mapping[str, Domain]
) -> list[dict[str, np.ndarray]]:
    """Inputs at three sizes of every dynamic dim: rows of the sample, or seeded random ones.

    Raises:
        InputError: the sample does not fit, or the source runs on none of the random sizes.
    """
    if options.sample is not None:
        return sample_feeds(model, options.sample)
    failure: InputError | None = None
    for lengths in LENGTHS:
        feeds = probe_feeds(model.inputs, seed=options.seed, domains=domains, lengths=lengths)
        try:
            model.run(feeds[0])
        except InputError as error:
            failure = failure or error
            continue
        return feeds
    raise failure or InputError("there is no input to verify on.")


def sample_feeds(model: SourceModel, sample: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """The sample as it is (up to 32 rows), and one and five rows of it where the batch dim is dynamic."""
    whole = adapt(model.inputs, sample)
    batched = {s.name for s in model.inputs if s.shape and not isinstance(s.shape[0], int)}
    rows = min((len(whole[name]) for name in batched), default=0)
    if rows == 0:
        return [whole]
    counts = dict.fromkeys(min(rows, n) for n in _SAMPLE_ROWS)
    return [{n: a[:count] if n in batched else a for n, a in whole.items()} for count in counts]
