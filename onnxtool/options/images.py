"""How a picture becomes a tensor: what `quantize --image` and `edit --pre` say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ImageOptions:
    """How a picture becomes a tensor.

    Attributes:
        resize: length of the shorter side before cropping; None: straight to the model's size.
        crop: (height, width) of the crop from the middle; None: the model's size.
        mean: taken off each channel, after scaling.
        std: what each channel is divided by, after that.
        scale: what pixels (0 to 255) are divided by.
        layout: order of the tensor's dims; "auto" goes by where the model has 1 or 3 channels.
        order: channels as red, green, blue or the other way round.
    """

    resize: int | None = None
    crop: tuple[int, int] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    scale: float = 255.0
    layout: Literal["auto", "nchw", "nhwc"] = "auto"
    order: Literal["rgb", "bgr"] = "rgb"
