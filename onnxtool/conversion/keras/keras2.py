"""Layers of .h5 files that Keras 2 wrote, with settings that Keras 3 no longer has and refuses to read.

Keras 3.15 still refuses them; what is at its default then says nothing, and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from onnxtool.conversion.frameworks import KerasLayer

# Setting -> the value at which it does nothing, and the layers that had it.
_GONE: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "groups": (
        1,
        (
            *("DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D"),
            *("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"),
        ),
    ),
    "time_major": (False, ("LSTM", "GRU", "SimpleRNN", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")),
}


def readers(keras: ModuleType) -> dict[str, Any]:
    """For `custom_objects` of keras.saving.load_model: the layers' classes, whose `from_config` takes old settings."""
    return {
        name: type(name, (), {"from_config": classmethod(_reader(getattr(keras.layers, name), setting, idle))})
        for setting, (idle, names) in _GONE.items()
        for name in names
        if hasattr(keras.layers, name)
    }


def _reader(layer: KerasLayer, setting: str, idle: Any) -> Any:
    def from_config(_cls: type, config: Mapping[str, Any], **more: Any) -> Any:
        if config.get(setting, idle) != idle:
            raise ValueError(f"{layer.__name__} has {setting}={config[setting]!r}, which Keras 3 does not have")
        return layer.from_config({k: v for k, v in config.items() if k != setting}, **more)

    return from_config
