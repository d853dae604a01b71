"""What a model takes, in the words of people: pictures or tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtool.model.spec import TensorSpec

# Number of channels -> what Pillow calls such pixels.
CHANNELS = {1: "L", 3: "RGB", 4: "RGBA"}


def takes_image(specs: Sequence[TensorSpec]) -> bool:
    """One uint8 input with 4 dims, one of which counts 1, 3 or 4 channels: the pixels as they are in a file."""
    return len(specs) == 1 and specs[0].dtype == np.uint8 and channels_axis(specs[0]) is not None


def takes_table(specs: Sequence[TensorSpec]) -> bool:
    """One float input with two dims, or one column for each input."""
    if len(specs) == 1 and not isinstance(specs[0].dtype, str) and len(specs[0].shape or ()) == 2:
        return True
    return bool(specs) and all(s.shape is not None and len(s.shape) == 2 and s.shape[1] == 1 for s in specs)


def channels_axis(spec: TensorSpec) -> int | None:
    """The axis of 1, 3 or 4 channels: the last of four, or the second; None where there is none."""
    shape = spec.shape or ()
    if len(shape) != 4:
        return None
    return next((axis for axis in (3, 1) if shape[axis] in CHANNELS), None)
