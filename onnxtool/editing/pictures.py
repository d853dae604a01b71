"""What pre-processing should give, in NumPy and Pillow; and pictures to try it on."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from onnxtool.errors import needs_extra
from onnxtool.model.image_options import ImageOptions
from onnxtool.runtime.data.images import normalized, open_picture


def generated(channels: int, size: tuple[int, int], seed: int) -> list[np.ndarray]:
    """Pictures with edges, gradients and noise: larger than the model's, smaller, wide and tall; uint8 [H, W, C]."""
    generator = np.random.default_rng(seed)
    height, width = size
    sides = (
        (2 * height + 57, 3 * width + 11),
        (3 * height + 5, height + 40),
        (max(height // 2, 8), max(width // 2, 9)),
        size,
    )
    made = []
    for rows, columns in sides:
        y, x = np.mgrid[0:rows, 0:columns]
        base = (
            127
            + 80 * np.sin(x / 7.0)[..., None] * np.cos(y / 11.0)[..., None]
            + 40 * ((x // 16 + y // 16) % 2)[..., None]
        )
        noise = generator.normal(0, 25, (rows, columns, channels))
        made.append(np.clip(base + noise, 0, 255).astype(np.uint8))
    return made


def read(files: Sequence[Path], channels: int) -> list[np.ndarray]:
    """Pictures of the user's, uint8 [H, W, C].

    Raises:
        MissingExtraError, ResourceError, InputError: as `open_picture`.
    """
    found = [np.asarray(open_picture(file, channels)) for file in files]
    return [pixels[..., None] if pixels.ndim == 2 else pixels for pixels in found]


def target_sides(height: int, width: int, options: ImageOptions, size: tuple[int, int]) -> tuple[int, int]:
    """Height and width that a picture is resized to, before it is cropped to `size`."""
    if options.resize is None:
        return size
    share = options.resize / min(height, width)
    return max(size[0], round(height * share)), max(size[1], round(width * share))


def expected(pixels: np.ndarray, options: ImageOptions, size: tuple[int, int], resized: np.ndarray) -> np.ndarray:
    """What the model should get of a picture, float32 [H, W, C].

    Args:
        pixels: the picture, uint8 [H, W, C]; it is not looked at beyond its channels.
        options: scale, mean, std and the order of channels.
        size: of the crop.
        resized: the picture, resized.
    """
    top, left = (resized.shape[0] - size[0]) // 2, (resized.shape[1] - size[1]) // 2
    return normalized(
        resized[top : top + size[0], left : left + size[1], : pixels.shape[2]], options, np.dtype(np.float32)
    )


def numpy_resize(pixels: np.ndarray, sides: tuple[int, int]) -> np.ndarray:
    """Bilinear with antialias, as Pillow does it: each axis alone, rounded to uint8 in between.

    Source: Pillow, src/libImaging/Resample.c (a triangle filter whose support grows with the scale, normalized).
    """
    across = _weights(pixels.shape[1], sides[1])
    down = _weights(pixels.shape[0], sides[0])
    wide = np.einsum("hwc,ow->hoc", pixels.astype(np.float64), across)
    wide = np.clip(np.floor(wide + 0.5), 0, 255)
    tall = np.einsum("hwc,oh->owc", wide, down)
    return np.asarray(np.clip(np.floor(tall + 0.5), 0, 255), np.uint8)


def _weights(source: int, target: int) -> np.ndarray:
    scale = source / target
    support = max(scale, 1.0)
    centres = (np.arange(target) + 0.5) * scale
    distance = (np.arange(source)[None] + 0.5 - centres[:, None]) / support
    weights = np.maximum(0.0, 1.0 - np.abs(distance))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def pillow_resize(pixels: np.ndarray, sides: tuple[int, int]) -> np.ndarray | None:
    """The same by Pillow itself; None where it is not installed."""
    try:
        from PIL import Image
    except ImportError:
        return None
    flat = pixels[..., 0] if pixels.shape[2] == 1 else pixels
    resized = np.asarray(Image.fromarray(flat).resize((sides[1], sides[0]), Image.Resampling.BILINEAR))
    return np.asarray(resized if resized.ndim == 3 else resized[..., None])


def png(pixels: np.ndarray) -> bytes:
    """A picture, uint8 [H, W, C], as the bytes of a PNG file: nothing is lost.

    Raises:
        MissingExtraError: Pillow is not installed.
    """
    with needs_extra("--pre encoded", "Pillow", "extensions"):
        from PIL import Image
    held = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(held, "PNG")
    return held.getvalue()
