"""How a picture becomes a tensor: the words that `quantize --image` and `edit --pre` share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onnxtool.errors import UsageError
from onnxtool.options.images import ImageOptions as ImageOptions


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
