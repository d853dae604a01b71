"""What a report says beside its numbers: what stays float and why, and what the numbers rest on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import islice

import numpy as np
import onnx_ir as ir

from onnxtool.errors import OnnxToolError
from onnxtool.model.ir.queries import all_nodes, constant_array, inner_nodes, is_op
from onnxtool.model.operators.table import operator_of
from onnxtool.quantization.algorithms.qdq_placement import COMPUTE
from onnxtool.quantization.evaluation.task_metric import LabelledTask
from onnxtool.quantization.inputs import QuantizationInputs
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.report.quantize import TaskMetric
from onnxtool.runtime.data.source import DataSource
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

_SAMPLES = 16
_FAR = 3.0  # standard deviations of training that the mean of half of the channels is off
_WIDER = 25.0  # times the variance of training, or the same part of it, in half of the channels
_LINEAR = ("Conv", "Gemm", "MatMul")


def input_scaling_warning(model: ir.Model, data: DataSource) -> str:
    """A warning where the data are far from what the first normalized layer saw in training; else "".

    Args:
        model: the float model as it came.
        data: samples; a few are run.
    """
    found = _first_normalized(model)
    if found is None:
        return ""
    node, mean, variance = found
    position = list(model.graph).index(node)
    watched = model.clone()
    value = list(watched.graph)[position].inputs[0]
    assert value is not None
    value.type = ir.TensorType(ir.DataType.FLOAT)
    watched.graph.outputs.append(value)
    try:
        runner = OnnxRunner.open(watched, SessionOptions(threads=1, optimization="off"))
        outputs = [runner.run(feeds)[value.name or ""] for feeds in islice(data.samples(), _SAMPLES)]
    except OnnxToolError:
        return ""  # what is wrong with model or data is said where they are used
    seen = np.concatenate([np.moveaxis(o, 1, 0).reshape(len(mean), -1) for o in outputs], axis=1).astype(np.float64)
    off = np.median(np.abs(seen.mean(1) - mean) / np.sqrt(variance + 1e-12))
    wider = float(np.median(seen.var(1) / (variance + 1e-12)))
    if off <= _FAR and 1 / _WIDER <= wider <= _WIDER:
        return ""
    return (
        f"the data do not look like what the model was trained on: behind its first layer, means are {off:.2g} "
        f"standard deviations off and the variance is {wider:.2g} times that of training. Scale them as in training "
        "(pictures: --image scale=, mean=, std=)."
    )


def _first_normalized(model: ir.Model) -> tuple[ir.Node, np.ndarray, np.ndarray] | None:
    """The first BatchNormalization right behind a first layer, its running mean and variance: float64 [channels]."""
    inputs = set(model.graph.inputs)
    for node in model.graph:
        if node.op_type != "BatchNormalization" or len(node.inputs) < 5 or node.inputs[0] is None:
            continue
        layer = node.inputs[0].producer()
        if layer is None or layer.op_type not in _LINEAR or layer.inputs[0] not in inputs:
            continue
        mean, variance = constant_array(node.inputs[3]), constant_array(node.inputs[4])
        if mean is None or variance is None or mean.shape != variance.shape or mean.ndim != 1:
            continue
        return node, mean.astype(np.float64), np.maximum(variance.astype(np.float64), 0.0)
    return None


_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))
_FLOATS = ("float32", "float16", "float64", "bfloat16")
_ENOUGH = 8  # samples
_CHANCE = {"auc": 0.5, "r2": 0.0, "f1": 0.0, "miou": 0.0, "map": 0.0, "retrieval": 0.0}
_BETTER = 0.05  # than chance, of what there is above it
_NO_KERNEL = ("GRU", "RNN", "ConvTranspose")


def remarks(job: QuantizationInputs, recipe: QuantRecipe, planned: Collection[str] = ()) -> tuple[str, ...]:
    """The warnings of a report; `planned` are the names of the nodes that are quantized."""
    found = []
    if recipe.mode != "float16":
        found += _inside_subgraphs(job.prepared, planned) + _without_kernel(job.prepared)
    if quantized_nodes(job.original):
        found.append("the model holds quantized nodes already; those stay as they are.")
    if job.data is None:
        found.append("without --data the error is measured on random inputs, which says little about real ones.")
    else:
        found += [
            *job.data.notes,
            *_few(job.data),
            *_unscaled(job.data),
            *filter(None, [input_scaling_warning(job.original, job.data)]),
        ]
    return tuple(found)


def _few(data: DataSource) -> list[str]:
    if data.count is None or data.count >= _ENOUGH:
        return []
    samples = "1 sample is" if data.count == 1 else f"{data.count} samples are"
    return [
        f"{samples} few to measure ranges and errors on: others may lie beyond these ranges, and lose more. A hundred "
        "that look like what the model will see are enough."
    ]


def remarks_on_metric(task: LabelledTask | None, metric: TaskMetric | None) -> tuple[str, ...]:
    """A warning where the float model itself does no better on the labels than chance: nothing could lose then."""
    if task is None or metric is None:
        return ()
    chance = _CHANCE.get(metric.name)
    if metric.name == "accuracy":
        chance = float(np.unique(task.labels, return_counts=True)[1].max() / max(task.labels.size, 1))
    if chance is None or metric.float_value > chance + _BETTER * (1 - chance):
        return ()
    return (
        f"the float model itself has {metric.name} {metric.float_value:.4g} on the labelled data, where chance gives "
        f"{chance:.4g}: the labels or the inputs may not be what it was trained on. That nothing is lost says little.",
    )


def _unscaled(data: DataSource) -> list[str]:
    """Bytes for a float input: pictures that somebody forgot to scale give ranges hundreds of times too wide."""
    raw = next(iter(data.open()), {})
    if len(data.specs) == 1 and len(raw) == 1:
        raw = {data.specs[0].name: next(iter(raw.values()))}
    found = []
    for spec in data.specs:
        array = np.asarray(raw.get(spec.name, 0.0))
        if array.dtype not in _BYTES or str(spec.dtype) not in _FLOATS or not array.size:
            continue
        low, high = int(array.min()), int(array.max())
        if max(abs(low), abs(high)) > 1:
            found.append(
                f"{spec.name!r} is {array.dtype} in the data ({low} to {high} in the first sample) and was taken as it "
                f"is. If the model expects scaled values, 0 to 1 say, scale the data first: ranges are wrong otherwise."
            )
    return found


def nothing_to_quantize(model: ir.Model, kinds: str = "Conv, Gemm or MatMul") -> str:
    """Why there is nothing to do in a model."""
    if quantized_nodes(model):
        return (
            f"the model is quantized already, and no float {kinds} with constant weights is left in it. "
            "Give the float model that it was made from."
        )
    inside = _counts_in_subgraphs(model)
    where = f" ({_words(inside)} inside If, Loop or Scan left aside)" if inside else ""
    return f"there is no {kinds} with constant float32 weights to quantize in this model{where}."


def quantized_nodes(model: ir.Model) -> int:
    """Number of nodes that are quantized in a model as it comes."""
    return sum(operator_of(n).integer != "no" for n in all_nodes(model))


def _counts_in_subgraphs(model: ir.Model, planned: Collection[str] = ()) -> Counter[str]:
    inner = [n for n in inner_nodes(model.graph) if n.name not in planned]
    return Counter(n.op_type for n in inner if is_op(n, *COMPUTE, "LSTM"))


def _inside_subgraphs(model: ir.Model, planned: Collection[str]) -> list[str]:
    counts = _counts_in_subgraphs(model, planned)
    return [f"inside If, Loop or Scan, nodes stay float: {_words(counts)}."] if counts else []


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items()))


def _without_kernel(model: ir.Model) -> list[str]:
    counts = Counter(n.op_type for n in model.graph if is_op(n, *_NO_KERNEL))
    if not counts:
        return []
    return [
        f"the runtime has no integer kernel for {_words(counts)}: float (--compact 8 stores their weights in 8 bits)."
    ]
