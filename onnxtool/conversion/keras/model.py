"""A loaded Keras model as a Runner: flat named inputs and outputs, symbolic dims, an optional NCHW interface."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from onnxtool.conversion.adapter import LayeredModel
from onnxtool.conversion.frameworks import KerasLayer
from onnxtool.conversion.graph_interface import described
from onnxtool.conversion.input_plan import name_dims, unique
from onnxtool.conversion.keras.trace import in_float32, trace, uses_bfloat16
from onnxtool.conversion.tensorflow.environment import quiet, reason
from onnxtool.conversion.tensorflow.model import TO_NCHW, TO_NHWC, TracedModel, swapped, swaps
from onnxtool.errors import InputError, UsageError
from onnxtool.model.spec import Dim, TensorSpec, parse_dtype
from onnxtool.options.convert import ConvertOptions

# Bytes of inputs from which on a model is run as a graph: eagerly, Keras 3 keeps what every layer gives until the end
# (21 GB for EfficientNet-B7 on five images of its size).
_LARGE_INPUTS = 2 << 20


@dataclass(kw_only=True)
class KerasModel(TracedModel, LayeredModel):
    """A Keras model on the TensorFlow backend.

    Attributes:
        model: the keras.Model.
        structure: the nesting of each argument of its call, with one leaf for each entry of `inputs`.
        dtypes: the dtype that the model itself wants for each input.
    """

    model: KerasLayer
    structure: Any
    dtypes: tuple[str, ...]
    output_keys: tuple[str, ...] = ()

    def call(self, *flat: Any) -> list[Any]:
        """The forward pass on flat tensors in the interface's layout and dtypes; also what is traced."""
        with in_float32(self.model):
            return self._call(*flat)

    def _call(self, *flat: Any) -> list[Any]:
        import keras

        ops, tree = keras.ops, keras.tree
        arguments = [
            ops.cast(ops.transpose(t, TO_NHWC) if swaps(s.shape, self.nchw) else t, d) if d != "string" else t
            for t, s, d in zip(flat, self.inputs, self.dtypes, strict=True)
        ]
        result = self.model(*tree.pack_sequence_as(self.structure, arguments), training=False)
        paths = tree.flatten_with_path(result)
        self.output_keys = tuple("_".join(str(p) for p in path) for path, _ in paths)
        flat_result = [value for _, value in paths]
        return [ops.transpose(t, TO_NCHW) if swaps(t.shape, self.nchw) else t for t in flat_result]

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass, executed eagerly by Keras itself; large batches as a graph, like `predict`.

        So is a model whose outputs have other types eagerly: Keras 3.15 resizes pictures of bytes to bytes then, and to
        floats in a graph.

        Raises:
            InputError: the model does not run on these shapes.
        """
        arrays = [feeds[s.name] for s in self.inputs]
        if sum(a.nbytes for a in arrays) <= _LARGE_INPUTS or all(len(a) == 1 for a in arrays if a.ndim):
            found = self._run(self.call, feeds)
            if all(s.dtype in ("string", found[s.name].dtype) for s in self.outputs):
                return found
        return self._run(self.trace(), feeds)

    def as_written(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
        """As of the base; as a graph, which keeps no layer's output longer than it is needed."""
        import tensorflow as tf

        return self._run(tf.function(self._call, autograph=False), feeds) if uses_bfloat16(self.model) else None

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


See = Callable[[str, str, np.ndarray], None]


@contextmanager
def watched_layers(model: KerasLayer, see: See) -> Iterator[None]:
    """Call `see` with name, kind and value of every layer's output while the block runs the model eagerly.

    A layer that is called again is "name#2"; of several outputs, number 1 is "name.1".
    """
    calls: Counter[str] = Counter()
    layers = [layer for layer in model._flatten_layers() if layer is not model]
    for layer in layers:
        # Keras looks `call` up on the layer itself; __dict__ goes around its tracking of attributes.
        layer.__dict__["call"] = _watched(layer, layer.call, calls, see)
    try:
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("call", None)


