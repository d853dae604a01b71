"""Tracing a Keras model so that the graph converter can follow: what Keras does for speed is undone meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from onnxtool.conversion.frameworks import KerasLayer
from onnxtool.conversion.patches import LibraryPatch, applied, replaced
from onnxtool.conversion.tensorflow.environment import quiet, reason
from onnxtool.errors import InputError


def trace(model: KerasLayer, call: Callable[..., Any], signature: Sequence[Any]) -> Any:
    """A concrete TensorFlow function of `call`.

    Args:
        model: the Keras model (or layer) that `call` uses.
        call: flat tensors -> flat tensors.
        signature: one tf.TensorSpec for each argument.

    Raises:
        InputError: the model cannot be called with inputs of these shapes.
    """
    import tensorflow as tf
    from keras.random import SeedGenerator

    seeds: list[Any] = []  # layers that augment pictures draw some in inference too, and do not use them

    def held(self: Any, **_: Any) -> Any:
        seeds.append(tf.constant([0, 0], self.state.dtype))
        return seeds[-1]

    with quiet(), _plain_functions(), applied([SIZES]), ExitStack() as stack:
        for layer in _layers(model):
            stack.enter_context(_without_vectorized_map(layer))

        def traced() -> Any:
            return tf.function(call, input_signature=list(signature), autograph=False).get_concrete_function()

        try:
            with replaced(SeedGenerator, "next", held):
                found = traced()
            return traced() if _reach(seeds, found) else found
        except Exception as error:
            raise InputError(f"the Keras model cannot be traced: {type(error).__name__}: {reason(error)}") from error


def _reach(tensors: Sequence[Any], function: Any) -> bool:
    """Whether an output may hang on some of these tensors; of inner graphs that is not known."""
    starts = {id(t.op) for t in tensors}
    left, seen = [t.op for t in function.outputs], set[int]()
    while left:
        operation = left.pop()
        if id(operation) not in seen:
            seen.add(id(operation))
            left += [*(t.op for t in operation.inputs), *operation.control_inputs]
    return bool(starts & seen) or any(t.graph is not function.graph for t in tensors)


@contextmanager
def _plain_functions() -> Iterator[None]:
    """Functions inside become part of the graph around them, also those that Keras compiles with XLA."""
    import tensorflow as tf

    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


@contextmanager
def _sizes_of_tensors() -> Iterator[None]:
    import tensorflow as tf
    from keras.src.ops import image

    checked, unchecked = image.resize, getattr(image, "_resize", image.resize)

    def resize(images: Any, size: Any, *rest: Any, **options: Any) -> Any:
        return (unchecked if any(map(tf.is_tensor, size)) else checked)(images, size, *rest, **options)

    with replaced(image, "resize", resize):
        yield


SIZES = LibraryPatch(
    "keras", "", "Keras 3.15 asks whether sizes are positive that a graph's input decides (UpSampling2D)",
    _sizes_of_tensors,
)  # fmt: skip


def _layers(model: KerasLayer) -> list[Any]:
    flatten = getattr(model, "_flatten_layers", None)
    return list(flatten()) if flatten is not None else []


def uses_bfloat16(model: KerasLayer) -> bool:
    """Whether a layer of the model computes in bfloat16, with which the runtime's CPU side does not."""
    return bool(_in_bfloat16(model))


def _in_bfloat16(model: KerasLayer) -> list[Any]:
    layers = _layers(model)
    layers += [inner for layer in layers if (inner := getattr(layer, "_functional", None)) is not None]  # Sequential's
    return [layer for layer in layers if layer.compute_dtype == "bfloat16"]


@contextmanager
def in_float32(model: KerasLayer) -> Iterator[None]:
    """Inside the block, layers that compute in bfloat16 do so in float32; weights are cast where they are used.

    What is quantized ("int8_from_mixed_bfloat16") stays so.
    """
    import keras

    with ExitStack() as stack:
        for layer in _in_bfloat16(model):
            mode, quantized, _ = layer.dtype_policy.name.partition("_from_")
            policy = keras.dtype_policies.get(f"{mode}{quantized}float32" if quantized else "float32")
            stack.enter_context(replaced(layer, "dtype_policy", policy))
            # Layers of inputs have a type of their own, and functional models cast to that of their inputs.
            for holder in (layer, *getattr(layer, "_inputs", ())):
                if vars(holder).get("_dtype") == "bfloat16":
                    stack.enter_context(replaced(holder, "_dtype", "float32"))
        yield


@contextmanager
def _without_vectorized_map(layer: KerasLayer) -> Iterator[None]:
    """TimeDistributed over an unknown number of steps: fold the steps into the batch instead of mapping over them.

    The vectorized map loses the rank of what it maps over, and no convolution can be converted without.
    """
    import keras

    if not isinstance(layer, keras.layers.TimeDistributed):
        yield
        return
    original = layer.call

    def call(inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if inputs.shape[1] is not None:
            return original(inputs, training=training, mask=mask)
        ops, inner = keras.ops, layer.layer

        def folded(values: Any) -> Any:
            return ops.reshape(values, (-1, *ops.shape(values)[2:]))

        options = {"training": training} if inner._call_has_training_arg else {}
        if mask is not None and inner._call_has_mask_arg:
            options["mask"] = folded(mask)
        result = inner.call(folded(inputs), **options)
        return ops.reshape(result, (-1, ops.shape(inputs)[1], *ops.shape(result)[1:]))

    object.__setattr__(layer, "call", call)
    try:
        yield
    finally:
        object.__delattr__(layer, "call")
