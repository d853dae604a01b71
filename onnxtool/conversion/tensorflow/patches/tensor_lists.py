"""Lists of tensors (TensorArray) as sequences, for loops that do more with them than tf2onnx takes.

tf2onnx 1.17 knows lists that a loop only reads, and those whose next place it writes in each round. A list that begins
before its loop (`tf.scan` without an initializer), or read where it was written, is none of these. A sequence takes all
of them, and is copied in each round: it is for what cannot be converted otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from onnxtool.conversion.patches import LibraryPatch
from onnxtool.conversion.tensorflow.patches.op_handlers import INT64, OperatorWriter, handled

_GROWS = "resize_if_index_out_of_bounds"


def _give_list(write: OperatorWriter, kind: str, *inputs: str, **attributes: Any) -> None:
    from tf2onnx.utils import SeqType

    write.dtype, write.shape = SeqType(write.node.get_attr_value("element_dtype")), None
    write.give(kind, *inputs, **attributes)


def _reserved(write: OperatorWriter) -> None:
    """As many scalars, in whose places tensors come; none where it grows."""
    from tf2onnx.utils import map_onnx_to_numpy_type

    users = write.graph.find_output_consumers(write.node.output[0])
    if any(user.get_attr_value(_GROWS, 0) for user in users):
        _give_list(write, "SequenceEmpty", dtype=write.node.get_attr_value("element_dtype"))
        return
    kind = map_onnx_to_numpy_type(write.node.get_attr_value("element_dtype"))
    count = write.add("Reshape", write.cast(write.inputs[1], INT64), write.constant([1], np.int64))
    _give_list(write, "SplitToSequence", write.add("Expand", write.constant(0, kind), count), axis=0, keepdims=0)


def _with_item(write: OperatorWriter) -> None:
    items, place, item = write.inputs
    place = write.cast(place, INT64)
    if not write.node.get_attr_value(_GROWS, 0):  # else it grows
        items = write.add("SequenceErase", items, place)
    _give_list(write, "SequenceInsert", items, item, place)


def _item(write: OperatorWriter) -> None:
    write.give("SequenceAt", write.inputs[0], write.cast(write.inputs[1], INT64))


def _joined(write: OperatorWriter, new_axis: int) -> None:
    write.give("ConcatFromSequence", write.inputs[0], axis=0, new_axis=new_axis)


def _branches(write: OperatorWriter) -> None:
    """What both give may be a list."""
    from tf2onnx.onnx_opset import controlflow
    from tf2onnx.utils import SeqType

    graph, node = write.graph, write.node
    if len(node.input) == 1 and node.type == "If":  # of the converter's own
        return
    for branch in ("then_branch", "else_branch"):
        inner = controlflow.find_function(node.get_attr_str(branch))
        for name, own in zip(node.output, inner.outputs, strict=True):
            source = inner.get_node_by_output(own)
            while source.type == "Identity":
                source = source.inputs[0]
            if isinstance(kind := inner.get_dtype(source.output[0]), SeqType):
                graph.set_dtype(name, kind)
    controlflow.StatelessIfOp.version_1(graph, node)


def _loop(write: OperatorWriter) -> None:
    """Lists that it only reads are one tensor, which is not copied."""
    from tf2onnx.onnx_opset import controlflow
    from tf2onnx.utils import SeqType

    graph, node = write.graph, write.node
    body = controlflow.find_function(node.get_attr_str("body"))
    for place, (name, own) in enumerate(zip(list(node.input), body.input_names, strict=True)):
        users = body.find_output_consumers(own)
        reads = [user for user in users if user.type == "SequenceAt"]
        passes = [u for u in users if u.type == "Identity" and not body.find_output_consumers(u.output[0])]
        if isinstance(graph.get_dtype(name), SeqType) and reads and len(reads) + len(passes) == len(users):
            source = graph.get_node_by_output(name)
            whole = source.input[0] if source.type == "SplitToSequence" else _all(write, name)
            graph.replace_input(node, name, whole, place)
            body.ta_reads.append(own)
            for read in reads:
                read.type = "Gather"
    controlflow.While.version_7(graph, node)


def _all(write: OperatorWriter, items: str) -> str:
    return write.add("ConcatFromSequence", items, axis=0, new_axis=1)


_HANDLERS: dict[str, Callable[[OperatorWriter], None]] = {
    "TensorListReserve": _reserved,
    "TensorListFromTensor": lambda write: _give_list(write, "SplitToSequence", write.inputs[0], axis=0, keepdims=0),
    "TensorListSetItem": _with_item,
    "While": _loop,
    "StatelessWhile": _loop,
    "If": _branches,
    "StatelessIf": _branches,
    "TensorListGetItem": _item,
    "TensorListStack": partial(_joined, new_axis=1),
    "TensorListConcatV2": partial(_joined, new_axis=0),
    "TensorListLength": lambda write: write.give("Cast", write.add("SequenceLength", write.inputs[0]), to=write.dtype),
}


@contextmanager
def _as_sequences() -> Iterator[None]:
    with ExitStack() as stack:
        for name, write in _HANDLERS.items():
            stack.enter_context(handled(name, 13, write, False))
        yield


PATCH = LibraryPatch("tf2onnx", "", "tf2onnx 1.17 has lists of tensors in simple loops alone", _as_sequences)
