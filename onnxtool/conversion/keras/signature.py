"""What a Keras model takes and gives, in its own names: Functional, Sequential and subclassed models."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from onnxtool.conversion.frameworks import KerasLayer
from onnxtool.conversion.input_plan import name_dims, unique
from onnxtool.errors import UsageError
from onnxtool.model.spec import Dim
from onnxtool.options.convert import ConvertOptions

Leaf = tuple[str, str, tuple[Dim, ...]]


def input_structure(model: KerasLayer, options: ConvertOptions) -> tuple[Any, list[Leaf]]:
    """The nesting of the inputs and, flat, their (name, dtype, dims).

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
    return structure, [(name, dtype, dims[name]) for name, dtype in zip(names, dtypes, strict=True)]


def is_functional(model: KerasLayer) -> bool:
    """Whether it declares its inputs: Functional and Sequential models, not subclassed ones."""
    return getattr(getattr(model, "_functional", None) or model, "_inputs_struct", None) is not None


def _called_structure(model: KerasLayer, options: ConvertOptions) -> tuple[Any, list[Leaf]]:
    """A subclassed model: from the shapes it was built with, or from what the user gave."""
    parameters = [p for p in inspect.signature(model.call).parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
    name = parameters[0].name if parameters else "input"
    dtype = str(getattr(model, "input_dtype", None) or "float32")
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
