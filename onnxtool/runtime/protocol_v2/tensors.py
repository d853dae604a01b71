"""Tensors in the Open Inference Protocol V2: JSON, or a JSON header followed by raw bytes.

Server and client share this module, so that no two of them can disagree about a byte.

Source: https://github.com/kserve/open-inference-protocol and Triton's extension_binary_data.md.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from onnxtool.errors import InputError, UnsupportedError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.protocol_v2.fast_json import dumps, loads

HEADER_LENGTH = "Inference-Header-Content-Length"
BYTES = "BYTES"
_DTYPES: Mapping[str, np.dtype] = {
    "BOOL": np.dtype(bool),
    **{f"{kind}INT{bits}": np.dtype(f"{kind.lower()}int{bits}") for kind in ("", "U") for bits in (8, 16, 32, 64)},
    "FP16": np.dtype("float16"),
    "FP32": np.dtype("float32"),
    "FP64": np.dtype("float64"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
# ONNX Runtime's names of element types where they are not the protocol's in small letters.
_RUNTIME_NAMES = {"float16": "FP16", "float": "FP32", "double": "FP64", "bfloat16": "BF16", "string": BYTES}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_CLASSES = "classification"
# MLServer's codecs name what clients make of numbers and texts; it changes no answer.
_CODECS = (("content_type", "np"), ("content_type", "str"))
_MAX_RANK = 64
_MAX_ELEMENTS = 1 << 48
_SHOWN = 12  # names in a message
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class InferRequest:
    """A decoded request.

    Attributes:
        feeds: named arrays, dtypes as the request declares them; texts are arrays of str objects.
        outputs: name -> whether it is wanted as raw bytes; empty for all outputs.
        binary: whether outputs come as raw bytes where `outputs` does not say.
        classes: name -> how many of the largest values of each row are wanted in place of the output itself.
        id: what the caller named the request; None where it did not.
        seconds: that the caller waits for the answer; None where it does not say.
    """

    feeds: dict[str, np.ndarray]
    outputs: dict[str, bool]
    binary: bool
    classes: dict[str, int]
    id: str | None
    seconds: float | None = None


def datatype(dtype: np.dtype | str) -> str:
    """The protocol's name of an element type.

    Raises:
        UnsupportedError: the protocol has none (sequences, maps, 4-bit and complex numbers).
    """
    if isinstance(dtype, str):
        if dtype == "string":
            return BYTES
        raise UnsupportedError(f"the V2 protocol has tensors only, no {dtype}.")
    if dtype not in _NAMES:
        raise UnsupportedError(f"the V2 protocol has no element type {dtype.name}.")
    return _NAMES[dtype]


def runtime_datatype(kind: str) -> str:
    """The protocol's name of a type as ONNX Runtime writes it, such as "tensor(float)"."""
    inner = kind.removeprefix("tensor(").removesuffix(")")
    return _RUNTIME_NAMES.get(inner, inner.upper())


def element_type(datatype: str) -> np.dtype | str:
    """The dtype of one of the protocol's names; "string" for texts."""
    return "string" if datatype == BYTES else _DTYPES[datatype]


