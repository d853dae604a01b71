"""Images and tables as requests, for models that have their pre-processing inside."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.errors import InputError, MissingExtraError, UsageError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.formats import delimited
from onnxtool.runtime.data.formats.table_file import TableFile
from onnxtool.runtime.flatten_outputs import flatten
from onnxtool.runtime.input_kinds import CHANNELS, channels_axis, takes_image, takes_table
from onnxtool.runtime.output_files import table_bytes
from onnxtool.serving.faults import HttpError

_MAX_PIXELS = 1 << 26


def read_form(kind: str, body: bytes, specs: Sequence[TensorSpec]) -> dict[str, np.ndarray]:
    """An image file or a CSV table as feeds.

    Raises:
        HttpError: 415, the model does not take such a thing.
        InputError: not a sound image or table, or one that does not fit the model.
    """
    if kind == "text/csv":
        if not takes_table(specs):
            raise HttpError(415, "media_type", "this model takes no table.")
        return delimited.read(TableFile.in_memory(body, ".csv", "the table")).arrays(specs)
    if not takes_image(specs):
        raise HttpError(415, "media_type", "this model takes no image files: its pre-processing is not inside.")
    return {specs[0].name: _image(body, specs[0])}


def _image(body: bytes, spec: TensorSpec) -> np.ndarray:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("images", "pillow", "images") from error
    axis = channels_axis(spec)
    channels = (spec.shape or ())[axis or 0]
    assert isinstance(channels, int)
    try:
        with Image.open(io.BytesIO(body), formats=("PNG", "JPEG", "WEBP", "BMP")) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise InputError(f"the image has more than {_MAX_PIXELS} pixels.")
            pixels = np.asarray(image.convert(CHANNELS[channels]), np.uint8)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"not a sound PNG, JPEG, WebP or BMP image ({type(error).__name__}).") from error
    pixels = pixels.reshape(*pixels.shape[:2], channels)
    return np.ascontiguousarray((pixels if axis == 3 else pixels.transpose(2, 0, 1))[None])


def table_answer(outputs: Mapping[str, Any], specs: Sequence[TensorSpec]) -> bytes:
    """Outputs as a table in CSV, with a column for each number or text of a row.

    Raises:
        HttpError: 406, they have no rows in common.
    """
    try:
        return table_bytes(Path("-.csv"), flatten(outputs), {s.name: s.columns for s in specs})
    except UsageError as error:
        raise HttpError(406, "media_type", f"the outputs are no table: {error}") from error
