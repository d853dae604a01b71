"""How far each output may be from the source's: by its size, by its precision, by its quantization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.conversion.adapter import SourceModel
from onnxtool.validation.equivalence.difference import Tolerance

# Half precision: a rounding step is 2**-10 (float16) or 2**-7 (bfloat16) of the value; sums of a few such steps
# are what two correct implementations differ by.
_HALF = {"FLOAT16": (1e-2, 1e-2), "BFLOAT16": (5e-2, 5e-2)}
# An output that stays within so many tolerances proves little.
_TELLING = 10
# Elements looked at in one go.
_CHUNK = 1 << 18


def tolerance_for(graph: ir.Model, tolerance: Tolerance) -> Tolerance:
    """Wider where the graph computes in half precision, unless the user's is wider still."""
    found = {v.dtype.name for v in graph.graph.outputs if v.dtype is not None}
    found |= {v.const_value.dtype.name for v in graph.graph.initializers.values() if v.const_value is not None}
    for name, (rtol, atol) in _HALF.items():
        if name in found:
            tolerance = replace(tolerance, rtol=max(tolerance.rtol, rtol), atol=max(tolerance.atol, atol))
    return tolerance


def allowances(model: SourceModel, outputs: Sequence[Mapping[str, Any]], allowed: Tolerance) -> dict[str, Tolerance]:
    """The tolerance of each output that needs one of its own.

    The absolute tolerance is meant for values around 1. Where an output is larger, rounding errors are as well, also in
    those of its elements that happen to be near zero: it is allowed the tolerance times its root mean square. An output
    that is everywhere about as small as the tolerance is equal to anything small; that is said.

    Args:
        model: the source; what is to be said is added to its notes.
        outputs: what it gave, run by run.
        allowed: the tolerance of all.
    """
    own = {}
    for spec in model.outputs:
        found = [o.get(spec.name) for o in outputs]
        arrays = [a for a in found if isinstance(a, np.ndarray) and a.size]
        if found and all(isinstance(a, np.ndarray) and not a.size for a in found):
            note = (
                f"output {spec.name} was empty in every run, which proves nothing; --sample takes inputs that fill it"
            )
            _say(note, model.notes)
        if spec.name in model.rounding:
            own[spec.name] = _rounded(spec.name, arrays, model.rounding[spec.name], allowed, model.notes)
            continue
        sizes = [_size(a) for a in arrays if a.dtype.kind in "fV"]
        if not sizes:
            continue
        level, largest = (max(s[i] for s in sizes) for i in (0, 1))
        own[spec.name] = replace(allowed, atol=allowed.atol * max(1.0, level))
        if largest < _TELLING * allowed.atol:
            note = f"output {spec.name} never exceeds {largest:.1g}: within atol {allowed.atol:g} that proves little"
            _say(note, model.notes)
    return own


def _rounded(name: str, arrays: Sequence[np.ndarray], off: float, allowed: Tolerance, notes: list[str]) -> Tolerance:
    """A quantized output: what rounding can do to it, or `--atol` where that is more."""
    spread = max((float(a.max()) for a in arrays), default=0.0) - min((float(a.min()) for a in arrays), default=0.0)
    if spread < _TELLING * off:
        _say(f"output {name} varies by {spread:.3g} only: within {off:.3g} that proves little", notes)
    # A float output is a step times an integer, rounded.
    return Tolerance(allowed.rtol, max(allowed.atol, 1.0001 * off), int(max(allowed.atol, off)))


def _say(note: str, notes: list[str]) -> None:
    if note not in notes:
        notes.append(note)


def _size(array: np.ndarray) -> tuple[float, float]:
    """The root mean square and the largest magnitude of the finite values of an array."""
    total, count, largest = 0.0, 0, 0.0
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK].astype(np.float64)
        part = part[np.isfinite(part)]
        if part.size:
            total, count = total + float(part @ part), count + part.size
            largest = max(largest, float(np.abs(part).max()))
    return (total / count) ** 0.5 if count else 0.0, largest