def tensor_metadata(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    """Inputs or outputs as the protocol's metadata has them; -1 is a dynamic dim."""
    return [
        {
            "name": s.name,
            "datatype": datatype(s.dtype),
            "shape": [d if isinstance(d, int) else -1 for d in s.shape] if s.shape is not None else [],
        }
        for s in specs
    ]


def read_metadata(entries: Any) -> tuple[TensorSpec, ...]:
    """The inverse of `tensor_metadata`.

    Raises:
        InputError: not such a list.
    """
    try:
        return tuple(
            TensorSpec(
                str(e["name"]),
                element_type(e["datatype"]),
                tuple(None if int(d) < 0 else int(d) for d in e["shape"]),
            )
            for e in entries
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"not the metadata of a V2 model ({type(error).__name__}: {error}).") from error


def load_json(text: bytes | memoryview) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InputError: not JSON, nested too deeply, or no object.
    """
    try:
        found = loads(bytes(text))
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON: {str(error)[:200]}.") from error
    if not isinstance(found, dict):
        raise InputError("the JSON must be an object.")
    return found


def decode_request(body: bytes, header_length: int | None, *, aligned: bool = True) -> InferRequest:
    """Read the body of an infer request. No size in it is believed: each is held against the bytes that are there.

    Args:
        body: the whole body.
        header_length: of the JSON part, in bytes; None when all of it is JSON.
        aligned: copy arrays that lie in the body where native code may not read them; False for who copies all.

    Raises:
        InputError: malformed, or sizes that do not fit together.
    """
    return decode_header(*_split(body, header_length), aligned=aligned)


def decode_header(header: Mapping[str, Any], raw: memoryview, *, aligned: bool = True) -> InferRequest:
    """Read a request from its JSON part and the bytes behind it; errors as of `decode_request`."""
    parameters = _parameters(_only(header, "the request", "id", "inputs", "outputs"), "binary_data_output", "timeout")
    entries = header.get("inputs")
    if not isinstance(entries, list) or not entries:
        raise InputError("the request has no list 'inputs'.")
    for entry in entries:
        if isinstance(entry, dict):  # else it is told by what reads it
            _parameters(_only(entry, "an input", "name", "datatype", "shape", "data"), "binary_data_size")
    feeds = _decode_tensors(entries, raw, "inputs", aligned)
    outputs, classes = {}, {}
    asked = [] if header.get("outputs") is None else header["outputs"]
    binary = _is_binary(parameters, "binary_data_output", False)
    if not isinstance(asked, list):
        raise InputError("'outputs' must be a list.")
    for entry in asked:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise InputError("every entry of 'outputs' must be an object with a 'name'.")
        if entry["name"] in outputs:
            raise InputError(f"{entry['name'][:100]!r} stands twice in 'outputs'.")
        how = _parameters(_only(entry, "an output", "name"), "binary_data", _CLASSES)
        outputs[entry["name"]] = _is_binary(how, "binary_data", binary)
        if count := _count(how, _CLASSES, 1):
            classes[entry["name"]] = count
    name = header.get("id")
    if name is not None and not isinstance(name, str):
        raise InputError("'id' must be a text.")
    return InferRequest(feeds, outputs, binary, classes, name, 1e-6 * _count(parameters, "timeout") or None)


def decode_plain(
    found: Any, types: Mapping[str, np.dtype | str], columns: Mapping[str, Sequence[str]]
) -> dict[str, np.ndarray]:
    """The inputs of plain JSON: {"x": [[1, 2]]}, or the bare list for a model with one input. Of a table also columns,
    {"age": [31, 40], "town": ["Bonn", "Ulm"]}, and records, [{"age": 31, "town": "Bonn"}, ...].

    Args:
        found: the JSON value.
        types: element type of each input.
        columns: of a table, the names of the columns of each input, in order; empty for a model that takes none.

    Raises:
        InputError: a missing or unknown name, or values that do not fit; names the input or column.
    """
    names = [name for of_input in columns.values() for name in of_input]
    if names and isinstance(found, list) and any(isinstance(row, dict) for row in found):
        for number, row in enumerate(found, 1):
            _check_names(row, names, f"row {number}")
        found = {name: [row[name] for row in found] for name in names}
    elif not isinstance(found, dict) and len(types) == 1:
        found = dict.fromkeys(types, found)
    if not names or (isinstance(found, dict) and found.keys() == types.keys() and names != list(types)):
        _check_names(found, list(types), "the JSON")
        return {name: from_lists(name, data, types[name]) for name, data in found.items()}
    _check_names(found, names, "the JSON")
    table = {c: _column(c, found[c], types[name]) for name, of_input in columns.items() for c in of_input}
    rows = len(table[names[0]])
    for name, column in table.items():
        if len(column) != rows:
            raise InputError(f"{name!r} has {len(column)} rows, {names[0]!r} has {rows}.")
    return {name: np.concatenate([table[c] for c in of_input], axis=1) for name, of_input in columns.items()}


def _check_names(found: Any, names: Sequence[str], what: str) -> None:
    """Raises InputError where an object has not exactly these names."""
    listed = f"the model's inputs: {', '.join(names[:_SHOWN])}{', ...' * (len(names) > _SHOWN)}"
    if not isinstance(found, dict):
        raise InputError(f"{what} must be an object with {listed}.")
    for name in names:
        if name not in found:
            raise InputError(f"{what} has no {name!r}; it must have {listed}.")
    known = frozenset(names)  # a row may have thousands
    for name in found:
        if name not in known:
            raise InputError(f"{what} has {name[:100]!r}, which is none of {listed}.")


def _column(name: str, data: Any, dtype: np.dtype | str) -> np.ndarray:
    """A column [rows, 1] of a list with a value, or a list of one, for each row."""
    array = from_lists(name, data, dtype)
    if array.ndim != 1 and array.shape[1:] != (1,):
        raise InputError(f"{name!r}: a column is a list with one value for each row; this has {list(array.shape)}.")
    return array.reshape(-1, 1)


def check_shared_dims(feeds: Mapping[str, np.ndarray], shared: Mapping[str, Sequence[tuple[str, int]]]) -> None:
    """Hold dims of one name against each other.

    Args:
        feeds: inputs of the ranks that the model takes.
        shared: name of a dim -> the inputs and axes that have it.

    Raises:
        InputError: one name has two sizes.
    """
    for dim, places in shared.items():
        sizes = {name: feeds[name].shape[axis] for name, axis in places}
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{size} in {name!r}" for name, size in sizes.items())
            raise InputError(f"the inputs must agree in {dim!r}, which is {told}.")


def decode_response(body: bytes, header_length: int | None) -> dict[str, np.ndarray]:
    """Read the body of an infer response, sizes held against the bytes that are there.

    Raises:
        InputError: malformed, or sizes that do not fit together.
    """
    header, raw = _split(body, header_length)
    entries = header.get("outputs")
    if not isinstance(entries, list):
        raise InputError("the response has no list 'outputs'.")
    return _decode_tensors(entries, raw, "outputs", aligned=True)


def encode_request(feeds: Mapping[str, np.ndarray], *, binary: bool = True) -> tuple[list[bytes | memoryview], int]:
    """An infer request as parts to send one after the other, and the length of the JSON part in bytes."""
    return _encode({"parameters": {"binary_data_output": binary}}, "inputs", feeds.items(), lambda _: binary)


def encode_response(
    head: Mapping[str, Any],
    outputs: Iterable[tuple[str, np.ndarray]],
    request: InferRequest,
    labels: Mapping[str, Sequence[str]],
) -> tuple[list[bytes | memoryview], int]:
    """An infer response as parts to send one after the other, and the length of the JSON part; 0 when that is all.

    Args:
        head: what stands beside the outputs.
        outputs: all of the model's.
        request: which of them are wanted, and how.
        labels: name of an output -> the names of its classes, where they are known.

    Raises:
        UnsupportedError: an output the protocol has no type for, or NaN and infinities in an output asked for as JSON.
        InputError: the largest values of texts are asked for.
    """
    found = dict(outputs)
    for name, count in request.classes.items():
        found[name] = _top_classes(name, found[name], count, labels.get(name, ()))
    items = {name: found[name] for name in request.outputs or found}  # in the order of the request
    parts, length = _encode(head, "outputs", items.items(), lambda name: request.outputs.get(name, request.binary))
    return parts, length if len(parts) > 1 else 0


def _top_classes(name: str, array: np.ndarray, count: int, labels: Sequence[str]) -> np.ndarray:
    """The largest values of each row, the first of equal ones first, as texts "value:index" or "value:index:label".

    Source: Triton's extension_classification.md.
    """
    if array.dtype.kind not in "fViu" or not array.size:
        raise InputError(f"output {name!r} is {array.dtype}{list(array.shape)}, which has no largest values.")
    whole = array.dtype.kind in "iu"
    rows = (array if whole else array.astype(np.float64)).reshape(*(array.shape[:1] if array.ndim > 1 else (1,)), -1)
    places = np.argsort(np.invert(rows) if whole else -rows, axis=1, kind="stable")[:, :count]
    names = [f":{label}" for label in labels] if len(labels) == rows.shape[1] else [""] * rows.shape[1]
    form = "d" if whole else "f"
    texts = [f"{row[i]:{form}}:{i}{names[i]}" for row, best in zip(rows, places.tolist(), strict=True) for i in best]
    return np.array(texts, object).reshape(places.shape if array.ndim > 1 else places.shape[1:])


def to_lists(name: str, array: np.ndarray) -> Any:
    """An array as nested lists for JSON.

    Raises:
        UnsupportedError: it holds NaN or infinities, which JSON has no number for.
    """
    if array.dtype.kind in "fV" and array.size:
        array = array.astype(np.float64) if array.dtype.itemsize < 4 or array.dtype.kind == "V" else array
        if not np.isfinite(array).all():
            raise UnsupportedError(
                f"output {name!r} holds NaN or infinities, which JSON has no number for; ask for binary tensors."
            )
    if array.dtype.kind in "OUS":
        return array.astype(object).tolist()
    return array.tolist()


def from_lists(name: str, data: Any, dtype: np.dtype | str) -> np.ndarray:
    """An array of JSON numbers, booleans or texts, in the shape that the lists have.

    Raises:
        InputError: ragged lists, or values that the element type does not have: nothing is rounded or cut.
    """
    if isinstance(dtype, str):
        texts = np.array(data, object)  # numpy's own texts would all be as long as the longest
        if not all(isinstance(v, str) for v in texts.reshape(-1)):
            raise InputError(f"{name!r}: the values must be texts, in lists of one length.")
        return texts
    misfit = InputError(f"{name!r}: the values do not fit {dtype.name}.")
    try:
        kinds = _kinds(data)
        if str in kinds:
            raise misfit
        array = np.array(data)
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{name!r}: lists of different lengths, or values of different kinds.") from error
    if array.size == 0:
        return array.astype(dtype)
    if dtype.kind == "b" and array.dtype.kind == "b":
        return array
    if bool in kinds and dtype.kind != "b":  # true beside 2 is a 1 to numpy
        raise InputError(f"{name!r}: true and false are not values of {dtype.name}.")
    if dtype.kind in "fV" and array.dtype.kind in "fiu":
        with np.errstate(over="ignore"):
            cast = array.astype(dtype)
        if np.isinf(cast).any() and not np.isinf(array.astype(np.float64)).any():
            raise InputError(f"{name!r}: a value is too large for {dtype.name}.")
        return cast
    if dtype.kind in "iu" and array.dtype.kind in "iufO":
        return _integers(name, array, data, dtype)
    raise misfit


def _kinds(data: Any) -> set[type]:
    """The types of the values in lists, in lists or not."""
    if not isinstance(data, (list, tuple)):
        return {type(data)}
    kinds = set(map(type, data))
    if kinds & {list, tuple}:
        kinds = set()
        for part in data:
            kinds |= _kinds(part)
    return kinds


def _integers(name: str, array: np.ndarray, data: Any, dtype: np.dtype) -> np.ndarray:
    if array.dtype.kind in "fO":  # large integers beside small ones are floats to numpy: look at each
        array = np.array(data, dtype=object)
        if not all(type(v) is int for v in array.reshape(-1)):
            raise InputError(f"{name!r}: the values must be whole numbers of {dtype.name}.")
    limits = np.iinfo(dtype)
    if int(array.min()) < limits.min or int(array.max()) > limits.max:
        raise InputError(f"{name!r}: a value is out of the range of {dtype.name}.")
    return array.astype(dtype)


def _split(body: bytes, header_length: int | None) -> tuple[dict[str, Any], memoryview]:
    view = memoryview(body)
    if header_length is None:
        return load_json(view), view[len(view) :]
    if not 0 < header_length <= len(view):
        raise InputError(f"{HEADER_LENGTH} is {header_length}, but the body has {len(view)} bytes.")
    return load_json(view[:header_length]), view[header_length:]


def _only(entry: Mapping[str, Any], what: str, *known: str) -> Mapping[str, Any]:
    """A part of a request, which has nothing that would go unread."""
    for name in entry:
        if name not in (*known, "parameters"):
            raise InputError(f"{what} has {name[:100]!r}; there are {', '.join(known)} and parameters.")
    return entry


def _parameters(entry: Mapping[str, Any], *known: str) -> Mapping[str, Any]:
    """Parameters of a request or a part of it: known ones, and those that ask for nothing."""
    found = {} if entry.get("parameters") is None else entry["parameters"]
    if not isinstance(found, dict):
        raise InputError("'parameters' must be an object.")
    for name, value in found.items():
        if name not in known and value not in (None, 0, "") and (name, value) not in _CODECS:
            raise InputError(f"the parameter {name[:100]!r} is not supported; here are {', '.join(known)}.")
    return found


def _count(parameters: Mapping[str, Any], name: str, least: int = 0) -> int:
    """A number of something; 0 where it does not stand there."""
    found = parameters.get(name)
    if found is not None and (type(found) is not int or not least <= found < 1 << 63):
        raise InputError(f"{name!r} must be a whole number, {least} or more.")
    return found or 0


def _is_binary(parameters: Mapping[str, Any], name: str, usual: bool) -> bool:
    found = parameters.get(name, usual)
    if type(found) is not bool:
        raise InputError(f"{name!r} must be true or false.")
    return found


def _decode_tensors(entries: Sequence[Any], raw: memoryview, where: str, aligned: bool) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    used = 0
    for entry in entries:
        name, dtype, shape = _declared(entry, where)
        if name in found:
            raise InputError(f"{name!r} stands twice in {where!r}.")
        size = (entry.get("parameters") or {}).get("binary_data_size")
        if size is None:
            found[name] = _from_json(name, entry.get("data"), dtype, shape)
            continue
        if entry.get("data") is not None:
            raise InputError(f"{name!r} has both 'data' and a binary_data_size.")
        if type(size) is not int or not 0 <= size <= len(raw) - used:
            raise InputError(f"{name!r}: binary_data_size is {str(size)[:40]}, {len(raw) - used} bytes are left.")
        array = _from_bytes(name, raw[used : used + size], dtype, shape)
        found[name] = np.require(array, requirements="A") if aligned else array
        used += size
    if used != len(raw):
        raise InputError(f"{len(raw) - used} bytes after the tensors belong to none of them.")
    return found


def _declared(entry: Any, where: str) -> tuple[str, np.dtype | str, tuple[int, ...]]:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise InputError(f"every entry of {where!r} must be an object with a 'name'.")
    name, kind, shape = entry["name"], entry.get("datatype"), entry.get("shape")
    if kind != BYTES and (not isinstance(kind, str) or kind not in _DTYPES):
        raise InputError(f"{name!r}: {str(kind)[:40]!r} is not a datatype; known are {', '.join([*_DTYPES, BYTES])}.")
    if not isinstance(shape, list) or len(shape) > _MAX_RANK or not all(type(d) is int and d >= 0 for d in shape):
        raise InputError(f"{name!r}: 'shape' must be a list of whole numbers, 0 or more.")
    if math.prod(max(d, 1) for d in shape) >= _MAX_ELEMENTS:  # an array of no elements, too, has to have its dims
        raise InputError(f"{name!r}: shape {list(shape)[:16]} is too large.")
    return name, element_type(kind), tuple(shape)


def _from_json(name: str, data: Any, dtype: np.dtype | str, shape: tuple[int, ...]) -> np.ndarray:
    if not isinstance(data, list):
        raise InputError(f"{name!r} has neither 'data', a list, nor a binary_data_size.")
    array = from_lists(name, data, dtype)
    if array.size != math.prod(shape) or (array.ndim > 1 and array.shape != shape):
        raise InputError(f"{name!r}: the shape is {list(shape)}, the data has {list(array.shape)}.")
    return array.reshape(shape)


def _from_bytes(name: str, data: memoryview, dtype: np.dtype | str, shape: tuple[int, ...]) -> np.ndarray:
    count = math.prod(shape)
    if isinstance(dtype, str):
        return _texts(name, data, count).reshape(shape)
    if count * dtype.itemsize != len(data):
        raise InputError(
            f"{name!r}: shape {list(shape)[:16]} of {dtype.name} is {count * dtype.itemsize} bytes, "
            f"binary_data_size is {len(data)}."
        )
    if dtype.kind == "b" and len(data) and int(np.frombuffer(data, np.uint8).max()) > 1:
        raise InputError(f"{name!r}: a BOOL must be a byte 0 or 1.")
    return np.frombuffer(data, dtype).reshape(shape)


def _texts(name: str, data: memoryview, count: int) -> np.ndarray:
    if count > len(data) // _LENGTH.size:  # before memory is taken for them
        raise InputError(f"{name!r}: {len(data)} bytes cannot hold {count} texts.")
    found: list[str] = []
    at, size = 0, len(data)
    for index in range(count):
        if at + _LENGTH.size > size:
            raise InputError(f"{name!r}: the bytes end before text {index}.")
        length = _LENGTH.unpack_from(data, at)[0]
        at += _LENGTH.size
        if length > size - at:
            raise InputError(f"{name!r}: text {index} has length {length}, {size - at} bytes are left.")
        try:
            found.append(str(data[at : at + length], "utf-8") if length else "")
        except UnicodeDecodeError as error:
            raise InputError(f"{name!r}: text {index} is not UTF-8.") from error
        at += length
    if at != size:
        raise InputError(f"{name!r}: {size - at} bytes are left after its texts.")
    return np.array(found, object)


def _encode(
    head: Mapping[str, Any], key: str, tensors: Iterable[tuple[str, np.ndarray]], is_binary: Any
) -> tuple[list[bytes | memoryview], int]:
    entries: list[dict[str, Any]] = []
    parts: list[bytes | memoryview] = []
    for name, array in tensors:
        if not isinstance(array, np.ndarray):
            raise UnsupportedError(f"{name!r} is not a tensor; the V2 protocol has tensors only.")
        text = array.dtype.kind in "OUS"
        entry: dict[str, Any] = {
            "name": name,
            "datatype": BYTES if text else datatype(array.dtype),
            "shape": list(array.shape),
        }
        if is_binary(name):
            raw = _packed(array) if text else _raw(array)
            entry["parameters"] = {"binary_data_size": len(raw)}
            parts.append(raw)
        else:
            entry["data"] = to_lists(name, array.reshape(-1))
        entries.append(entry)
    text_head = dumps({**head, key: entries})
    return [text_head, *parts], len(text_head)


def _raw(array: np.ndarray) -> memoryview:
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data if flat.size else memoryview(b"")


def _packed(array: np.ndarray) -> bytes:
    parts = []
    for value in array.reshape(-1):
        text = value if isinstance(value, bytes) else str(value).encode()
        parts += [_LENGTH.pack(len(text)), text]
    return b"".join(parts)
