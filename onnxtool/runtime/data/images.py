"""Pictures as calibration data: resized, cropped and normalised the way the model was trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnxtool.errors import InputError, ResourceError, UsageError, needs_extra
from onnxtool.model.image_options import ImageOptions
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.source import DataSource
from onnxtool.runtime.input_kinds import CHANNELS, picture_layout
from onnxtool.runtime.protocol_v2.uploads import upright

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")


def pictures(
    label: str, files: Sequence[Path], specs: tuple[TensorSpec, ...], options: ImageOptions, skipped: int = 0
) -> DataSource:
    """Pictures as samples, with a line on how they become tensors.

    Args:
        label: where they come from.
        files: one picture each.
        specs: the model's inputs.
        options: how they become tensors.
        skipped: files beside them that are not pictures.

    Raises:
        InputError: the model takes no picture.
        UsageError: the size is given neither by the model nor by the options.
    """
    spec = _picture_input(specs)
    notes = [f"{len(files)} picture{'' if len(files) == 1 else 's'} of {label}: {_steps(spec, options)} (see --image)"]
    if skipped:
        notes.append(f"{label}: {skipped} other file{' was' if skipped == 1 else 's were'} left out")
    return DataSource(label, len(files), lambda: read_pictures(files, specs, options), specs, tuple(notes))


def _steps(spec: TensorSpec, options: ImageOptions) -> str:
    """What `read_pictures` does, in words."""
    layout, channels, size = _geometry(spec, options)
    sides = "each its own size" if size is None else f"{size[0]}x{size[1]}"
    said = [sides if size is None else f"resized to {sides}"]
    if options.resize is not None:
        said = [f"shorter side resized to {options.resize}", f"{sides} cut from the middle"]
    said.append("grey" if channels == 1 else options.order.upper())
    if isinstance(spec.dtype, np.dtype) and spec.dtype.kind in "iu":
        said.append("values 0 to 255 as they are")
    else:
        said.append(f"divided by {options.scale:g}" if options.scale != 1 else "values 0 to 255 as they are")
        plain = not any(options.mean) and set(options.std) == {1.0}
        said.append("no mean taken off" if plain else "mean taken off and divided by std as given")
    return ", ".join([*said, layout.upper()])


def read_pictures(
    files: Sequence[Path], specs: Sequence[TensorSpec], options: ImageOptions
) -> Iterator[dict[str, np.ndarray]]:
    """Feeds of one picture each.

    Raises:
        MissingExtraError: Pillow is not installed.
        InputError: the model takes no picture, or a file is none.
        UsageError: the size is given neither by the model nor by the options.
    """
    spec = _picture_input(specs)
    layout, channels, size = _geometry(spec, options)
    for file in files:
        array = normalized(_load(file, channels, size, options), options, spec.dtype)
        array = array.transpose(2, 0, 1) if layout == "nchw" else array
        yield {spec.name: np.ascontiguousarray(array[None], spec.dtype)}


def normalized(pixels: np.ndarray, options: ImageOptions, dtype: np.dtype | str) -> np.ndarray:
    """A picture with its channels in order and, but for a model of whole numbers, scaled and without mean and std."""
    if options.order == "bgr":
        pixels = pixels[..., ::-1]
    if isinstance(dtype, np.dtype) and dtype.kind in "iu":
        return pixels.astype(dtype)
    mean, std = (np.asarray(v, np.float32) for v in (options.mean, options.std))
    return np.asarray((pixels.astype(np.float32) / np.float32(options.scale) - mean) / std, np.float32)


def _picture_input(specs: Sequence[TensorSpec]) -> TensorSpec:
    pictures = [s for s in specs if s.shape is not None and len(s.shape) == 4]
    if len(specs) != 1 or not pictures:
        known = ", ".join(str(s.info()) for s in specs)
        raise InputError(f"pictures fit a model with one input of four dims; this one takes {known}.")
    return pictures[0]


def _geometry(spec: TensorSpec, options: ImageOptions) -> tuple[str, int, tuple[int, int] | None]:
    """Layout, channels, and the size; None for each picture's own, where a model of pixels leaves it open."""
    assert spec.shape is not None
    layout = options.layout
    if layout == "auto":
        layout = "nhwc" if picture_layout(spec)[0] == 3 else "nchw"
    channels, height, width = spec.shape[1:] if layout == "nchw" else (spec.shape[3], *spec.shape[1:3])
    own = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    size = options.crop or own
    if size is None and (spec.dtype != np.uint8 or options.resize is not None):
        raise UsageError(f"--image: {spec.info()} leaves the size open; give it, such as --image crop=224.")
    return layout, channels if isinstance(channels, int) else 3, size


def open_picture(file: Path, channels: int) -> Image:
    """A picture of the user's, decoded and turned as its EXIF data says: grey for one channel, else RGB or RGBA.

    Raises:
        MissingExtraError: Pillow is not installed.
        ResourceError: it has more pixels than Pillow decodes.
        InputError: it is not a picture.
    """
    with needs_extra(str(file), "Pillow", "images"):
        from PIL import Image
    try:
        with Image.open(file) as opened:
            turned: Image.Image = upright(opened, CHANNELS.get(channels, "RGB"))
            return turned
    except Image.DecompressionBombError as error:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)  # Pillow warns from the limit on, and refuses twice as many
        raise ResourceError(f"{file}: has more than {most} pixels; give a smaller picture.") from error
    except MemoryError:
        raise
    except Exception as error:  # its decoders raise whatever a damaged file leads them to
        raise InputError(f"{file}: is not a picture that can be read ({error}).") from error


def _load(file: Path, channels: int, size: tuple[int, int] | None, options: ImageOptions) -> np.ndarray:
    picture = open_picture(file, channels)
    from PIL import Image

    height, width = size or (picture.height, picture.width)
    if options.resize is None:
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    else:
        share = options.resize / min(picture.size)
        sides = (max(width, round(picture.width * share)), max(height, round(picture.height * share)))
        picture = picture.resize(sides, Image.Resampling.BILINEAR)
        left, top = (picture.width - width) // 2, (picture.height - height) // 2
        picture = picture.crop((left, top, left + width, top + height))
    pixels = np.asarray(picture)
    return pixels[..., None] if pixels.ndim == 2 else pixels
