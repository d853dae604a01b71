"""Inputs for a model: seeded random ones that respect dtype, shape, dims and value ranges, or from files.

And its outputs made flat, where they are sequences or maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.errors import InputError, UnsupportedError
from onnxtool.model.spec import Dim, TensorSpec, dtype_name
from onnxtool.runtime.worker.isolation import note_synthetic_inputs

if TYPE_CHECKING:  # importing it at run time loads onnx_ir, which check and run do without
    from onnxtool.model.domains import Domain


_LARGE = 1e4  # beyond any sane activation, and within float16


def edge_feeds(
    specs: Sequence[TensorSpec], domains: Mapping[str, Domain] | None = None
) -> list[tuple[str, dict[str, np.ndarray]]]:
    """Zeros, the smallest and the largest values, alternating signs, and an empty batch where it is dynamic.

    Integers stay in their domain, or in [0, 1] without one. Strings become empty. Inputs that are not tensors make the
    list empty.

    Returns:
        (what it is, the feeds) for each.
    """
    if any(isinstance(s.dtype, str) and s.dtype != "string" for s in specs):
        return []
    cases = [
        (label, _filled(specs, domains or {}, label, 2)) for label in ("zeros", "smallest", "largest", "alternating")
    ]
    if any(s.shape and not isinstance(s.shape[0], int) for s in specs):
        cases.append(("empty batch", _filled(specs, domains or {}, "zeros", 0)))
    return cases


def _filled(
    specs: Sequence[TensorSpec], domains: Mapping[str, Domain], label: str, batch: int
) -> dict[str, np.ndarray]:
    numbers = dim_values(specs, batch=2)
    if batch == 0:
        numbers |= {s.shape[0]: 0 for s in specs if s.shape and isinstance(s.shape[0], str)}
    feeds = {}
    for spec in specs:
        shape = concrete_shape(spec.shape, numbers, batch=2)
        if batch == 0 and spec.shape and spec.shape[0] is None:
            shape = (0, *shape[1:])
        feeds[spec.name] = _values(spec, shape, domains.get(spec.name), label)
    return feeds


def _values(spec: TensorSpec, shape: tuple[int, ...], domain: Domain | None, label: str) -> np.ndarray:
    if isinstance(spec.dtype, str):
        return np.full(shape, "", dtype=object)
    whole = spec.dtype.kind in "iub"
    if domain is not None:
        low, high = domain.low, domain.high - 1 if whole else domain.high
    else:
        low, high = (0.0, 1.0) if whole else (-_LARGE, _LARGE)
    if label == "alternating":
        flat = np.where(np.arange(int(np.prod(shape))) % 2 == 0, low, high)
        return flat.reshape(shape).astype(spec.dtype)
    value = {"zeros": min(max(0.0, low), high), "smallest": low, "largest": high}[label]
    return np.full(shape, value).astype(spec.dtype)


Feeds = Mapping[str, np.ndarray]  # input name -> array, for one run
Outputs = Mapping[str, Any]  # output name -> array; sequences and maps are lists and dicts
DEFAULT_BATCH = 2
DEFAULT_LENGTH = 16
_MAX_RANK = 64  # of numpy
_MAX_ELEMENTS = 1 << 26  # of all inputs together; half a gigabyte while they are drawn
_MOST_WITHOUT_ELEMENTS = 1 << 56


class TensorList(list[np.ndarray]):
    """A sequence of tensors, whose shape is its length: the tensors may have several."""

    @property
    def shape(self) -> tuple[int]:
        """Of one dim."""
        return (len(self),)

    @property
    def size(self) -> int:
        """How many tensors."""
        return len(self)


def feeds_bytes(feeds: Mapping[str, Any]) -> int:
    """Bytes of all arrays together, those of sequences among them."""
    arrays = (a for value in feeds.values() for a in (value if isinstance(value, list) else [value]))
    return sum(np.asarray(array).nbytes for array in arrays)


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
        batch: for dims that come first in an input.
        length: for all others.
    """
    chosen = dict(sizes or {})
    for spec in specs:
        for axis, dim in enumerate(spec.shape or ()):
            if isinstance(dim, str) and dim not in chosen:
                is_batch = axis == 0
                chosen[dim] = _given(batch, DEFAULT_BATCH) if is_batch else _given(length, DEFAULT_LENGTH)
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
        return (_given(batch, DEFAULT_BATCH),)
    result = []
    for axis, dim in enumerate(shape):
        if isinstance(dim, int):
            result.append(dim)
        elif isinstance(dim, str) and dim in dims:
            result.append(dims[dim])
        else:
            result.append(_given(batch, DEFAULT_BATCH) if axis == 0 else _given(length, DEFAULT_LENGTH))
    return tuple(result)


