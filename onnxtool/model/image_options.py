"""How a picture becomes a tensor: the words that `quantize --image` and `edit --pre` share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from onnxtool.errors import UsageError


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


def parse_options(text: str, option: str = "--image") -> ImageOptions:
    """Parse "resize=256,crop=224,mean=0.485/0.456/0.406,std=0.229/0.224/0.225,scale=255,layout=nchw,order=bgr".

    Raises:
        UsageError: an unknown word or a value that is not a number.
    """
    options = ImageOptions()
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = part.partition("=")
        try:
            options = replace(options, **{name: _value(name, value)})
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"{option} {part}: give resize=N, crop=N or HxW, mean=A/B/C, std=A/B/C, scale=N, layout=nchw|nhwc, "
                "order=rgb|bgr."
            ) from error
    return options


def _value(name: str, value: str) -> Any:
    if name == "resize":
        return int(value)
    if name == "crop":
        sides = [int(s) for s in value.split("x")]
        return (sides[0], sides[-1])
    if name in ("mean", "std"):
        return tuple(float(v) for v in value.split("/"))
    if name == "scale":
        return float(value)
    if name == "layout" and value in ("auto", "nchw", "nhwc"):
        return value
    if name == "order" and value in ("rgb", "bgr"):
        return value
    raise ValueError(name)
