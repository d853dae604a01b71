"""Readers of calibration and evaluation data, whatever form it has."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxtool.errors import InputError, UsageError, one_line, reading
from onnxtool.model.image_options import ImageOptions
from onnxtool.model.safety.tensors import declared_bytes
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.archive import Columns, open_npy, open_npz, read_npy, read_npz, verify_regular
from onnxtool.runtime.data.formats.registry import find_format, suffixes
from onnxtool.runtime.data.formats.table_file import TableFile
from onnxtool.runtime.data.frames import as_table
from onnxtool.runtime.data.images import SUFFIXES, pictures
from onnxtool.runtime.data.source import DataPath, DataSource
from onnxtool.runtime.data.table import DataTable
from onnxtool.runtime.feeds import TensorList
from onnxtool.user_code import load_function, read_items

_INPUT = re.compile(r"input_(\d+)\.pb$")
_LARGEST = 1 << 31


def sample_folders(folder: Path, specs: Sequence[TensorSpec]) -> list[Path]:
    """The folders of single samples: with input_N.pb files, or with an .npy file for each input; itself, or in it."""
    if _holds_sample(folder, specs):
        return [folder]
    inner = sorted((p for p in folder.iterdir() if p.is_dir()), key=_by_number)
    return [p for p in inner if _holds_sample(p, specs)]


def read_sample(folder: Path, specs: Sequence[TensorSpec]) -> dict[str, Any]:
    """One sample: input_N.pb is the N-th input unless it bears the name of one; lists for inputs that are sequences.

    Raises:
        InputError: damaged, of a type that the input has not, or with data in other files.
    """
    files = sorted((p for p in folder.iterdir() if _INPUT.search(p.name)), key=_by_number)
    if not files:
        return {s.name: read_npy(folder / f"{s.name}.npy") for s in specs}
    found = {}
    known = {s.name: s for s in specs}
    for position, file in enumerate(files):
        if file.stat().st_size > _LARGEST:
            raise InputError(f"{file}: too large for a tensor in one file.")
        spec = specs[min(position, len(specs) - 1)]
        kind = spec.dtype if isinstance(spec.dtype, str) else ""
        message, read = next((how for prefix, how in _MESSAGES.items() if kind.startswith(prefix)), _TENSOR)
        value = message()
        try:
            value.ParseFromString(file.read_bytes())
            for tensor in _tensors(value):
                if tensor.data_location == onnx.TensorProto.EXTERNAL:
                    raise InputError(f"{file}: its data is in another file, which is not followed.")
                declared = declared_bytes(tensor)
                if declared is not None and declared > _LARGEST:
                    raise InputError(f"{file}: it declares {declared} bytes.")
            content = read(value)
        except InputError:
            raise
        except Exception as error:  # protobuf's and onnx's own, of damaged files
            raise InputError(f"{file}: is no {kind or 'tensor'}, or damaged ({one_line(error, 200)}).") from error
        found[known.get(value.name, spec).name] = content
    return found


_TENSOR: tuple[Any, Callable[[Any], Any]] = (onnx.TensorProto, numpy_helper.to_array)
_MESSAGES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "seq": (onnx.SequenceProto, lambda m: TensorList(numpy_helper.to_list(m))),
    "optional": (onnx.OptionalProto, lambda m: numpy_helper.to_optional(m) if _holds_value(m) else None),
}


def _holds_value(optional: onnx.OptionalProto) -> bool:
    return any(field.name.endswith("_value") for field, _ in optional.ListFields())


def _tensors(value: Any) -> Iterator[onnx.TensorProto]:
    """All tensors of a tensor, a sequence or an optional."""
    if isinstance(value, onnx.TensorProto):
        yield value
    elif isinstance(value, onnx.SequenceProto):
        yield from value.tensor_values
        for inner in (*value.sequence_values, *value.optional_values):
            yield from _tensors(inner)
    else:
        for name in ("tensor_value", "sequence_value", "optional_value"):
            if value.HasField(name):
                yield from _tensors(getattr(value, name))


def _holds_sample(folder: Path, specs: Sequence[TensorSpec]) -> bool:
    if any(_INPUT.search(p.name) for p in folder.iterdir() if p.is_file()):
        return True
    return len(specs) > 0 and folder.parent != folder and all((folder / f"{s.name}.npy").is_file() for s in specs)


def _by_number(path: Path) -> tuple[int, str]:
    digits = re.findall(r"\d+", path.name)
    return (int(digits[-1]) if digits else -1, path.name)


def open_data(
    data: Any,
    specs: Sequence[TensorSpec],
    *,
    samples: int | None = None,
    images: ImageOptions = ImageOptions(),  # noqa: B008  (frozen)
    label: str | None = None,
) -> DataSource:
    """Open calibration or evaluation data.

    Args:
        data: an .npz file (arrays by input name, samples along the first dim), an .npy file (one input), a folder
            of .npy or .npz files (one sample each), a folder of ONNX's test_data_set_N folders (or of others with an
            .npy file for each input), a folder of pictures, a table's file (see `formats`), "file.py:generator", or in
            Python a data frame, columns or arrays by name, a list of rows or feeds, or a function that returns an
            iterable of feeds.
        specs: the model's inputs.
        samples: use at most this many.
        images: how pictures become tensors.
        label: the column of a table that holds labels.

    Raises:
        InputError: missing or unreadable, or it does not fit the model.
        UsageError: a kind of data that is not known.
    """
    source = _open(data, tuple(specs), images, label).limited(samples)
    if source.count == 0:
        raise InputError(f"{source.label}: there are no samples in it.")
    return source


def _open(data: Any, specs: tuple[TensorSpec, ...], images: ImageOptions, label: str | None) -> DataSource:
    if isinstance(data, DataSource):
        return replace(data, specs=specs)
    table = open_table(data, specs)
    if table is not None:
        typed = table.arrays(specs, label)
        columns = {name: Columns(array.shape, _row_reader(array)) for name, array in typed.items()}
        return replace(_from_columns(table.label, columns, specs), notes=(*table.notes, *table.left_out(specs, label)))
    arrays = named_arrays(data, specs)
    if arrays is not None:
        columns = {k: Columns(np.shape(v), _row_reader(np.asarray(v))) for k, v in arrays.items()}
        return _named("given arrays", columns, specs, label)
    if callable(data):
        return DataSource("given function", None, lambda: read_items(data, "given function"), specs)
    if not isinstance(data, (str, os.PathLike)):
        items = list(data) if isinstance(data, Iterable) else None
        if items is None:
            raise UsageError(f"data cannot be a {type(data).__name__}: {_TAKEN}.")
        return DataSource("given feeds", len(items), lambda: read_items(lambda: items, "given feeds"), specs)
    text = os.fspath(data)
    path = Path(text)
    script, colon, function = text.rpartition(":")
    if colon and script.endswith(".py"):
        return _from_script(Path(script), function, specs)
    if path.is_dir():
        return _from_folder(path, specs, images)
    _verify_file(path)
    if path.suffix == ".npz":
        return _named(str(path), open_npz(path), specs, label)
    if path.suffix == ".npy":
        return _from_columns(str(path), open_npy(path), specs)
    if path.suffix.lower() in SUFFIXES:
        return pictures(str(path), [path], specs, images)
    if path.suffix == ".py":
        raise UsageError(f"{path}: name the generator function in it too: {path}:FUNCTION.")
    known = ", ".join((".npz", ".npy", *suffixes()))
    raise UsageError(
        f"{path}: give a file that ends with {known}, a folder of arrays or pictures, or file.py:generator."
    )


def _verify_file(path: Path) -> None:
    if not path.exists():
        raise InputError(f"{path}: no such file or folder.")
    verify_regular(path)


def open_table(data: Any, specs: Sequence[TensorSpec] | None = None) -> DataTable | None:
    """The table that a file or an object holds; None where it is none.

    Args:
        data: anything that `open_data` takes.
        specs: the model's inputs; without them named arrays count as arrays.

    Raises:
        InputError: a table that cannot be read.
        MissingExtraError: what reads it is not installed.
    """
    if not isinstance(data, (str, os.PathLike)):
        return data if isinstance(data, DataTable) else as_table(data, specs)
    path = Path(data)
    form = None if path.is_dir() or ".py:" in str(data) else find_format(path)
    if form is None:
        return None
    _verify_file(path)
    with reading(path):
        return form.read(TableFile.of(path, data.decimal if isinstance(data, DataPath) else "."))


def open_sample(data: Any) -> Mapping[str, np.ndarray] | DataTable:
    """Arrays by name, or a table, of which the model tells what is made.

    Raises:
        InputError: it cannot be read.
        UsageError: a kind of data that is not known.
    """
    table = open_table(data)
    if table is not None:
        return table
    arrays = read_npz(data) if isinstance(data, (str, os.PathLike)) else named_arrays(data, ())
    if arrays is None:
        raise UsageError(f"a sample cannot be a {type(data).__name__}: give a path, a data frame or arrays by name.")
    return arrays


def named_arrays(data: Any, specs: Sequence[TensorSpec]) -> dict[str, Any] | None:
    """Arrays by input name, a lone one under ""; None where `data` is something else.

    Raises:
        InputError: what numpy makes no array of.
    """
    if hasattr(data, "__array__") and not isinstance(data, Mapping):
        data = {"": data}
    if not isinstance(data, Mapping):
        return None
    others = {s.name for s in specs if isinstance(s.dtype, str) and s.dtype != "string"}  # sequences and maps
    found = {}
    for name, value in data.items():
        try:
            found[str(name)] = value if name in others else np.asarray(value)
        except (ValueError, TypeError) as error:
            raise InputError(f"given arrays: {name!r} is not an array ({one_line(error, 150)}).") from error
    return found


def others_left_out(label: str, names: Iterable[str], specs: Sequence[TensorSpec]) -> tuple[str, ...]:
    """What to say of arrays that the model does not take; labels for a metric may stand beside its inputs."""
    taken = {s.name for s in specs}
    others = [name for name in names if name not in taken and name]
    if not others:
        return ()
    return (f"{label}: {', '.join(map(repr, others))} left out; the model takes {', '.join(s.name for s in specs)}",)


_TAKEN = (
    "give a path, a data frame, arrays or columns by name, a list of rows or feeds, or a function that returns feeds"
)


def _named(origin: str, columns: Mapping[str, Columns], specs: tuple[TensorSpec, ...], label: str | None) -> DataSource:
    others = [name for name in columns if name != label]
    return replace(_from_columns(origin, columns, specs), notes=others_left_out(origin, others, specs))


def _from_columns(label: str, columns: Mapping[str, Columns], specs: tuple[TensorSpec, ...]) -> DataSource:
    """Arrays by name, samples along the first dim; an input whose array has no such dim is the same in all."""
    if len(specs) == 1 and "" in columns:
        columns = {specs[0].name: columns[""]}
    missing = [s for s in specs if s.name not in columns]
    if missing:
        known = ", ".join(str(s.info()) for s in specs)
        have = ", ".join(columns) or "nothing"
        raise InputError(f"{label}: the data has {have}; the model takes {known}.")
    chosen = {s.name: columns[s.name] for s in specs}
    steps = {s.name: _rows_per_sample(s, chosen[s.name].shape, label) for s in specs}
    counts = {n: c.shape[0] // steps[n] for n, c in chosen.items() if steps[n]}
    # One row in one array and many in the others: a constant beside the samples.
    count = max(counts.values(), default=1)
    constant = {n for n in chosen if not steps[n] or (counts[n] == 1 and count > 1)}
    uneven = [n for n in chosen if n not in constant and counts[n] != count]
    if uneven:
        raise InputError(f"{label}: {uneven[0]!r} holds {counts[uneven[0]]} samples where others hold {count}.")

    ranks = {s.name: None if s.shape is None else len(s.shape) for s in specs}

    def rows() -> Iterator[Mapping[str, np.ndarray]]:
        fixed = {n: next(chosen[n].read(max(chosen[n].shape[0], 1) if chosen[n].shape else 1)) for n in constant}
        streams = {n: c.read(steps[n]) for n, c in chosen.items() if n not in constant}
        for _ in range(count):
            yield fixed | {n: _sample(next(s), ranks[n], chosen[n].stacked) for n, s in streams.items()}

    for name, rank in ranks.items():
        chosen[name].stacked = rank is not None and len(chosen[name].shape) == rank + 1
    return DataSource(label, count, rows, specs)


def _sample(rows: np.ndarray, rank: int | None, stacked: bool) -> np.ndarray:
    """One sample out of its rows. Of a scalar input it is an array without dims, not a bare number."""
    if rank == 0:
        return np.asarray(rows).reshape(())
    return np.asarray(rows[0]) if stacked else rows


def _rows_per_sample(spec: TensorSpec, shape: tuple[int, ...], label: str) -> int:
    """Rows of the array that make one sample; 0 when the array is one whole sample without a sample dim."""
    if spec.shape is None:
        return 1 if shape else 0
    rank = len(spec.shape)
    if len(shape) == rank + 1 or (rank == 0 and len(shape) > 1 and math.prod(shape[1:]) == 1):
        return 1
    if len(shape) != rank:
        raise InputError(f"{label}: {spec.name!r} has shape {list(shape)}; the model takes {spec.info()}.")
    if rank == 0:
        return 0
    first = spec.shape[0]
    if not isinstance(first, int):
        return 1
    if shape[0] < first:
        raise InputError(f"{label}: {spec.name!r} has shape {list(shape)}; the model takes {spec.info()}.")
    return first


def _row_reader(array: np.ndarray) -> Callable[[int], Iterator[np.ndarray]]:
    def read(rows: int) -> Iterator[np.ndarray]:
        if not array.ndim:
            yield array
            return
        for start in range(0, array.shape[0] - rows + 1, rows):
            yield array[start : start + rows]

    return read


def _from_folder(folder: Path, specs: tuple[TensorSpec, ...], images: ImageOptions) -> DataSource:
    files = sorted(p for p in folder.iterdir() if p.suffix in (".npy", ".npz") and p.is_file())
    folders = [] if files else sample_folders(folder, specs)
    if folders:
        return DataSource(str(folder), len(folders), lambda: (read_sample(f, specs) for f in folders), specs)
    if not files:
        others = [p for p in folder.rglob("*") if p.is_file()]
        shown = sorted(p for p in others if p.suffix.lower() in SUFFIXES)
        if not shown:
            raise InputError(f"{folder}: there are no .npy, .npz or picture files in it.")
        return pictures(str(folder), shown, specs, images, skipped=len(others) - len(shown))
    if len(specs) > 1 and {p.stem for p in files} >= {s.name for s in specs}:
        columns: dict[str, Columns] = {}
        for spec in specs:
            columns |= {spec.name: next(iter(open_npy(folder / f"{spec.name}.npy").values()))}
        return _from_columns(str(folder), columns, specs)

    def read() -> Iterator[Mapping[str, np.ndarray]]:
        for file in files:
            yield {name: _with_batch(a, name, specs) for name, a in read_npz(file).items()}

    return DataSource(str(folder), len(files), read, specs)


def _with_batch(array: np.ndarray, name: str, specs: tuple[TensorSpec, ...]) -> np.ndarray:
    """A sample saved without its batch dim gets one."""
    spec = next((s for s in specs if s.name == name), specs[0] if len(specs) == 1 else None)
    lacks = spec is not None and spec.shape is not None and array.ndim == len(spec.shape) - 1
    return array[None] if lacks else array


def _from_script(script: Path, function: str, specs: tuple[TensorSpec, ...]) -> DataSource:
    call = load_function(script, function)
    label = f"{script}:{function}"
    return DataSource(label, None, lambda: read_items(call, label), specs)


def read_labels(data: Any, name: str) -> np.ndarray:
    """The labels of labelled data: array or column `name` of it.

    Raises:
        InputError: there is no such array.
        UsageError: data without names.
    """
    table = open_table(data)
    if table is not None:
        return table.column(name)
    if isinstance(data, Mapping):
        label, names = "given arrays", list(data)
    elif isinstance(data, (str, os.PathLike)) and str(data).endswith(".npz"):
        label, arrays = str(data), open_npz(Path(data))
        names = list(arrays)
        if name in arrays:
            rows = arrays[name]
            return np.concatenate(list(rows.read(1))) if rows.shape else next(rows.read(1))
    else:
        raise UsageError(
            "--labels names an array or a column of the --eval file, which must be an .npz file or a table."
        )
    if name not in names:
        raise InputError(f"{label}: there is no array {name!r} for --labels in it; it has {', '.join(names)}.")
    return np.asarray(data[name])
