"""`compare --quantized`: a quantized model held against its float one by the accuracy budget of `quantize`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxtool.model.file import ModelFile
from onnxtool.model.operators.table import lookup_full
from onnxtool.options.quantize import QuantizeOptions
from onnxtool.quantization.evaluation.criterion import DEFAULT_DROP, Criterion
from onnxtool.quantization.evaluation.fidelity import FidelityEvaluator
from onnxtool.quantization.inputs import open_inputs
from onnxtool.quantization.write_result import verdict_on_all
from onnxtool.report.compare import CompareReport


def integer_operators(model: Path) -> int:
    """How many operators of a file compute with integers in place of floats, or convert to them."""
    counts = ModelFile(model).header.operators
    return sum(n for name, n in counts.items() if lookup_full(name).integer != "no")


def with_hint(report: CompareReport, a: Path, b: Path) -> CompareReport:
    """A failed comparison of a float and a quantized model says which of them is quantized, and how to judge it."""
    counts = (integer_operators(a), integer_operators(b))
    if report.ok or bool(counts[0]) == bool(counts[1]):
        return report
    name, count = (a, counts[0]) if counts[0] else (b, counts[1])
    hint = (
        f"{name} is quantized ({count} operators) and the other is not: rounding to integers is beyond the tolerance "
        "of equality. --quantized judges by the accuracy budget of quantize."
    )
    return replace(report, warnings=(*report.warnings, hint))


def judged_by_budget(
    report: CompareReport,
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    data: Any = None,
    samples: int | None = None,
    images: str = "",
    threads: int = 1,
) -> CompareReport:
    """The verdict by what `quantize` allows without labels (`Criterion`), in place of equality.

    Args:
        report: the comparison by equality, whose numbers stay.
        a: the float model.
        b: the quantized one.
        data: inputs, in any form that quantize takes; random ones say little.
        samples: use at most this many.
        images: how pictures become tensors.
        threads: of the runtime.

    Raises:
        InputError: a model or the data cannot be used.
    """
    asked = QuantizeOptions(data=data, samples=samples, threads=threads, images=images)
    job = open_inputs(ModelFile(a), asked, "basic")
    runners = (job.runner(job.source), job.runner(Path(b)))
    judge = FidelityEvaluator(job.original, runners[0], job.probes(), batch=1)
    budget = Criterion(DEFAULT_DROP)
    _, verdict = verdict_on_all(job, *runners, judge.judge(runners[1], detailed=True), budget)
    kept = verdict.kept
    note = "beyond equality, within the budget of quantize"
    outputs = tuple(replace(o, ok=True, note=note) if kept and not o.ok else o for o in report.outputs)
    weakest = "" if kept else f"; {verdict.worst.text}"
    random = () if data is not None else ("without --data the budget is judged on random inputs, which says little.",)
    return replace(report, outputs=outputs, budget=budget.words + weakest, warnings=(*report.warnings, *random))
