"""What an output is for, as far as its graph says: it decides by what a quantized one is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum

import onnx_ir as ir

from onnxtool.errors import UsageError
from onnxtool.model.ir.queries import attribute, constant_array, is_constant, is_op, walk
from onnxtool.model.operators.table import operator_of

# Behind these the last axis is still that of the classes or the vector, which a Transpose would change: not all that
# moves values does.
_PASSED_ON = ("Reshape", "Identity", "Cast", "Squeeze", "Unsqueeze", "Slice", "Add", "Flatten", "Mul", "Div", "Gather")
_STEPS = 8
_SUMS = ("Gemm", "MatMul", "Conv", "ConvTranspose")
_STILL_SUMS = ("Relu", "Add", "Sub", "Mul", "Cast")
_CHOOSING = ("ArgMax", "TopK")
_POOLED = ("ReduceMean", "GlobalAveragePool", "LpNormalization", "LayerNormalization", "RMSNormalization", "ReduceL2")


class OutputKind(Enum):
    """How an output is used.

    Attributes:
        CLASSES: logits or probabilities over the last axis; a Softmax, an ArgMax or a TopK says so.
        LINEAR: a linear layer's result, which may be logits as well as several targets: it has to hold as both.
        VECTORS: rows that are compared with one another (pooled or normalised vectors, last hidden states).
        SCORES: what a Sigmoid makes (notes, labels, pixels): all columns are on one scale, so that one in which next to
            nothing happens is no signal of its own.
        LABELS: whole numbers that are chosen (by an ArgMax or a TopK), truth values and texts: the same, or another.
        FOLLOWS: the same where they follow from sizes and inputs, or from another output, which is judged by itself.
        DETECTIONS: rows behind a NonMaxSuppression: found again, or not.
        VALUES: anything else: every column and channel counts by itself.
    """

    CLASSES = "classes"
    LINEAR = "linear"
    VECTORS = "vectors"
    SCORES = "scores"
    LABELS = "labels"
    FOLLOWS = "follows"
    DETECTIONS = "detections"
    VALUES = "values"


# What people call these.
_WORDS = {
    "logits": OutputKind.CLASSES,
    "classes": OutputKind.CLASSES,
    "linear": OutputKind.LINEAR,
    "embedding": OutputKind.VECTORS,
    "vectors": OutputKind.VECTORS,
    "boxes": OutputKind.VALUES,
    "mask": OutputKind.VALUES,
    "scores": OutputKind.SCORES,
    "values": OutputKind.VALUES,
}


def parse_kinds(texts: Sequence[str], outputs: Sequence[str]) -> dict[str, OutputKind]:
    """Parse NAME:KIND for outputs whose use the graph does not tell.

    Raises:
        UsageError: another form, a kind that is not known, or no such output.
    """
    found = {}
    for text in texts:
        name, colon, word = text.rpartition(":")
        if not colon or word not in _WORDS:
            raise UsageError(f"--output-kind {text}: write NAME:KIND, KIND one of {', '.join(_WORDS)}.")
        if name not in outputs:
            raise UsageError(f"--output-kind {text}: the model gives {', '.join(outputs)}.")
        found[name] = _WORDS[word]
    return found


def kind_of(output: ir.Value, shape: tuple[int, ...] | None = None, *, alike: bool = True) -> OutputKind:
    """Read off the graph what an output is. Its name says nothing: "features" may be targets, "logits" amounts.

    Args:
        output: of a graph.
        shape: what it was seen with, in place of the declared one.
        alike: its columns vary about as much as one another, so that they may be of one unit. Where they are not, every
            column is a result of its own unless a Softmax, an ArgMax or a TopK says otherwise.
    """
    dims = shape if shape is not None else output.shape if output.shape is not None else ()
    rank, last_dim = len(dims), dims[-1] if len(dims) else None
    is_vector = alike and rank in (2, 3) and last_dim != 1
    behind = list(_behind(output))
    if rank >= 2 and any(_is_chosen_from(v) for v in behind):
        return OutputKind.CLASSES
    if is_vector and any(_is_mean(v) for v in behind):
        return OutputKind.VECTORS
    for node in (n for v in behind if (n := v.producer()) is not None):
        if is_op(node, "Softmax", "LogSoftmax"):
            axis = node.attributes.get_int("axis", -1)
            made = node.outputs[0].shape
            last = rank - 1 if made is None else len(made) - 1  # dims may be taken away behind it
            return OutputKind.CLASSES if axis in (-1, last) else OutputKind.VALUES
        if is_op(node, "Sigmoid", "HardSigmoid") and rank >= 2:
            return OutputKind.SCORES
        if is_op(node, "MatMul", "Gemm"):
            return OutputKind.LINEAR
        if is_op(node, *_POOLED) and is_vector:
            return OutputKind.VECTORS
    return OutputKind.VALUES


def is_computed(output: ir.Value) -> bool:
    """Whether an output hangs on what sums have given, and not on sizes and inputs alone: else nothing changes it."""
    nodes = _nodes_behind(output, lambda node: () if is_op(node, "Shape", "Size") else node.inputs)
    rows = map(operator_of, nodes)
    return any(row.accumulates or row.packed or row.has_bodies for row in rows)


def is_rounded(output: ir.Value) -> bool:
    """Whether whole numbers are amounts: floats that a Cast has made so."""
    casts = [n for v in _behind(output) if (n := v.producer()) is not None and is_op(n, "Cast")]
    return any(v is not None and _is_float(v) for cast in casts for v in cast.inputs)


def _is_float(value: ir.Value) -> bool:
    """By its type, or where the file does not say it, by what gives it."""
    if value.dtype is not None:
        return value.dtype.is_floating_point()
    node = value.producer()
    return node is not None and not is_op(node, *_CHOOSING, "ArgMin", "NonZero") and not operator_of(node).compares


def may_be_scores(output: ir.Value | None) -> bool:
    """Whether values within [0, 1] may be scores: something may hold them there, and they are no sums and no inputs.

    What is learned as a sum (a price in millions) lies there by chance.
    """

    def handed_on(node: ir.Node) -> list[ir.Value | None]:
        row = operator_of(node)
        return [v for i, v in enumerate(node.inputs) if row.passes_through == "no" or row.carries(i)]

    def holds(node: ir.Node) -> bool:
        stays = operator_of(node).passes_through != "no" or is_op(node, *_SUMS, *_STILL_SUMS)
        return is_op(node, "Clip") or not stays

    nodes = _nodes_behind(output, lambda node: () if is_op(node, *_SUMS) else handed_on(node))
    return any(map(holds, nodes))


def _nodes_behind(
    output: ir.Value | None, through: Callable[[ir.Node], Iterable[ir.Value | None]]
) -> Iterator[ir.Node]:
    """What makes an output, each node once, and what makes those of its inputs that it is looked `through`."""
    waiting, seen = [output], set[ir.Node]()
    while waiting:
        value = waiting.pop()
        node = None if value is None else value.producer()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            waiting += through(node)


def table_sizes(graph: ir.Graph) -> set[int]:
    """How many rows each table has that inputs are looked up in: a linear layer with as many results names one."""
    lookups = [n for n in walk(graph) if is_op(n, "Gather") and attribute(n, "axis", 0) == 0]
    shapes = [v.shape for n in lookups if (v := n.inputs[0]) is not None and is_constant(v)]
    return {shape[0] for shape in shapes if shape is not None and len(shape) == 2 and isinstance(shape[0], int)}


def _behind(output: ir.Value) -> Iterator[ir.Value]:
    """The output, and what it is made of as long as nodes hand it on."""
    value: ir.Value | None = output
    for _ in range(_STEPS):
        if value is None:
            return
        yield value
        node = value.producer()
        if node is None or not is_op(node, *_PASSED_ON):
            return
        value = next((v for v in node.inputs if v is not None and v.const_value is None), None)


def _is_mean(value: ir.Value) -> bool:
    """A sum over tokens (any but the last axis) over how many there are."""
    node = value.producer()
    above = (
        node.inputs[0].producer() if node is not None and is_op(node, "Div") and node.inputs[0] is not None else None
    )
    if above is None or not is_op(above, "ReduceSum"):
        return False
    axes = above.attributes.get_ints("axes", [])
    if not axes and len(above.inputs) > 1:
        given = constant_array(above.inputs[1])
        axes = [] if given is None else [int(a) for a in given.ravel()]
    rank = len(above.inputs[0].shape) if above.inputs[0] is not None and above.inputs[0].shape is not None else 0
    return bool(axes) and -1 not in axes and rank - 1 not in axes


def _is_chosen_from(value: ir.Value) -> bool:
    return any(is_op(node, *_CHOOSING) and index == 0 for node, index in value.uses())
