"""Inputs for a model: seeded random ones that respect dtype, shape, dims and value ranges, or from files."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.errors import InputError, OnnxToolError, ResourceError, UnsupportedError
from onnxtool.model.spec import Dim, TensorSpec

if TYPE_CHECKING:  # importing it at run time loads onnx_ir, which check and run do without
    from onnxtool.model.domains import Domain

DEFAULT_BATCH = 2
DEFAULT_LENGTH = 16
_MAX_ELEMENTS = 1 << 26  # of all inputs together; half a gigabyte while they are drawn


# A compressed archive that is larger unpacked than both of these is taken for a bomb.
_UNPACKED_LIMIT = 1 << 30
_RATIO_LIMIT = 200


def dim_values(
    specs: Sequence[TensorSpec],
    sizes: Mapping[str, int] | None = None,
    *,
    batch: int | None = None,
    length: int | None = None,
) -> dict[str, int]:
    """Choose a number for every symbolic dim; a name shared by several inputs gets one number.

    The first dim of an input counts as its batch (DEFAULT_BATCH unless `batch`), others as lengths
    (DEFAULT_LENGTH unless `length`).

    Args:
        specs: the model's inputs.
        sizes: numbers that are already decided, by dim name.
    """
    chosen = dict(sizes or {})
    for spec in specs:
        for axis, dim in enumerate(spec.shape or ()):
            if isinstance(dim, str) and dim not in chosen:
                is_batch = axis == 0
                chosen[dim] = (batch or DEFAULT_BATCH) if is_batch else (length or DEFAULT_LENGTH)
    return chosen


def concrete_shape(
    shape: tuple[Dim, ...] | None,
    dims: Mapping[str, int],
    *,
    batch: int | None = None,
    length: int | None = None,
) -> tuple[int, ...]:
    """Fill in symbolic (`dims`) and unknown dims."""
    if shape is None:
        return (batch or DEFAULT_BATCH,)
    result = []
    for axis, dim in enumerate(shape):
        if isinstance(dim, int):
            result.append(dim)
        elif isinstance(dim, str) and dim in dims:
            result.append(dims[dim])
        else:
            result.append((batch or DEFAULT_BATCH) if axis == 0 else (length or DEFAULT_LENGTH))
    return tuple(result)


def random_feeds(
    specs: Sequence[TensorSpec],
    seed: int = 0,
    *,
    dims: Mapping[str, int] | None = None,
    batch: int | None = None,
    length: int | None = None,
    domains: Mapping[str, Domain] | None = None,
) -> dict[str, np.ndarray]:
    """Seeded random inputs.

    Floats are standard normal (within a `Domain`: uniform), integers lie in their domain or in [0, 2), booleans
    are fair coins, strings are short words.

    Args:
        specs: the model's inputs; shapes may hold symbolic dims.
        seed: same seed, same specs: same arrays.
        dims: numbers for symbolic dims, by name; the rest is chosen as in `dim_values`.
        batch: size of the first dim where it is dynamic.
        length: size of the other dynamic dims.
        domains: per input name, the values it may take.

    Raises:
        UnsupportedError: an input that is no tensor (sequence, map, optional).
        InputError: the shapes call for more than 2**26 elements.
    """
    generator = np.random.default_rng(seed)
    numbers = dim_values(specs, dims, batch=batch, length=length)
    feeds = {}
    total = 0.0
    for spec in specs:
        shape = concrete_shape(spec.shape, numbers, batch=batch, length=length)
        total += float(np.prod([float(d) for d in shape]))
        if total > _MAX_ELEMENTS:
            raise InputError(f"input {spec.name!r} of shape {list(shape)} is too large for random data; give --data.")
        feeds[spec.name] = _random(spec, shape, generator, (domains or {}).get(spec.name))
    return feeds


def _random(spec: TensorSpec, shape: tuple[int, ...], generator: np.random.Generator, domain: Domain | None) -> Any:
    if domain is not None and domain.values:
        return _chosen(spec, shape, generator, domain.values)
    if spec.dtype == "string":
        return generator.choice(np.array(["alpha", "beta", "gamma", "delta"], dtype=object), size=shape)
    if isinstance(spec.dtype, str):
        raise UnsupportedError(f"input {spec.name!r} is a {spec.dtype}; random data can fill tensors only.")
    if spec.dtype.kind == "b":
        return generator.integers(0, 2, size=shape).astype(bool)
    if spec.dtype.kind in "iu":
        low, high = (int(domain.low), int(domain.high)) if domain else (0, 2)
        return generator.integers(low, max(high, low + 1), size=shape).astype(spec.dtype)
    if spec.dtype.kind == "c":
        return (generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(spec.dtype)
    if domain is not None:
        return np.asarray(generator.uniform(domain.low, domain.high, size=shape)).astype(spec.dtype)
    return np.asarray(generator.standard_normal(shape)).astype(spec.dtype)


def _chosen(spec: TensorSpec, shape: tuple[int, ...], generator: np.random.Generator, values: tuple[Any, ...]) -> Any:
    """Values drawn from a list, or from one list for each column."""
    kind = np.dtype(object) if isinstance(spec.dtype, str) else spec.dtype
    lists = values if isinstance(values[0], tuple) else (values,) * (shape[-1] if shape else 1)
    drawn = np.empty(shape, kind)
    for column, allowed in enumerate(lists[: shape[-1]] if shape else lists[:1]):
        place = (..., column) if shape else ()
        drawn[place] = np.array(allowed, kind)[generator.integers(0, len(allowed), size=shape[:-1])]
    return drawn


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read all arrays of an .npz file, or the one of an .npy file (key ""). Object arrays are refused.

    Raises:
        InputError: missing, no npz, or holding pickled objects.
    """
    path = Path(path)
    try:
        _verify_archive(path)
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except OnnxToolError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except Exception as error:  # numpy raises ValueError, BadZipFile, EOFError, OSError, ... on damaged files
        raise InputError(f"{path}: {_why_not_npz(path, error)}.") from error


