"""Calibration: run the float model over the samples once and keep, of each tensor, only what a range needs.

The statistics are taken inside the runtime: of every observed tensor its extremes, its sum (which tells NaN) and,
where a histogram is wanted, a strided sample of its values become extra outputs. The tensors themselves never leave
the runtime's arena, so that memory is that of plain inference, whatever the number of samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxtool import progress
from onnxtool.errors import InputError
from onnxtool.quantize.calibration import DataSource
from onnxtool.quantize.edit import new_initializer
from onnxtool.quantize.ranges import Observed, Range
from onnxtool.quantize.recipe import QuantRecipe
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session import SessionOptions

_VALUES = 4096  # values of one tensor that go into the histogram for each sample, at most about
_OFFSET = "onnxtool_sample_offset"


def observe(
    model: ir.Model,
    tensors: Sequence[str],
    data: DataSource,
    *,
    histogram: bool = False,
    threads: int | None = None,
) -> dict[str, Observed]:
    """Run `model` over `data` and watch `tensors`.

    Args:
        model: the prepared float model; left as it is.
        tensors: names of float tensors of the main graph.
        data: calibration samples.
        histogram: keep histograms too (for percentile, mse and entropy).
        threads: of the runtime.

    Returns:
        What was seen, by tensor name.

    Raises:
        InputError: there are no samples, or the float model itself gives NaN or infinity on one.
    """
    seen = {name: Observed(histogram) for name in tensors}
    if not tensors:
        return seen
    watched, outputs = _watched(model, tensors, histogram)
    runner = OnnxRunner.open(watched, SessionOptions(threads=threads))
    names = [o for group in outputs.values() for o in group]
    count = 0
    with progress.task("calibrating", data.count) as task:
        for index, feeds in enumerate(data.samples()):
            extra = {_OFFSET: np.array([index % 7919], np.int64)} if histogram else {}
            values = dict(zip(names, runner.session.run(names, feeds | extra), strict=True))
            for name, group in outputs.items():
                _take(seen[name], name, [values[o] for o in group], f"{data.label}, sample {index}")
            count += 1
            task.advance()
    if not count:
        raise InputError(f"{data.label}: there are no samples in it.")
    return seen


def calibrated(seen: Mapping[str, Observed], recipe: QuantRecipe) -> dict[str, Range]:
    """Ranges under the recipe's method."""
    return {name: o.range(recipe.method, recipe.coverage) for name, o in seen.items()}


def _take(observed: Observed, name: str, values: list[np.ndarray], where: str) -> None:
    low, high, elements, total = (float(v) for v in values[:4])
    observed.elements = max(observed.elements, int(elements))
    if low > high:  # the reduction of an empty tensor
        return
    # ReduceMin and ReduceMax pass over NaN; the sum does not.
    if np.isnan(total) or not (np.isfinite(low) and np.isfinite(high)):
        kind = "infinity" if np.isinf(low) or np.isinf(high) else "NaN"
        raise InputError(
            f"{where}: tensor {name!r} becomes {kind} in the float model, so that no range can be measured. "
            "Drop this sample, or mend the model."
        )
    observed.add(low, high, values[4] if len(values) > 4 else None)


def _watched(model: ir.Model, tensors: Sequence[str], histogram: bool) -> tuple[ir.Model, dict[str, list[str]]]:
    copy = model.clone()
    graph = copy.graph
    values = {v.name: v for v in graph.inputs}
    values |= {v.name: v for node in graph for v in node.outputs}
    extras: dict[str, list[str]] = {}
    offset = _offset(graph) if histogram else None
    constants = {n: new_initializer(graph, f"onnxtool_{n}", np.array(a, np.int64)) for n, a in _CONSTANTS.items()}
    graph.outputs.clear()
    for position, name in enumerate(tensors):
        prefix = f"onnxtool_watch_{position}"
        made = [_append(graph, "ReduceMin", [values[name]], f"{prefix}_low", {"keepdims": 0})]
        made.append(_append(graph, "ReduceMax", [values[name]], f"{prefix}_high", {"keepdims": 0}))
        made.append(_append(graph, "Size", [values[name]], f"{prefix}_elements"))
        made.append(_append(graph, "ReduceSum", [values[name]], f"{prefix}_sum", {"keepdims": 0}))
        if offset is not None:
            made.append(_sample(graph, values[name], offset, constants, prefix))
        for value in made:
            is_size = value.name is not None and value.name.endswith("_elements")
            value.type = ir.TensorType(ir.DataType.INT64 if is_size else ir.DataType.FLOAT)
        graph.outputs.extend(made)
        extras[name] = [value.name or "" for value in made]
    return copy, extras


_CONSTANTS = {"flat": [-1], "one": [1], "many": [_VALUES], "end": [2**62], "axis": [0], "two": [2]}


def _offset(graph: ir.Graph) -> ir.Value:
    value = ir.Value(name=_OFFSET, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([1]))
    graph.inputs.append(value)
    return value


def _sample(
    graph: ir.Graph, value: ir.Value, offset: ir.Value, constants: Mapping[str, ir.Value], prefix: str
) -> ir.Value:
    """About _VALUES values at an odd stride.

    The first one moves from sample to sample, so that no channel of a channels-last tensor is passed over for good.
    """

    def step(op_type: str, inputs: list[ir.Value], name: str) -> ir.Value:
        return _append(graph, op_type, inputs, f"{prefix}_{name}")

    flat = step("Reshape", [value, constants["flat"]], "flat")
    parts = step("Div", [step("Shape", [flat], "size"), constants["many"]], "parts")
    even = step("Sub", [parts, step("Mod", [parts, constants["two"]], "odd")], "even")
    stride = step("Add", [even, constants["one"]], "stride")
    start = step("Mod", [offset, stride], "start")
    return step("Slice", [flat, start, constants["end"], constants["axis"], stride], "values")


def _append(
    graph: ir.Graph, op_type: str, inputs: list[ir.Value], name: str, attributes: dict[str, int] | None = None
) -> ir.Value:
    node = ir.node(op_type, inputs, attributes, name=name)
    node.outputs[0].name = name
    graph.append(node)
    return node.outputs[0]
