"""What a report says beside its numbers: what stays float and why, and what the numbers rest on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import islice

import numpy as np
import onnx_ir as ir

from onnxtool.errors import InputError, OnnxToolError
from onnxtool.model.ir.queries import all_nodes, constant_array, inner_nodes, is_op
from onnxtool.model.operators.table import operator_of
from onnxtool.quantization.algorithms.qdq_placement import COMPUTE
from onnxtool.quantization.evaluation.task_metric import LabelledTask
from onnxtool.quantization.inputs import ENOUGH, SPREAD_SAMPLES, QuantizationInputs, Spread
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.report.quantize import TaskMetric
from onnxtool.runtime.data.source import DataSource
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

_SAMPLES = 16
_LEAST_VALUES = 4  # of a channel, to tell how it varies
_FAR = 3.0  # standard deviations of training that the mean of half of the channels is off
_WIDER = 25.0  # times the variance of training, or the same part of it, in half of the channels
# What the data make in the first layer against its bias; of the trained models looked at, 1.6 to 55 times as much.
_LOUD_ABOVE, _LOUD_BELOW = 200.0, 30.0
_NO_BIAS = 1e-3  # of the mean weight: a bias that says nothing
_SCALE_THEM = "Scale them as in training (pictures: --image scale=, mean=, std=)."
_LINEAR = ("Conv", "Gemm", "MatMul")


def input_scaling_warning(model: ir.Model, data: DataSource) -> str:
    """A warning where the data are far from what the first layer saw in training; else "".

    A BatchNormalization behind it has the statistics, and so has a scaler before it; where these were folded, the
    layer's bias is of the size that its products have.

    Args:
        model: the float model as it came.
        data: samples; a few are run.
    """
    normalized = _first_normalized(model)
    if normalized is not None:
        value, mean, variance = normalized
        seen = _seen_at(model, value, data, 1)
        if seen is None or (mean.size > 1 and len(seen) != len(mean)) or seen.shape[1] < _LEAST_VALUES:
            return ""
        off = np.median(np.abs(seen.mean(1) - mean) / np.sqrt(variance + 1e-12))
        wider = float(np.median(seen.var(1) / (variance + 1e-12)))
        if off <= _FAR and 1 / _WIDER <= wider <= _WIDER:
            return ""
        return (
            f"the data do not look like what the model was trained on: where it normalizes, means are {off:.2g} "
            f"standard deviations off and the variance is {wider:.2g} times that of training. {_SCALE_THEM}"
        )
    first = next((n for n in model.graph if is_op(n, "Conv", "Gemm") and n.inputs[0] in set(model.graph.inputs)), None)
    bias = None if first is None or len(first.inputs) < 3 else constant_array(first.inputs[2])
    weight = None if first is None else constant_array(first.inputs[1])
    if first is None or bias is None or weight is None or np.abs(bias).mean() < _NO_BIAS * np.abs(weight).mean():
        return ""
    seen = _seen_at(model, first.outputs[0], data, 1 if first.op_type == "Conv" else -1)
    if seen is None or len(seen) != bias.size:
        return ""
    ratio = float(seen.std(1).sum() / np.abs(bias).sum())
    if ratio <= 0 or 1 / _LOUD_BELOW <= ratio <= _LOUD_ABOVE:
        return ""
    size = f"{ratio:.2g} times" if ratio > 1 else f"1/{1 / ratio:.2g} of"
    return (
        f"the data may be of another scale than in training: in the first layer they make {size} what its bias does. "
        f"{_SCALE_THEM}"
    )


def _seen_at(model: ir.Model, value: ir.Value | None, data: DataSource, axis: int) -> np.ndarray | None:
    """What a tensor of the float model holds on a few samples, float64 [channels, values]; None where it cannot run."""
    producer = None if value is None else value.producer()
    if value is None or producer is None:
        return None
    watched = model.clone()
    seen = list(watched.graph)[list(model.graph).index(producer)].outputs[value.index() or 0]
    if not seen.is_graph_output():
        seen.type = ir.TensorType(ir.DataType.FLOAT)
        watched.graph.outputs.append(seen)
    try:
        runner = OnnxRunner.open(watched, SessionOptions(threads=1, optimization="off"))
        outputs = [runner.run(feeds)[seen.name or ""] for feeds in islice(data.samples(), _SAMPLES)]
    except OnnxToolError:
        return None  # what is wrong with model or data is said where they are used
    channels = outputs[0].shape[axis]
    return np.concatenate([np.moveaxis(o, axis, 0).reshape(channels, -1) for o in outputs], 1).astype(np.float64)


def _first_normalized(model: ir.Model) -> tuple[ir.Value, np.ndarray, np.ndarray] | None:
    """What is normalized at an input or right behind a first layer, its mean and variance in training: float64
    [channels], or [1] for all of them.
    """
    inputs = set(model.graph.inputs)
    for node in model.graph:
        if node.op_type != "BatchNormalization" or len(node.inputs) < 5 or node.inputs[0] is None:
            continue
        layer = node.inputs[0].producer()
        behind = layer is not None and layer.op_type in _LINEAR and layer.inputs[0] in inputs
        if not behind and node.inputs[0] not in inputs:
            continue
        scale, bias, mean, variance = (constant_array(v) for v in node.inputs[1:5])
        if scale is None or bias is None or mean is None or variance is None or mean.ndim != 1:
            continue
        if behind:
            return node.inputs[0], mean.astype(np.float64), np.maximum(variance.astype(np.float64), 0.0)
        return node.outputs[0], bias.astype(np.float64), np.square(scale.astype(np.float64))
    scaled = next((v for start in model.graph.inputs if (v := _scaled(start)) is not None), None)
    return None if scaled is None else (scaled, np.zeros(1), np.ones(1))


def _scaled(value: ir.Value) -> ir.Value | None:
    """What a scaler, which takes off the mean and divides by the spread, makes of a float input; None without one."""
    found: set[str] = set()
    if value.dtype != ir.DataType.FLOAT:
        return None
    while len(value.uses()) == 1:
        ((node, index),) = value.uses()
        if node.op_type == "Scaler":
            return node.outputs[0]
        if not is_op(node, "Sub", "Add", "Mul", "Div") or constant_array(node.inputs[1 - index]) is None or index > 0:
            break
        found.add("shift" if node.op_type in ("Sub", "Add") else "scale")
        value = node.outputs[0]
    return value if found == {"shift", "scale"} else None


_FLOATS = ("float32", "float16", "float64", "bfloat16")
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
            *_few(job.spread),
            *filter(None, [_integers(job.data)]),
            *_constant_columns(job.data),
            *filter(None, [input_scaling_warning(job.original, job.data)]),
        ]
    return tuple(found)


def _few(spread: Spread) -> list[str]:
    read, different = spread
    if different >= ENOUGH:
        return []
    samples = "1 sample is" if read == 1 else f"{different} {'different ' * (different < read)}samples are"
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


def check_samples(job: QuantizationInputs) -> None:
    """Refuse samples that cannot be what a float model takes, or that show nothing.

    Raises:
        InputError: integers for a float input (pictures that nobody scaled), or samples that are all the same.
    """
    data = job.data
    if data is None:
        return
    found = _integers(data)
    if found:
        raise InputError(f"{data.label}: {found}. {_SCALE_THEM} --data-as-is takes them as they are.")
    if data.joins and 1 == job.spread.different < job.spread.read:
        raise InputError(
            f"{data.label}: all samples are the same, so that neither ranges nor errors can be measured. Give samples "
            "that differ, as the model will see them; --data-as-is takes them all the same."
        )


def _integers(data: DataSource) -> str:
    """Which float input the data have integers for, beyond 0 and 1; "" for none."""
    raw = next(iter(data.open()), {})
    if len(data.specs) == 1 and len(raw) == 1:
        raw = {data.specs[0].name: next(iter(raw.values()))}
    for spec in data.specs:
        array = np.asarray(raw.get(spec.name, 0.0))
        if (
            array.dtype.kind in "iu"
            and str(spec.dtype) in _FLOATS
            and array.size
            and max(abs(int(array.min())), abs(int(array.max()))) > 1
        ):
            return (
                f"{spec.name!r} is {array.dtype} in the data ({array.min()} to {array.max()} in the first sample), "
                "and the model takes floats"
            )
    return ""


def _constant_columns(data: DataSource) -> list[str]:
    """A warning for each table with columns that are the same in all samples, and each other input of which half is."""
    found = []
    for spec in data.specs:
        if spec.shape is None or len(spec.shape) < 2 or str(spec.dtype) not in _FLOATS or data.count == 1:
            continue
        batches = (feeds[spec.name] for feeds in data.limited(SPREAD_SAMPLES).samples())
        ends = [(a.min(axis=0), a.max(axis=0)) for a in batches]
        if len({low.shape for low, _ in ends}) != 1:
            continue
        low, high = (pick([end[i] for end in ends], axis=0) for i, pick in enumerate((np.min, np.max)))
        constant, is_table = int((low == high).sum()), low.ndim == 1
        if constant > (0 if is_table else low.size / 2):
            found.append(
                f"{constant} of {low.size} {'columns' if is_table else 'values'} of {spec.name!r} are the same in all "
                "samples: neither ranges nor errors were measured for what they are elsewhere."
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
