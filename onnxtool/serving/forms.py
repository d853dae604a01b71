"""Images and tables as requests, for models that have their pre-processing inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.errors import MissingExtraError, UsageError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.formats import delimited
from onnxtool.runtime.data.formats.table_file import TableFile
from onnxtool.runtime.flatten_outputs import flatten
from onnxtool.runtime.input_kinds import picture_layout, takes_image, takes_table
from onnxtool.runtime.output_files import table_bytes
from onnxtool.runtime.protocol_v2.uploads import decode_picture
from onnxtool.serving.faults import HttpError


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
    try:
        return {specs[0].name: decode_picture(body, *picture_layout(specs[0]))}
    except ImportError as error:
        raise MissingExtraError("images", "pillow", "images") from error


def table_answer(outputs: Mapping[str, Any], specs: Sequence[TensorSpec]) -> bytes:
    """Outputs as a table in CSV, with a column for each number or text of a row.

    Raises:
        HttpError: 406, they have no rows in common.
    """
    try:
        return table_bytes(Path("-.csv"), flatten(outputs), {s.name: s.columns for s in specs})
    except UsageError as error:
        raise HttpError(406, "media_type", f"the outputs are no table: {error}") from error
