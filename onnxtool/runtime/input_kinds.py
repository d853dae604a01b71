"""What a model takes, in the words of people: pictures or tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtool.model.spec import TensorSpec, row_width

# Number of channels -> what Pillow calls such pixels.
CHANNELS = {1: "L", 3: "RGB", 4: "RGBA"}


def takes_image(specs: Sequence[TensorSpec]) -> bool:
    """One uint8 input with 4 dims, one of which counts 1, 3 or 4 channels: the pixels as they are in a file."""
    return len(specs) == 1 and specs[0].dtype == np.uint8 and picture_layout(specs[0])[0] > 0


def takes_table(specs: Sequence[TensorSpec]) -> bool:
    """One float input with two dims, or one column for each input."""
    if len(specs) == 1 and not isinstance(specs[0].dtype, str) and len(specs[0].shape or ()) == 2:
        return True
    return bool(specs) and all(s.shape is not None and len(s.shape) == 2 and s.shape[1] == 1 for s in specs)


def table_columns(specs: Sequence[TensorSpec]) -> dict[str, tuple[str, ...]]:
    """The names of the columns of each input of a table; empty where one of them is not known, or stands twice."""
    found = {s.name: s.columns or (s.name,) * (row_width(s) == 1) for s in specs} if takes_table(specs) else {}
    names = [name for columns in found.values() for name in columns]
    return found if all(found.values()) and len(set(names)) == len(names) else {}


def picture_layout(spec: TensorSpec) -> tuple[int, str]:
    """The axis of the channels, 1 or 3 of four, and what Pillow calls such pixels: where dims of 1 or 3 leave it open,
    one of 4. Axis 0 where there is none.
    """
    shape = spec.shape or ()
    places = [(axis, count) for counts in ((1, 3), (4,)) for axis in (1, 3) for count in counts if len(shape) == 4]
    return next(((axis, CHANNELS[count]) for axis, count in places if shape[axis] == count), (0, ""))
