"""A loaded Keras model as a Runner: flat named inputs and outputs, symbolic dims, an optional NCHW interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from onnxtool.conversion.adapter import LayeredModel
from onnxtool.conversion.frameworks import KerasLayer
from onnxtool.conversion.graph_interface import described
from onnxtool.conversion.keras.layers import See, watched_layers
from onnxtool.conversion.keras.signature import input_structure, is_functional, output_names
from onnxtool.conversion.keras.trace import in_float32, trace, uses_bfloat16
from onnxtool.conversion.tensorflow.environment import quiet, reason
from onnxtool.conversion.tensorflow.model import TO_NCHW, TO_NHWC, TracedModel, swapped, swaps
from onnxtool.errors import InputError
from onnxtool.model.spec import TensorSpec, parse_dtype
from onnxtool.options.convert import ConvertOptions

# Bytes of inputs from which on a model is run as a graph: eagerly, Keras 3 keeps what every layer gives until the end
# (21 GB for EfficientNet-B7 on five images of its size).
_LARGE_INPUTS = 2 << 20


@dataclass(kw_only=True)
class KerasModel(TracedModel, LayeredModel):
    """A Keras model on the TensorFlow backend.

    Attributes:
        model: the keras.Model.
        structure: its inputs' nesting, with one leaf for each entry of `inputs`.
        dtypes: the dtype that the model itself wants for each input.
    """

    model: KerasLayer
    structure: Any
    dtypes: tuple[str, ...]
    output_keys: tuple[str, ...] = ()

    def call(self, *flat: Any) -> list[Any]:
        """The forward pass on flat tensors in the interface's layout and dtypes; also what is traced."""
        import keras

        ops, tree = keras.ops, keras.tree
        arguments = [
            ops.cast(ops.transpose(t, TO_NHWC) if swaps(s.shape, self.nchw) else t, d) if d != "string" else t
            for t, s, d in zip(flat, self.inputs, self.dtypes, strict=True)
        ]
        with in_float32(self.model):
            result = self.model(tree.pack_sequence_as(self.structure, arguments), training=False)
        paths = tree.flatten_with_path(result)
        self.output_keys = tuple("_".join(str(p) for p in path) for path, _ in paths)
        flat_result = [value for _, value in paths]
        return [ops.transpose(t, TO_NCHW) if swaps(t.shape, self.nchw) else t for t in flat_result]

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass, executed eagerly by Keras itself; large batches as a graph, like `predict`.

        Raises:
            InputError: the model does not run on these shapes.
        """
        arrays = [feeds[s.name] for s in self.inputs]
        large = sum(a.nbytes for a in arrays) > _LARGE_INPUTS and any(len(a) > 1 for a in arrays if a.ndim)
        return self._run(self.trace() if large else self.call, feeds)

    def _run(self, forward: Callable[..., list[Any]], feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        import keras

        with quiet():
            try:
                results = forward(*(keras.ops.convert_to_tensor(feeds[s.name]) for s in self.inputs))
            except Exception as error:
                raise InputError(f"the Keras model fails to run: {reason(error)}") from error
            names = [s.name for s in self.outputs]
            return {n: keras.ops.convert_to_numpy(r) for n, r in zip(names, results, strict=True)}

    def layers(self, feeds: Mapping[str, np.ndarray], see: See) -> None:
        """One forward pass; `see` gets name, kind and value of what each layer gives, as it is made."""
        with watched_layers(self.model, see):
            self._run(self.call, feeds)

    def trace_at(self, signature: Sequence[Any]) -> Any:
        """As of the base."""
        return trace(self.model, self.call, signature)


def wrap(model: KerasLayer, form: str, notes: list[str], options: ConvertOptions) -> KerasModel:
    """Find out what a Keras model takes and gives.

    Raises:
        InputError: it cannot be called.
        UsageError: a subclassed model that was never called, without --input-shape; or options that do not fit.
    """
    import keras

    structure, leaves = input_structure(model, options)
    nchw = options.layout == "nchw"
    if uses_bfloat16(model):
        notes.append("bfloat16 is computed as float32, which holds its weights exactly")
        leaves = [(n, "float32" if d == "bfloat16" else d, dims) for n, d, dims in leaves]
    own = tuple(TensorSpec(n, parse_dtype(d), swapped(dims, nchw)) for n, d, dims in leaves)
    inputs = described(own, options)
    wrapped = KerasModel(
        model=model,
        structure=structure,
        inputs=inputs,
        dtypes=tuple(d for _, d, _ in leaves),
        form=form,
        framework=f"keras {keras.__version__}, {_backend_version(keras)}",
        nchw=nchw,
        notes=notes,
    )
    if not is_functional(model) and wrapped.dtypes != (typed := tuple(t.dtype.name for t in wrapped.signature())):
        _call_as_typed(wrapped, typed)
    wrapped.name_outputs(lambda: output_names(model, wrapped.output_keys), options)
    return wrapped


def _call_as_typed(wrapped: KerasModel, typed: tuple[str, ...]) -> None:
    """Call a subclassed model on the types of --input-dtype, which it does not declare itself, where it takes them."""
    own, wrapped.dtypes = wrapped.dtypes, typed
    try:
        wrapped.trace()
    except InputError:
        wrapped.dtypes = own
        wrapped.notes.append(f"the model does not take {', '.join(typed)}: its inputs are cast to {', '.join(own)}")


def _backend_version(keras: ModuleType) -> str:
    name = keras.backend.backend()
    if name != "tensorflow":
        return str(name)
    import tensorflow as tf

    return f"tensorflow {tf.__version__}"
