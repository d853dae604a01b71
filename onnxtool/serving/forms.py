"""Images and tables as requests, for models that have their pre-processing inside."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np

from onnxtool.errors import InputError, MissingExtraError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.input_kinds import CHANNELS, channels_axis, takes_image, takes_table
from onnxtool.runtime.protocol_v2.tensors import from_lists
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
        return _table(body, specs)
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


def _table(body: bytes, specs: Sequence[TensorSpec]) -> dict[str, np.ndarray]:
    try:
        rows = [row for row in csv.reader(io.StringIO(body.decode("utf-8-sig"))) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"not a CSV table in UTF-8 ({error}).") from error
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise InputError("the rows of the table have different lengths, or there are none.")
    if len(specs) == 1 and (specs[0].shape or ())[1:] != (1,):
        body_rows = rows if _is_number(rows[0][0]) else rows[1:]
        _verify_rows(body_rows)
        return {specs[0].name: _numbers(specs[0], body_rows)}
    _verify_rows(rows[1:])
    columns = {name: index for index, name in enumerate(rows[0])}
    missing = [s.name for s in specs if s.name not in columns]
    if missing:
        raise InputError(f"the table has no column {missing[0]!r}; its first row must name the columns.")
    return {s.name: _numbers(s, [[row[columns[s.name]]] for row in rows[1:]]) for s in specs}


def _verify_rows(rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        raise InputError("the table has no row but the one with names.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(spec: TensorSpec, rows: Sequence[Sequence[str]]) -> np.ndarray:
    if isinstance(spec.dtype, str):
        return np.array(rows, dtype=object).reshape(len(rows), -1)
    whole = spec.dtype.kind in "iu"
    try:
        values = [[int(cell) if whole else float(cell) for cell in row] for row in rows]
    except ValueError as error:
        raise InputError(f"{spec.name!r}: a cell is not a {'whole ' * whole}number ({error}).") from error
    return from_lists(spec.name, values, spec.dtype).reshape(len(rows), -1)
