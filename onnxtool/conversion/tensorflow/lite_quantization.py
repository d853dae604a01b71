"""What is quantized in a TensorFlow Lite model: the ranges of its inputs, and how far rounding can move its outputs.

Its integers become QuantizeLinear and DequantizeLinear pairs in ONNX, which the runtime fuses back into integer
kernels. Both sides round after each layer, and not always alike where a value lies half-way between two steps: so an
output may be a step or two apart. Behind a softmax or sigmoid, whose own steps are much finer than those of what goes
in, it is also what one step there makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtool.model.domains import Domain

# How many steps of its own an output may be off.
_STEPS = 2
# The most that such an output moves when all that goes in moves by 1: p (1 - p) twice over for softmax.
_SLOPES = {"SOFTMAX": 0.5, "LOGISTIC": 0.25, "TANH": 1.0}


@dataclass(frozen=True)
class Quantized:
    """What to know of a quantized model; all empty for a float one.

    Attributes:
        domains: input name -> values that its integers can stand for.
        rounding: output name -> how far it may be off, in its own units (steps, where it is an integer).
        notes: to say aloud.
    """

    domains: Mapping[str, Domain] = field(default_factory=dict)
    rounding: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def describe(interpreter: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Quantized:
    """Look at the tensors of a loaded model.

    Args:
        interpreter: TensorFlow Lite's, tensors allocated.
        inputs, outputs: what the model's inputs and outputs are called, in order.
    """
    tensors = {int(d["index"]): d for d in interpreter.get_tensor_details()}
    quantized = [d for d in tensors.values() if np.size(d["quantization_parameters"]["scales"])]
    if not quantized:
        return Quantized()
    # A float interface: what stands behind the first and before the last conversion tells.
    operators: Sequence[Mapping[str, Any]] = getattr(
        interpreter, "_get_ops_details", list
    )()  # no public function lists them
    into = _ends(operators, "QUANTIZE", "inputs", "outputs")
    out_of = _ends(operators, "DEQUANTIZE", "outputs", "inputs") | _ends(operators, "QUANTIZE", "outputs", "inputs")
    domains, rounding = {}, {}
    for name, detail in zip(inputs, interpreter.get_input_details(), strict=True):
        index = int(detail["index"])
        domain = _domain(detail, tensors.get(into.get(index, -1)))
        if domain is not None:
            domains[name] = domain
    for name, detail in zip(outputs, interpreter.get_output_details(), strict=True):
        index = int(detail["index"])
        last = out_of.get(index, index)
        step = _scale(tensors.get(last))
        if step is not None:
            off = max(_STEPS * step, _moved(last, operators, tensors) + step)
            rounding[name] = off if np.dtype(detail["dtype"]).kind == "f" else float(np.ceil(off / step))
    notes = [f"quantized tensors ({len(quantized)}) are kept as QuantizeLinear and DequantizeLinear pairs"]
    notes += [
        f"output {name} may be {off:.3g} off: values half-way between two quantization steps go either way"
        for name, off in rounding.items()
    ]
    return Quantized(domains, rounding, tuple(notes))


def _ends(operators: Sequence[Mapping[str, Any]], kind: str, key: str, value: str) -> dict[int, int]:
    """Tensors that conversions of a kind have on one side -> those on the other."""
    found: dict[int, int] = {}
    for operator in operators:
        if operator["op_name"] == kind and len(operator["inputs"]) == len(operator["outputs"]) == 1:
            found.setdefault(int(operator[key][0]), int(operator[value][0]))
    return found


def _moved(tensor: int, operators: Sequence[Mapping[str, Any]], tensors: Mapping[int, Any]) -> float:
    """How far a tensor moves when what its softmax or sigmoid is made of moves by one step; 0 for others."""
    for operator in operators:
        if tensor in operator["outputs"] and operator["op_name"] in _SLOPES:
            return _SLOPES[operator["op_name"]] * (_scale(tensors.get(int(operator["inputs"][0]))) or 0.0)
    return 0.0


def _domain(detail: Mapping[str, Any], behind: Mapping[str, Any] | None) -> Domain | None:
    """What an input may be: every integer of a quantized one, the range that a float one is clipped to."""
    dtype = np.dtype(detail["dtype"])
    if dtype.kind in "iu" and _scale(detail) is not None:
        return Domain(float(np.iinfo(dtype).min), float(np.iinfo(dtype).max) + 1)
    scale = _scale(behind)
    if dtype.kind != "f" or behind is None or scale is None:
        return None
    limits, zero = np.iinfo(np.dtype(behind["dtype"])), int(behind["quantization"][1])
    return Domain(scale * (limits.min - zero), scale * (limits.max - zero))


def _scale(detail: Mapping[str, Any] | None) -> float | None:
    """The scale of a tensor that has one for all of it."""
    if detail is None or np.dtype(detail["dtype"]).kind not in "iu":
        return None
    scales = detail["quantization_parameters"]["scales"]
    return float(scales[0]) if np.size(scales) == 1 and scales[0] > 0 else None
