"""What --data names as inputs to run a model on: archives as they are, tables, pictures and samples in batches."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.errors import InputError
from onnxtool.model.image_options import ImageOptions
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.archive import read_npz
from onnxtool.runtime.data.images import SUFFIXES
from onnxtool.runtime.data.open_data import named_arrays, open_data, open_table, others_left_out
from onnxtool.runtime.data.table import DataTable
from onnxtool.runtime.feeds import Feeds, adapt

Data = Any  # what `open_data` takes
_BATCH = 64  # samples in one run: more would only cost memory
_ROWS = 1024  # of a table, whose rows are small


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
        data: arrays by name, an .npz or .npy file or a folder of .npy files named after the inputs: one run on the
            arrays as they are, where the model takes their sizes. Otherwise samples, as for `open_data`: tables,
            pictures, folders, "file.py:generator", or more rows than a model with a fixed batch takes; they are run
            in batches where the model takes any, else one by one.
        specs: the model's inputs.
        images: how pictures become tensors.

    Raises:
        InputError: missing, damaged, or it does not fit the model.
        UsageError: a kind of data that is not known.
    """
    table = open_table(data, specs)
    if table is not None:
        return _of_table(table, specs)
    arrays = _whole(data, specs)
    if arrays is None or _is_many(arrays, specs):
        source = open_data(data, specs, images=images)
        return GivenInputs(tuple(source.batches(_BATCH, finite=False)), source.label, source.notes)
    origin = "given arrays" if isinstance(data, (Mapping, np.ndarray)) else str(data)
    try:
        feeds = adapt(specs, arrays)
    except InputError as error:
        raise InputError(f"{origin}: {error}") from error
    return GivenInputs((feeds,), origin, others_left_out(origin, arrays, specs))


def _of_table(table: DataTable, specs: Sequence[TensorSpec]) -> GivenInputs:
    arrays, notes = table.arrays(specs), (*table.notes, *table.left_out(specs))
    if any(not s.shape or isinstance(s.shape[0], int) for s in specs):
        return GivenInputs(tuple(open_data(arrays, specs).batches(_BATCH, finite=False)), table.label, notes)
    count = len(next(iter(arrays.values())))
    feeds = tuple({n: a[start : start + _ROWS] for n, a in arrays.items()} for start in range(0, count, _ROWS))
    return GivenInputs(feeds, table.label, notes)


def _whole(data: Data, specs: Sequence[TensorSpec]) -> Mapping[str, np.ndarray] | None:
    """Arrays by input name; None for what holds samples."""
    if not isinstance(data, (str, os.PathLike)):
        return named_arrays(data, specs)
    path = Path(data)
    other_form = ".py:" in str(data) or path.suffix.lower() in (".py", *SUFFIXES)
    if not path.is_dir() and not other_form:
        return read_npz(path)
    if path.is_dir():
        files = sorted(path.glob("*.npy"))
        if files and {f.stem for f in files} >= {s.name for s in specs}:
            return {f.stem: read_npz(f)[""] for f in files}
    return None


def _is_many(arrays: Mapping[str, np.ndarray], specs: Sequence[TensorSpec]) -> bool:
    """Whether a model with a fixed batch is given several of them at once."""
    chosen = {s.name: arrays.get(s.name) for s in specs}
    if len(specs) == 1 and "" in arrays:
        chosen = {specs[0].name: arrays[""]}
    many = False
    for spec in specs:
        array, shape = chosen[spec.name], spec.shape
        if not isinstance(array, np.ndarray) or not shape or not array.ndim:
            return False
        fixed = shape[0] if isinstance(shape[0], int) else None
        extra = array.ndim == len(shape) + 1
        if not extra and (fixed is None or array.ndim != len(shape) or fixed < 1 or array.shape[0] % fixed):
            return False
        many = many or extra or array.shape[0] != fixed
    return many
