"""Calibration: run the float model over the samples once and keep, of each tensor, only what a range needs.

The statistics are taken inside the runtime: of every observed tensor its extremes and, where a histogram is wanted, a
strided sample of its values become extra outputs. The tensors themselves never leave the runtime's arena, so that
memory is that of plain inference, whatever the number of samples. Every node more costs time (the runtime has to undo
its blocked layout for each), so that there are as few as possible: what a first run can tell (sizes, strides) is
constant afterwards, results that cannot be negative have no minimum taken, and NaN is looked for in the model's
outputs and in the sampled values; only when it is found, that sample is looked at tensor by tensor.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool import progress
from onnxtool.errors import InputError
from onnxtool.model import io
from onnxtool.model.ir.editing import append, new_initializer
from onnxtool.model.ir.queries import float_constant, is_op
from onnxtool.model.operators.table import operator_of
from onnxtool.quantization.calibration.range_estimators import ObservedChannels, ObservedRange, Range
from onnxtool.quantization.preprocess.constant_fills import loading
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.data.source import DataSource
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.memory import release_memory
from onnxtool.runtime.session.session import SessionOptions

_VALUES = 1 << 18  # values of one tensor that go into its histogram, about, over all samples
_PER_SAMPLE = (1024, 8192)  # the least and the most of one sample
_UNKNOWN_COUNT = 128  # samples to expect where the number is not known
_WORTH_THREADS = 2.0  # seconds; for less, threads that wait for one another cost more than they save
_LARGE = 5_000_000  # bytes of weights from which on all threads begin: the memory is then the same for any data
_START = "onnxtool_start_"
_AXES_ARE_INPUTS = 18  # of ReduceMax and ReduceMin, from this opset


def observe(
    model: ir.Model,
    tensors: Sequence[str],
    data: DataSource,
    *,
    histogram: bool = False,
    threads: int | None = None,
    channels: Mapping[str, int] | None = None,
    finite: bool = False,
) -> dict[str, ObservedRange]:
    """Run `model` over `data` and watch `tensors`.

    Args:
        model: the prepared float model; left as it is.
        tensors: names of float tensors of the main graph.
        data: calibration samples.
        histogram: keep histograms too (for percentile, mse and entropy), and how many elements a tensor has.
        threads: of the runtime; None: one, or all where that saves time.
        channels: how many channels (last axis) those of them have that are to be known channel by channel.
        finite: look at finite elements alone; infinity (of a mask) is no fault.

    Returns:
        What was seen, by tensor name; `ObservedChannels` of those in `channels`.

    Raises:
        InputError: there are no samples, or the float model itself gives NaN or infinity on one.
    """
    channels = dict(channels or {})
    seen = {n: ObservedChannels(channels[n]) if n in channels else ObservedRange(histogram) for n in tensors}
    if not tensors:
        return seen
    strides = _strides(model, tensors, data, seen, threads) if histogram else {}
    known = _known_ranges(model, [name for name in tensors if name not in channels])
    tensors = [name for name in tensors if name not in known]
    watch = _Watch(model, tensors, strides, channels, finite=finite)
    on_one = threads is None and io.weight_bytes(model) < _LARGE
    runner = watch.open(_options(1 if on_one else threads))
    watched = {name: seen[name] for name in tensors}
    count = 0
    with progress.task("calibrating", data.count) as task:
        for index, feeds in enumerate(data.samples()):
            began = time.perf_counter()
            found = runner.run({**feeds, **watch.starts(index)})
            if on_one and index == 1:  # the first run is not like the others
                expected = (time.perf_counter() - began) * (data.count or _UNKNOWN_COUNT)
                if expected > _WORTH_THREADS:
                    del runner  # the memory of one session at a time
                    runner = watch.open(_options(None))
            if watch.take(found, watched, index):
                _blame(model, tensors, feeds, data.place(index), threads, ["NaN"] if finite else ["NaN", "infinity"])
            count += 1
            task.advance()
    if not count:
        raise InputError(f"{data.label}: there are no samples in it.")
    for name, (low, high) in known.items():
        seen[name].add(low, high)
    return seen


def _known_ranges(model: ir.Model, tensors: Sequence[str]) -> dict[str, Range]:
    """Tensors that need not be looked at: what is quantized of a HardSigmoid saturates at 0 and 1 in any case."""
    gates = {v.name or "" for node in model.graph if is_op(node, "HardSigmoid") for v in node.outputs}
    return {name: (0.0, 1.0) for name in tensors if name in gates}


def _options(threads: int | None) -> SessionOptions:
    return SessionOptions(threads=threads, outputs_early=True, lean=True)


def calibrated(seen: Mapping[str, ObservedRange], recipe: QuantRecipe) -> dict[str, Range]:
    """Ranges under the recipe's method."""
    return {name: o.range(recipe.method, recipe.coverage) for name, o in seen.items()}