def _verify_archive(path: Path) -> None:
    """Look at a zip's directory before anything is unpacked.

    Raises:
        InputError: a member that is no .npy array.
        ResourceError: it would unpack to very much more than it is.
    """
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    for member in members:
        if not member.filename.endswith(".npy"):
            raise InputError(f"{path}: it holds {member.filename!r}, which is no .npy array.")
    unpacked = sum(member.file_size for member in members)
    if unpacked > _UNPACKED_LIMIT and unpacked > _RATIO_LIMIT * path.stat().st_size:
        raise ResourceError(
            f"{path}: it would unpack to {unpacked / 1e9:.1f} GB, over {_RATIO_LIMIT} times its size; save it with "
            "numpy.savez, uncompressed, if that is right."
        )


def _why_not_npz(path: Path, error: Exception) -> str:
    """numpy takes whatever is neither .npy nor .npz for a pickle; only what looks like one is called so."""
    try:
        with open(path, "rb") as file:
            head = file.read(6)
    except OSError as unreadable:
        return f"cannot be read ({unreadable.strerror})"
    ours = head.startswith((b"PK", b"\x93NUMPY"))
    if "allow_pickle" in str(error) and (ours or head.startswith(b"\x80")):
        return "holds pickled objects, which are not loaded"
    return "is damaged or cut off" if ours else "is no .npz or .npy file"


def adapt(specs: Sequence[TensorSpec], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Pick from `arrays` what a model takes, by name; a lone array fits a lone input.

    Arrays that the model does not take (labels, say) are left out; safe casts between floats and from smaller
    integers are made.

    Raises:
        InputError: an input without an array.
    """
    if len(specs) == 1 and len(arrays) == 1 and specs[0].name not in arrays:
        arrays = {specs[0].name: next(iter(arrays.values()))}
    feeds = {}
    for spec in specs:
        if spec.name not in arrays:
            known = ", ".join(str(s.info()) for s in specs)
            raise InputError(f"the data has {', '.join(arrays) or 'nothing'}; the model takes {known}.")
        feeds[spec.name] = cast(arrays[spec.name], spec)
    return feeds


def cast(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Cast to the input's dtype where no meaning is lost (float to float, integer to wider integer)."""
    if isinstance(spec.dtype, str):
        return array.astype(object) if spec.dtype == "string" and array.dtype.kind in "US" else array
    floats = array.dtype.kind == "f" and spec.dtype.kind in "fV"
    if array.dtype != spec.dtype and (floats or np.can_cast(array.dtype, spec.dtype, "safe")):
        return array.astype(spec.dtype)
    return array
