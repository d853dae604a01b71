"""A TensorFlow function in float64."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache, partial
from itertools import count
from typing import Any

import numpy as np
import tensorflow as tf

from onnxtool.conversion.float64_reference import Float64Reference
from onnxtool.conversion.tensorflow.environment import quiet
from onnxtool.conversion.tensorflow.graph import freeze
from onnxtool.errors import InputError
from onnxtool.runtime.runner import Runner

_COPIES = count()
_MOST_BYTES = 1 << 28  # of a graph with its weights
_WIDER = {tf.float32.as_datatype_enum: tf.float64, tf.complex64.as_datatype_enum: tf.complex128}


def in_float64(model: Runner, concrete: Any, sample: Mapping[str, np.ndarray]) -> Float64Reference:
    """A function whose graph is rewritten to compute in float64 when it is first asked for.

    Args:
        model: runs the function.
        concrete: the function, of the model's inputs in order.
        sample: inputs on which it runs.
    """

    @cache
    def function() -> Any:
        frozen = freeze(concrete)
        if frozen.graph_def.ByteSize() > _MOST_BYTES:
            raise InputError("the graph is too large for a copy in float64")
        _widen(frozen.graph_def)
        made = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(frozen.graph_def, name=""), [])
        return made.prune(list(frozen.inputs), list(frozen.outputs))

    def widened(feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        arrays = [np.asarray(feeds[s.name]) for s in model.inputs]
        with quiet():
            try:
                found = function()(*(tf.constant(a.astype(np.float64) if a.dtype == np.float32 else a) for a in arrays))
            except Exception as error:  # an operator that has no kernel for float64, or asks for a type
                raise InputError(f"the graph does not run in float64: {type(error).__name__}") from error
        return [np.asarray(t) for t in found]

    return Float64Reference(model, sample, widened)


def _widen(graph_def: Any) -> None:
    """Make float64 of all that is float32, in place: types, constants, and what functions take and give.

    Functions get other names, since TensorFlow knows theirs already. Its own ResizeBilinear works out positions and
    pixels in float32, whatever it takes: a function does it here.
    """
    library, copy = graph_def.library, f"_in_float64_{next(_COPIES)}"
    names = {function.signature.name for function in library.function}
    for function in library.function:
        function.signature.name += copy
        for argument in (*function.signature.input_arg, *function.signature.output_arg):
            argument.type = _wider(argument.type)
    for body in [graph_def.node, *(f.node_def for f in library.function)]:
        resizes = {node.name for node in body if node.op == "ResizeBilinear"}
        for node in body:
            for value in node.attr.values():
                _widen_attribute(value, names, copy)
            for k, name in enumerate(node.input):  # as functions call the outputs of their operators
                node.input[k] = name.replace(":resized_images:", ":output:") if name.split(":")[0] in resizes else name
            if node.name in resizes:
                _call_bilinear(node, library)


def _widen_attribute(value: Any, functions: Collection[str], copy: str) -> None:
    held = value.WhichOneof("value")
    if held == "type":
        value.type = _wider(value.type)
    elif held == "tensor" and value.tensor.dtype in _WIDER:
        number = tf.make_ndarray(value.tensor).astype(_WIDER[value.tensor.dtype].as_numpy_dtype)
        value.tensor.CopyFrom(tf.make_tensor_proto(number))
    elif held == "list":
        value.list.type[:] = [_wider(kind) for kind in value.list.type]
    for function in [value.func] if held == "func" else value.list.func if held == "list" else ():
        function.name += copy if function.name in functions else ""


def _wider(kind: int) -> int:
    return int(_WIDER[kind].as_datatype_enum) if kind in _WIDER else kind


def _call_bilinear(node: Any, library: Any) -> None:
    """Put a call of a function into the place of ResizeBilinear."""
    kind = tf.dtypes.as_dtype(node.attr["T"].type)
    resize = partial(_bilinear, node.attr["align_corners"].b, node.attr["half_pixel_centers"].b)
    specs = tf.TensorSpec([None] * 4, kind), tf.TensorSpec([2], tf.int32)
    definition = tf.function(resize).get_concrete_function(*specs).function_def
    library.function.append(definition)
    node.op = "PartitionedCall"
    node.attr.clear()
    node.attr["Tin"].list.type[:] = [kind.as_datatype_enum, tf.int32.as_datatype_enum]
    node.attr["Tout"].list.type[:] = [tf.float64.as_datatype_enum]
    node.attr["f"].func.name = definition.signature.name


def _bilinear(aligned: bool, half: bool, image: Any, size: Any) -> Any:
    """float64[batch, *size, channels]: between the two next rows, then columns, at TensorFlow's positions."""
    image = tf.cast(image, tf.float64)
    for axis in (1, 2):
        old, new = (tf.cast(n, tf.float64) for n in (tf.shape(image)[axis], size[axis - 1]))
        corners = (old - 1.0) / tf.maximum(new - 1.0, 1.0)
        scale = tf.where(aligned & (new > 1.0), corners, old / new)
        shift = 0.5 if half else 0.0
        point = (tf.range(new) + shift) * scale - shift
        low = tf.floor(point)
        before, after = (
            tf.gather(image, tf.cast(tf.clip_by_value(at, 0.0, old - 1.0), tf.int32), axis=axis)
            for at in (low, low + 1.0)
        )
        image = before + (after - before) * tf.reshape(point - low, [-1] + [1] * (3 - axis))
    return image
