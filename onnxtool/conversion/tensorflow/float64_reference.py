"""A TensorFlow function in float64."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from onnxtool.conversion.float64_reference import Float64Reference
from onnxtool.conversion.tensorflow.environment import quiet
from onnxtool.conversion.tensorflow.graph import freeze
from onnxtool.errors import InputError
from onnxtool.runtime.runner import Runner

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
    """Make float64 of all that is float32, in place: types, constants, and what functions take and give."""
    for function in graph_def.library.function:
        for argument in (*function.signature.input_arg, *function.signature.output_arg):
            argument.type = _wider(argument.type)
    bodies = [graph_def.node, *(f.node_def for f in graph_def.library.function)]
    for node in (n for body in bodies for n in body):
        for value in node.attr.values():
            held = value.WhichOneof("value")
            if held == "type":
                value.type = _wider(value.type)
            elif held == "list":
                value.list.type[:] = [_wider(kind) for kind in value.list.type]
            elif held == "tensor" and value.tensor.dtype in _WIDER:
                number = tf.make_ndarray(value.tensor).astype(_WIDER[value.tensor.dtype].as_numpy_dtype)
                value.tensor.CopyFrom(tf.make_tensor_proto(number))


def _wider(kind: int) -> int:
    return int(_WIDER[kind].as_datatype_enum) if kind in _WIDER else kind
