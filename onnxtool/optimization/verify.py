"""Is the optimized model equal to its source? Judged on the runtime without its own optimizations, and with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxtool.errors import InputError, OnnxToolError
from onnxtool.model.ir.queries import all_nodes
from onnxtool.optimization.constant_evaluation import RANDOM
from onnxtool.report.compare import CompareReport, TensorDifference
from onnxtool.runtime.probes import Probe
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session import SessionOptions
from onnxtool.validation.equivalence.compare_runners import flatten
from onnxtool.validation.equivalence.difference import Difference, Tolerance

# Relative rounding of the narrow float types; a reordered sum differs by a few of these.
_NARROW = {"float16": 1e-2, "bfloat16": 6e-2}


def is_random(model: ir.Model) -> bool:
    """True when the model may give other outputs each time it runs."""
    return any(
        n.op_type in RANDOM and n.domain == "" and (n.op_type != "Dropout" or len(n.inputs) > 2)
        for n in all_nodes(model)
    )


def judge(
    runner: OnnxRunner, probes: Sequence[Probe], tolerance: Tolerance, *, random: bool = False, exact: bool = False
) -> CompareReport:
    """Hold a model against the source's outputs.

    The absolute tolerance grows with the largest value of each output: rounding error does so too, and an element
    near zero among hundreds says nothing about equality.

    Args:
        runner: what is judged.
        probes: inputs, with the source's outputs.
        tolerance: for floats.
        random: the model draws random numbers; compare types and shapes only.
        exact: floats must be equal to the last bit.

    Raises:
        InputError: the model does not run where the source did, or has other outputs.
    """
    differences: dict[str, Difference] = {}
    retyped: dict[str, str] = {}
    taken = {s.name for s in runner.inputs}
    for probe in probes:
        expected = flatten(probe.outputs)
        actual = flatten(runner.run({k: v for k, v in probe.feeds.items() if k in taken}))
        if list(expected) != list(actual):
            raise InputError(f"the outputs are {', '.join(actual)} instead of {', '.join(expected)}.")
        for name, array in expected.items():
            entry = differences.get(name)
            if entry is None:
                entry = differences[name] = Difference(name, _scaled(tolerance, probes, name, exact))
            types = [np.asarray(a).dtype for a in (array, actual[name])]
            if types[0] != types[1] and not all(t.kind in "OUS" for t in types):
                retyped[name] = f"{types[0].name} against {types[1].name}"
            blank = random and np.shape(array) == np.shape(actual[name])
            entry.add(np.zeros_like(array) if blank else array, np.zeros_like(array) if blank else actual[name])
    return CompareReport(
        a="source",
        b="optimized",
        outputs=tuple(_typed(d.result(), retyped.get(d.name)) for d in differences.values()),
        runs=tuple({name: tuple(np.shape(a)) for name, a in p.feeds.items()} for p in probes),
        data="probes",
        rtol=0.0 if exact else tolerance.rtol,
        atol=0.0 if exact else tolerance.atol,
    )


def _scaled(tolerance: Tolerance, probes: Sequence[Probe], name: str, exact: bool) -> Tolerance:
    found = (flatten(p.outputs) for p in probes)
    arrays = [np.asarray(f[name]) for f in found if name in f]  # a sequence may be longer in some probes
    if exact:
        return Tolerance(0.0, 0.0)
    if arrays[0].dtype.kind in "OUSbiu":
        return tolerance
    rounding = _NARROW.get(arrays[0].dtype.name, 0.0)
    largest = 0.0
    for array in arrays:
        values = np.abs(array.astype(np.float64)) if array.dtype.kind != "c" else np.abs(array)
        values = values[np.isfinite(values)]
        largest = max(largest, float(values.max()) if values.size else 0.0)
    scale = max(1.0, largest)
    return Tolerance(max(tolerance.rtol, rounding), max(tolerance.atol, rounding / 10) * scale)


def _typed(item: TensorDifference, note: str | None) -> TensorDifference:
    """Another dtype is a difference, even where the numbers agree."""
    return item if note is None else replace(item, ok=False, note=note)


def first_fault(report: CompareReport) -> str:
    """One line on the first output that differs."""
    for item in report.outputs:
        if not item.ok:
            detail = item.note or f"{item.expected} against {item.actual} (max abs {item.max_abs:.3g})"
            return f"output {item.name!r} differs: {detail}"
    return "no output"


def open_quietly(model: ir.Model, options: SessionOptions) -> tuple[OnnxRunner | None, str]:
    """A runner, or None and why there is none."""
    try:
        return OnnxRunner.open(model, options), ""
    except OnnxToolError as error:
        return None, str(error)
