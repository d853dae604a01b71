"""Judges two files once more: run without ONNX Runtime's own optimizations, or with other defaults of inputs.

The runtime rewrites a graph before it runs it: zeros padded before a MaxPool become padding of -infinity, a
DequantizeLinear before a MatMul becomes a kernel that computes with 8-bit activations. Two files that are equal only
after that are two functions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from onnxtool.equality.proof import Proof, Search
from onnxtool.equality.reference import Answered, Reference
from onnxtool.equality.trials.observe import Observed
from onnxtool.errors import OnnxToolError
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.feeds import Outputs
from onnxtool.runtime.probes import Probe
from onnxtool.runtime.runner import Runner

_Tried = TypeVar("_Tried", bound=Answered)
_SECONDS = 5.0  # on the clock, for the reference's runs; the candidate takes about as long again
EQUAL_UNOPTIMIZED = "they are equal where ONNX Runtime runs the files as they are, without its own optimizations"
UNOPTIMIZED = "they differ where ONNX Runtime runs the files as they are, without its own optimizations"


def judge_again(
    report: CompareReport, proof: Proof, reference: Reference, candidate: Runner, warning: str
) -> CompareReport:
    """Judge on the inputs that were tried before, as many as the time allows.

    Args:
        report: in which nothing differs.
        proof: that gave it.
        reference: of the same model, run in another way.
        candidate: likewise.
        warning: for a report in which they differ.

    Returns:
        A report with the difference, or the one given.
    """
    ends = time.perf_counter() + _SECONDS
    try:
        usual = [Probe(p.feeds, dict(outputs)) for p, outputs in _answered(proof.usual, reference, ends)]
        seen = proof.findings.observed
        trials = [replace(t, outputs=outputs) for t, outputs in _answered(seen.trials, reference, ends)]
        again = Proof(
            reference,
            usual,
            proof.rule,
            search=replace(proof.search or Search(), branches=0.0, difference=0.0),
            facts=proof.facts,
            limits=proof.limits,
            varying=proof.varying,
            origin=proof.origin,
            observed=Observed(trials),
            certified=proof.certified,
        )
        found = again.judge(candidate) if usual else report
    except OnnxToolError:  # the runtime lacks kernels that only its optimizations do without
        return report
    if not found.differs:
        return report
    return replace(found, warnings=(*report.warnings, warning), require=report.require, strict=report.strict)


def _answered(inputs: Sequence[_Tried], reference: Reference, ends: float) -> Iterator[tuple[_Tried, Outputs]]:
    for item in inputs:
        if time.perf_counter() > ends:
            return
        yield item, reference.run(item.feeds)