def _watched(layer: KerasLayer, call: Callable[..., Any], calls: Counter[str], see: See) -> Callable[..., Any]:
    import keras

    def watched(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        calls[layer.name] += 1
        name = layer.name if calls[layer.name] == 1 else f"{layer.name}#{calls[layer.name]}"
        tensors = [t for t in keras.tree.flatten(result) if keras.ops.is_tensor(t)]
        for index, tensor in enumerate(tensors):
            called = name if len(tensors) == 1 else f"{name}.{index}"
            see(called, type(layer).__name__, np.asarray(keras.ops.convert_to_numpy(tensor)))
        return result

    return watched


Leaf = tuple[str, str, tuple[Dim, ...]]


def input_structure(model: KerasLayer, options: ConvertOptions) -> tuple[tuple[Any, ...], list[Leaf]]:
    """The nesting of each argument and, flat, their (name, dtype, dims).

    Raises:
        UsageError: a subclassed model that was never called, without --input-shape.
    """
    import keras

    if not is_functional(model):
        return _called_structure(model, options)
    structure = (getattr(model, "_functional", None) or model)._inputs_struct
    leaves = keras.tree.flatten(structure)
    names = unique([_layer_name(t) for t in leaves])
    dims = name_dims({name: tuple(t.shape) for name, t in zip(names, leaves, strict=True)})
    dtypes = [keras.backend.standardize_dtype(t.dtype) for t in leaves]
    return (structure,), [(name, dtype, dims[name]) for name, dtype in zip(names, dtypes, strict=True)]


def is_functional(model: KerasLayer) -> bool:
    """Whether it declares its inputs: Functional and Sequential models, not subclassed ones."""
    return getattr(getattr(model, "_functional", None) or model, "_inputs_struct", None) is not None


def _called_structure(model: KerasLayer, options: ConvertOptions) -> tuple[tuple[Any, ...], list[Leaf]]:
    """A subclassed model: from the shapes it was built with, or from what the user gave."""
    parameters = [p for p in inspect.signature(model.call).parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
    dtype = str(getattr(model, "input_dtype", None) or "float32")
    built = getattr(model, "_build_shapes_dict", None) or {}
    needed = [p.name for p in parameters if p.default is p.empty]
    if len(needed) > 1:
        shapes = {name: built.get(f"{name}_shape") for name in needed}
        named = name_dims({name: (None, *shape[1:]) for name, shape in shapes.items() if shape})
        named |= {name: tuple(dims) for name, dims in options.input_shapes.items() if name in shapes}
        if unknown := sorted(shapes.keys() - named):
            raise UsageError(f"the shape of input {unknown[0]!r} is not known. Give it with --input-shape.")
        return (0,) * len(needed), [(name, dtype, named[name]) for name in needed]
    structure, leaves = _lone_structure(model, parameters[0].name if parameters else "input", dtype, options)
    return (structure,), leaves


def _lone_structure(model: KerasLayer, name: str, dtype: str, options: ConvertOptions) -> tuple[Any, list[Leaf]]:
    """Of the one argument of a subclassed model."""
    built = getattr(model, "_build_shapes_dict", None) or {}
    shape: Any = next(iter(built.values()), None)
    if shape is None:
        return _given_structure(model, name, dtype, options)
    if isinstance(shape, dict):
        named = name_dims({k: (None, *s[1:]) for k, s in shape.items()})
        return dict.fromkeys(shape, 0), [(k, dtype, named[k]) for k in sorted(shape)]
    if shape and isinstance(shape[0], (list, tuple)):
        names = [f"{name}_{i}" for i in range(len(shape))]
        named = name_dims({n: (None, *s[1:]) for n, s in zip(names, shape, strict=True)})
        return [0] * len(names), [(n, dtype, named[n]) for n in names]
    return 0, [(name, dtype, name_dims({name: (None, *shape[1:])})[name])]


def _given_structure(model: KerasLayer, name: str, dtype: str, options: ConvertOptions) -> tuple[Any, list[Leaf]]:
    shapes = options.input_shapes
    if not shapes:
        raise UsageError(f"this {type(model).__name__} was never called, so its input is unknown. Give --input-shape.")
    if len(shapes) == 1:
        given, dims = next(iter(shapes.items()))
        return 0, [(given or name, dtype, tuple(dims))]
    return dict.fromkeys(shapes, 0), [(key, dtype, tuple(shapes[key])) for key in sorted(shapes)]


def _layer_name(tensor: Any) -> str:
    # An unnamed Input layer is called input_layer, but its tensor keras_tensor_7.
    history = getattr(tensor, "_keras_history", None)
    return str(history.operation.name if history is not None else tensor.name)


def output_names(model: KerasLayer, keys: Sequence[str]) -> list[str]:
    """Keys of a returned dict, else the names of the output layers, else output or output_0, output_1, ..."""
    functional = getattr(model, "_functional", None) or model
    layers = list(getattr(functional, "output_names", ()))
    if not all(k.replace("_", "").isdigit() or k == "" for k in keys):
        return unique(list(keys))
    if len(layers) == len(keys):
        return unique(layers)
    return ["output"] if len(keys) == 1 else [f"output_{i}" for i in range(len(keys))]
