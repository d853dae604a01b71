"""How far a model's outputs move by rounding alone: what no comparison may call a difference.

A deep network amplifies the last bit of its early layers. Where its own outputs leave the tolerance when only the
runtime's graph optimizations are turned off, a second model that leaves it by as little, in as few elements, is equal.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from onnxtool.report.compare import CompareReport, TensorDifference
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session import SessionOptions
from onnxtool.validation.equivalence.compare_runners import compare_runners
from onnxtool.validation.equivalence.difference import Tolerance

# A difference counts as rounding up to so many times what rounding does to the reference itself...
FACTOR = 3.0
# ... and in at most one element of so many: a wrong operator shows in far more.
RARE = 10_000


def accept_rounding_noise(
    report: CompareReport,
    model: str | os.PathLike[str],
    runner: Runner,
    feeds: Sequence[Mapping[str, np.ndarray]],
    options: SessionOptions,
) -> CompareReport:
    """Accept outputs that differ by no more than rounding moves the reference itself.

    Args:
        report: with an output out of tolerance; otherwise it is given back as it is.
        model: the reference, an .onnx file.
        runner: its session, under `options`.
        feeds: what the comparison ran on.
        options: how the reference was run.
    """
    if not any(_may_be_rounding(o) for o in report.outputs):
        return report
    other = replace(options, optimization="off" if options.optimization != "off" else "basic")
    tolerance = Tolerance(report.rtol, report.atol)
    own = compare_runners(runner, OnnxRunner.open(model, other), feeds, tolerance)
    noise = {o.name: o for o in own.outputs}
    return replace(report, outputs=tuple(_judge(o, noise.get(o.name)) for o in report.outputs))


def _may_be_rounding(output: TensorDifference) -> bool:
    rare = 0 < output.mismatched <= output.total / RARE
    return not output.ok and rare and output.note is None and bool(np.isfinite(output.max_abs))


def _judge(output: TensorDifference, noise: TensorDifference | None) -> TensorDifference:
    if noise is None or not _may_be_rounding(output):
        return output
    if noise.mismatched == 0 or output.max_abs > FACTOR * noise.max_abs:
        return output
    note = (
        f"{output.mismatched} of {output.total} elements differ by up to {output.max_abs:.2g}; rounding alone moves "
        f"the reference by up to {noise.max_abs:.2g}"
    )
    return replace(output, ok=True, note=note)