def _strides(
    model: ir.Model, tensors: Sequence[str], data: DataSource, seen: Mapping[str, ObservedRange], threads: int | None
) -> dict[str, int]:
    """How far apart the values of each tensor lie that go into its histogram; notes sizes in `seen`.

    Odd, so that no channel of a channels-last tensor is passed over.
    """
    probe = OutputProbe(model)
    sizes = [probe.add("Size", probe.values[n], f"size_{i}", ir.DataType.INT64) for i, n in enumerate(tensors)]
    # One run, of which nothing but sizes matters: no time or memory for a faster graph.
    options = SessionOptions(threads=threads, optimization="off", prepack=False, outputs_early=True, lean=True)
    found = probe.open(options).run(data.first())
    least, most = _PER_SAMPLE
    wanted = min(max(_VALUES // (data.count or _UNKNOWN_COUNT), least), most)
    strides = {}
    for name, size in zip(tensors, sizes, strict=True):
        seen[name].elements = int(found[size])
        stride = int(found[size]) // wanted
        strides[name] = stride - stride % 2 + 1
    return strides


def _blame(
    model: ir.Model, tensors: Sequence[str], feeds: Feeds, where: str, threads: int | None, kinds: Sequence[str]
) -> None:
    """Name the first tensor that holds NaN or infinity, as far as `kinds` names it.

    Raises:
        InputError: one of them does.
    """
    probe = OutputProbe(model)
    checks = []
    for kind in kinds:
        operator = "IsNaN" if kind == "NaN" else "IsInf"
        for position, name in enumerate(tensors):
            flags = probe.step(operator, [probe.values[name]], f"{kind}_{position}_flags")
            single = probe.step("Cast", [flags], f"{kind}_{position}_number", {"to": int(ir.DataType.FLOAT)})
            checks.append((position, kind, probe.add("ReduceMax", single, f"{kind}_{position}")))
    found = probe.open(_options(threads)).run(feeds)
    bad = [(position, kind) for position, kind, name in checks if found[name] > 0]
    if bad:
        position, kind = min(bad, key=lambda b: b[0])
        raise InputError(
            f"{where}: tensor {tensors[position]!r} becomes {kind} in the float model, so that no range can be "
            "measured. Drop this sample, or mend the model."
        )


class OutputProbe:
    """A copy of a model with other outputs."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model.clone()
        self.graph = self.model.graph
        self.values = {v.name: v for v in self.graph.inputs} | {v.name: v for n in self.graph for v in n.outputs}
        self.results = list(self.graph.outputs)
        self.graph.outputs.clear()
        self._made_of = model

    def step(
        self, op_type: str, inputs: list[ir.Value], name: str, attributes: Mapping[str, Any] | None = None
    ) -> ir.Value:
        """A node more at the end."""
        return append(self.graph, op_type, inputs, f"onnxtool_{name}", attributes)

    def rows(self, op_type: str, value: ir.Value, shape: ir.Value, name: str) -> str:
        """An output more: a reduction of each column of a tensor, made a matrix of this shape."""
        matrix = self.step("Reshape", [value, shape], f"{name}_matrix")
        if self.model.opset_imports.get("", 0) >= _AXES_ARE_INPUTS:
            axis = new_initializer(self.graph, f"onnxtool_{name}_axis", np.array([0], np.int64))
            return self.output(self.step(op_type, [matrix, axis], name, {"keepdims": 0}))
        return self.output(self.step(op_type, [matrix], name, {"keepdims": 0, "axes": [0]}))

    def add(self, op_type: str, value: ir.Value, name: str, dtype: ir.DataType = ir.DataType.FLOAT) -> str:
        """An output more: a reduction of a tensor to one number."""
        attributes = {"keepdims": 0} if op_type.startswith("Reduce") else None
        return self.output(self.step(op_type, [value], name, attributes), dtype)

    def output(self, result: ir.Value, dtype: ir.DataType = ir.DataType.FLOAT) -> str:
        """Make a value an output; its name."""
        result.type = ir.TensorType(dtype)
        self.graph.outputs.append(result)
        return result.name or ""

    def open(self, options: SessionOptions) -> OnnxRunner:
        """Load it; the runtime computes nothing that no output needs."""
        release_memory(io.weight_bytes(self.model))
        with loading(self._made_of):  # a guard can be entered once, and a probe may be opened again
            return OnnxRunner.open(self.model, options)


class _Watch(OutputProbe):
    """A model whose outputs are statistics of some of its tensors."""

    def __init__(
        self,
        model: ir.Model,
        tensors: Sequence[str],
        strides: Mapping[str, int],
        channels: Mapping[str, int],
        *,
        finite: bool,
    ) -> None:
        super().__init__(model)
        self._strides = strides
        self.lows: dict[str, str] = {}
        self.highs: dict[str, str] = {}
        self.sampled: dict[str, str] = {}
        self._starts = {stride: self._start(stride) for stride in sorted(set(strides.values()))}
        self._constants = {
            n: new_initializer(self.graph, f"onnxtool_{n}", np.array([v], np.int64))
            for n, v in {"flat": -1, "axis": 0, "end": 2**62, **{f"by_{s}": s for s in self._starts}}.items()
        }
        zero = new_initializer(self.graph, "onnxtool_zero", np.array(0, np.float32)) if finite else None
        for position, name in enumerate(tensors):
            value = self.values[name]
            if zero is not None:
                infinite = self.step("IsInf", [value], f"infinite_{position}")
                value = self.step("Where", [infinite, zero, value], f"finite_{position}")
            if name in channels:
                width = np.array([-1, channels[name]], np.int64)
                shape = new_initializer(self.graph, f"onnxtool_shape_{position}", width)
                self.highs[name] = self.rows("ReduceMax", value, shape, f"high_{position}")
                self.lows[name] = self.rows("ReduceMin", value, shape, f"low_{position}")
            else:
                self.highs[name] = self.add("ReduceMax", value, f"high_{position}")
            if name not in channels and not _never_negative(self.values[name]):
                self.lows[name] = self.add("ReduceMin", value, f"low_{position}")
            if name in strides:
                self.sampled[name] = self.output(self._sample(value, strides[name], f"values_{position}"))
        floats = [v for v in self.results if isinstance(v.type, ir.TensorType) and v.dtype == ir.DataType.FLOAT]
        self._sums = [self.add("ReduceSum", v, f"sum_{i}") for i, v in enumerate(floats)]

    def starts(self, index: int) -> dict[str, np.ndarray]:
        """Feeds that move the first sampled value from sample to sample."""
        return {f"{_START}{s}": np.array([index % s], np.int64) for s in self._starts}

    def take(self, found: Mapping[str, np.ndarray], seen: Mapping[str, ObservedRange], index: int) -> bool:
        """Take in a sample, the `index`-th; True when a value may be NaN or infinity, and then `seen` is of no use."""
        extremes = [
            (n, float(found[self.lows[n]].min()) if n in self.lows else 0.0, float(found[self.highs[n]].max()))
            for n in seen
        ]
        with np.errstate(invalid="ignore"):
            suspect = any(np.isnan(found[s]) for s in self._sums)
        for name, low, high in extremes:
            # The reductions of an empty tensor are infinite the other way round.
            empty = high == -np.inf and low >= 0
            if empty:
                continue
            if not (np.isfinite(low) and np.isfinite(high)):
                return True
            known = seen[name]
            values = found[self.sampled[name]] if name in self.sampled else None
            known.add(low, high, values)
            if isinstance(known, ObservedChannels):
                known.add_channels(found[self.lows[name]], found[self.highs[name]])
                if values is not None:
                    known.keep(values, index % self._strides[name], self._strides[name])
        return suspect

    def _start(self, stride: int) -> ir.Value:
        value = ir.Value(name=f"{_START}{stride}", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([1]))
        self.graph.inputs.append(value)
        return value

    def _sample(self, value: ir.Value, stride: int, name: str) -> ir.Value:
        constants = self._constants
        flat = self.step("Reshape", [value, constants["flat"]], f"{name}_flat")
        window = [self._starts[stride], constants["end"], constants["axis"], constants[f"by_{stride}"]]
        return self.step("Slice", [flat, *window], name)


def _never_negative(value: ir.Value) -> bool:
    node = value.producer()
    if node is None:
        return False
    if operator_of(node).never_negative:
        return True
    low = float_constant(node.inputs[1]) if is_op(node, "Clip") and len(node.inputs) > 1 else None
    return low is not None and low.size == 1 and float(low.reshape(-1)[0]) >= 0
