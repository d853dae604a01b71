"""What the layers inside a Keras model give, as they run: for comparing it layer by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import KerasLayer

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