def _given(size: int | None, otherwise: int) -> int:
    return otherwise if size is None else size  # 0 is a size too


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
        UnsupportedError: an input that is not a tensor (sequence, map, optional).
        InputError: the shapes call for more than 2**26 elements.
    """
    generator = np.random.default_rng(seed)
    numbers = dim_values(specs, dims, batch=batch, length=length)
    shapes = [concrete_shape(s.shape, numbers, batch=batch, length=length) for s in specs]
    total = 0.0
    for spec, shape in zip(specs, shapes, strict=True):  # before anything is drawn
        if len(shape) > _MAX_RANK:
            raise InputError(f"input {spec.name!r} has {len(shape)} dims; an array can have at most {_MAX_RANK}.")
        total += float(np.prod([float(d) for d in shape]))
        # numpy multiplies the dims of an array without elements too, but for those of 0.
        if total > _MAX_ELEMENTS or np.prod([float(d) for d in shape if d]) > _MOST_WITHOUT_ELEMENTS:
            raise InputError(f"input {spec.name!r} of shape {list(shape)} is too large for random data; give --data.")
    note_synthetic_inputs()
    given = domains or {}
    return {s.name: _random(s, shape, generator, given.get(s.name)) for s, shape in zip(specs, shapes, strict=True)}


def _random(spec: TensorSpec, shape: tuple[int, ...], generator: np.random.Generator, domain: Domain | None) -> Any:
    if domain is not None and domain.values:
        return _chosen(spec, shape, generator, domain.values)
    if spec.dtype == "string":
        return generator.choice(np.array(["alpha", "beta", "gamma", "delta"], dtype=object), size=shape)
    if isinstance(spec.dtype, str):
        raise UnsupportedError(f"input {spec.name!r} is of type {spec.dtype}; random data can fill tensors only.")
    if spec.dtype.kind == "b":
        return generator.integers(0, 2, size=shape).astype(bool)
    if spec.dtype.kind in "iu":
        low, high = (int(domain.low), int(domain.high)) if domain else (0, 2)
        return generator.integers(low, max(high, low + 1), size=shape).astype(spec.dtype)
    if spec.dtype.kind == "c":
        return (generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(spec.dtype)
    if domain is not None:
        own = shape and 0 < len(domain.columns) == shape[-1]
        ends = domain.columns if own else ((domain.low, domain.high),)
        low, high = np.array(ends).T
        return generator.uniform(low, high, size=shape or (1,)).reshape(shape).astype(spec.dtype)
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


def adapt(specs: Sequence[TensorSpec], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Pick from `arrays` what a model takes, by name; an array without a name ("") is for the only input.

    Arrays that the model does not take (labels, say) are left out; casts between floats are made, and of integers that
    the model's type holds.

    Raises:
        InputError: an input without an array.
    """
    if len(specs) == 1 and "" in arrays:
        arrays = {specs[0].name: arrays[""]}
    feeds = {}
    for spec in specs:
        if spec.name not in arrays:
            known = ", ".join(str(s.info()) for s in specs)
            have = ", ".join(n or "an array without a name" for n in arrays) or "nothing"
            raise InputError(f"the data has {have}; the model takes {known}.")
        feeds[spec.name] = cast(arrays[spec.name], spec)
    return feeds


def cast(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Cast to the input's dtype where no meaning is lost (float to float, integers that fit)."""
    if array is None or isinstance(array, list):  # an optional, a sequence
        return array
    array = np.asarray(array) if isinstance(array, np.generic) else array  # a bare number is no array to the runtime
    if isinstance(spec.dtype, str):
        return array.astype(object) if spec.dtype == "string" and array.dtype.kind in "US" else array
    floats = array.dtype.kind == "f" and spec.dtype.kind in "fV"
    if array.dtype != spec.dtype and (floats or np.can_cast(array.dtype, spec.dtype, "safe")):
        return array.astype(spec.dtype)
    if array.dtype != spec.dtype and array.dtype.kind in "iu" and spec.dtype.kind in "iu":
        narrow = array.astype(spec.dtype)
        return narrow if np.array_equal(narrow, array) else array
    return array


def flatten(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Sequences become name[0], name[1], ...; lists of maps (ZipMap) become one tensor for each key."""
    flat: dict[str, Any] = {}
    for name, value in outputs.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}[{key}]": item for key, item in value.items()})
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
            flat.update({f"{name}[{key}]": np.array([row[key] for row in value]) for key in value[0]})
        elif isinstance(value, (list, tuple)):
            flat.update({f"{name}[{index}]": item for index, item in enumerate(value)})
        elif value is None:
            flat[name] = np.array([], dtype=np.float32)
        else:
            flat[name] = value
    return flat


def check_feeds(specs: Sequence[TensorSpec], feeds: Mapping[str, np.ndarray]) -> None:
    """Hold feeds against what a model takes.

    Raises:
        InputError: a missing or unknown name, another dtype, another rank, another fixed dim.
    """
    expected = {s.name: s for s in specs}
    for name in feeds:
        if name not in expected:
            raise InputError(f"the data has {name!r}, but the model takes {_listed(specs)}.")
    for spec in specs:
        array = feeds.get(spec.name)
        if spec.name not in feeds:
            raise InputError(f"the data has no {spec.name!r}; the model takes {_listed(specs)}.")
        if not isinstance(array, np.ndarray):
            continue  # sequences and maps: the runtime checks them
        got = "string" if array.dtype.kind in "OUS" else array.dtype
        if got != spec.dtype and not (isinstance(spec.dtype, str) and spec.dtype != "string"):
            raise InputError(f"{spec.name!r} is {dtype_name(got)} in the data; the model takes {spec.info()}.")
        if not spec.has_shape(array.shape):
            raise InputError(f"{spec.name!r} has shape {list(array.shape)} in the data; the model takes {spec.info()}.")


def _listed(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(str(s.info()) for s in specs)
