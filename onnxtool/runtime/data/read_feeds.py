"""What --data names as inputs to run a model on: archives as they are, tables, pictures and samples in batches."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxtool.errors import InputError
from onnxtool.model.image_options import ImageOptions
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.archive import read_npz
from onnxtool.runtime.data.images import SUFFIXES
from onnxtool.runtime.data.open_data import open_data
from onnxtool.runtime.feeds import Feeds, adapt

Data = str | os.PathLike[str] | Mapping[str, np.ndarray]
_BATCH = 64  # samples in one run: more would only cost memory


@dataclass(frozen=True)
class GivenInputs:
    """Inputs that the user gave.

    Attributes:
        feeds: one mapping for each run.
        origin: where they came from.
        notes: what was done with them that the user may not expect.
    """

    feeds: tuple[Feeds, ...]
    origin: str
    notes: tuple[str, ...] = ()

    def joined(self) -> dict[str, np.ndarray]:
        """All samples in one array for each input, along their first dim; scalars as in the first run."""
        first = self.feeds[0]
        if len(self.feeds) == 1:
            return dict(first)
        return {n: np.concatenate([f[n] for f in self.feeds]) if a.ndim else a for n, a in first.items()}


def read_feeds(
    data: Data,
    specs: Sequence[TensorSpec],
    images: ImageOptions = ImageOptions(),  # noqa: B008  (frozen)
) -> GivenInputs:
    """Read inputs in any form that --data takes.

    Args:
        data: an .npz or .npy file or a folder of .npy files named after the inputs: one run on the arrays as they
            are, where the model takes their sizes. Otherwise samples, as for `open_data`: a .csv file, pictures,
            folders, "file.py:generator", or more rows than a model with a fixed batch takes; they are run in batches
            where the model takes any, else one by one.
        specs: the model's inputs.
        images: how pictures become tensors.

    Raises:
        InputError: missing, damaged, or it does not fit the model.
    """
    origin = "given arrays" if isinstance(data, Mapping) else str(data)
    arrays = _whole(data, specs)
    if arrays is None or _is_many(arrays, specs):
        source = open_data(data, specs, images=images)
        return GivenInputs(tuple(source.batches(_BATCH, finite=False)), origin, source.notes)
    try:
        feeds = adapt(specs, arrays)
    except InputError as error:
        raise InputError(f"{origin}: {error}") from error
    return GivenInputs((feeds,), origin, tuple(_renamed(arrays, specs)))


def _whole(data: Data, specs: Sequence[TensorSpec]) -> Mapping[str, np.ndarray] | None:
    """Arrays by input name; None for what holds samples."""
    if isinstance(data, Mapping):
        return data
    path = Path(data)
    other_form = ".py:" in str(data) or path.suffix.lower() in (".csv", ".py", *SUFFIXES)
    if not path.is_dir() and not other_form:
        return read_npz(path)
    if path.is_dir():
        files = sorted(path.glob("*.npy"))
        if files and (len(files) == 1 or {f.stem for f in files} >= {s.name for s in specs}):
            return {f.stem: read_npz(f)[""] for f in files}
    return None


def _is_many(arrays: Mapping[str, np.ndarray], specs: Sequence[TensorSpec]) -> bool:
    """Whether a model with a fixed batch is given several of them at once."""
    chosen = {s.name: arrays.get(s.name) for s in specs}
    if len(specs) == 1 and len(arrays) == 1:
        chosen = {specs[0].name: next(iter(arrays.values()))}
    many = False
    for spec in specs:
        array, shape = chosen[spec.name], spec.shape
        if array is None or not shape or not array.ndim:
            return False
        fixed = shape[0] if isinstance(shape[0], int) else None
        extra = array.ndim == len(shape) + 1
        if not extra and (fixed is None or array.ndim != len(shape) or fixed < 1 or array.shape[0] % fixed):
            return False
        many = many or extra or array.shape[0] != fixed
    return many


def _renamed(arrays: Mapping[str, np.ndarray], specs: Sequence[TensorSpec]) -> list[str]:
    name = next(iter(arrays), "")
    if len(specs) != 1 or len(arrays) != 1 or name in ("", specs[0].name):
        return []
    return [f"the only array, {name!r}, was taken for the only input, {specs[0].name!r}"]
