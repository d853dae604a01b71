"""Fourier transforms of TensorFlow and its operators on complex numbers, which are float[..., 2] in ONNX.

tf2onnx has the magnitudes of transforms alone. Here a transform is a product with cosines and sines, in float64.
Complex numbers come from a transform, from tf.complex or from a cast of real ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from onnxtool.conversion.fourier_tables import waves
from onnxtool.conversion.patches import LibraryPatch
from onnxtool.conversion.small_numbers import atan2
from onnxtool.conversion.tensorflow.patches.op_handlers import DOUBLE, FLOAT, Handler, OperatorWriter, handled, written

_REAL_TYPES = {14: FLOAT, 15: DOUBLE}  # of complex ones, as onnx.TensorProto counts them
_COMPLEX = "_complex"  # behind the types of operators that are others for complex numbers
_ALIKE = (
    "Add", "AddV2", "BroadcastTo", "ConcatV2", "ExpandDims", "GatherV2", "Mean", "Neg", "Pack", "Pad", "Reshape",
    "Slice", "Squeeze", "StridedSlice", "Sub", "Sum", "Tile", "Transpose",
)  # fmt: skip
_PAIR = "onnxtool_complex"  # in front of the names of nodes that give complex numbers


def _real_to_half(w: OperatorWriter, dims: int) -> None:
    """RFFT: [..., n] to [..., n // 2 + 1, 2]; the other half mirrors it."""
    *others, last = _lengths(w)
    value, rank = w.inputs[0], _rank(w)
    w.dtype = _REAL_TYPES[w.dtype]
    kept = last // 2 + 1
    parts = _product(w, [_fitted(w, value, -1, last)], [waves(last, kept, last, -1)], rank, -1)
    for axis, size in zip(range(-dims, -1), others, strict=True):
        parts = _product(w, [_fitted(w, p, axis, size) for p in parts], _both(waves(size, size, size, -1)), rank, axis)
    _give(w, parts)


def _half_to_real(w: OperatorWriter, dims: int) -> None:
    """IRFFT: [..., n // 2 + 1, 2] to [..., n]."""
    *others, last = _lengths(w)
    parts, rank = _parts(w, w.inputs[0]), _rank(w)
    for axis, size in zip(range(-dims, -1), others, strict=True):
        back = waves(size, size, size) / size
        parts = _product(w, [_fitted(w, p, axis, size) for p in parts], _both(back), rank, axis)
    kept = last // 2 + 1
    cosines, sines = waves(kept, last, last) / last
    twice = np.full((kept, 1), 2.0)
    twice[[0, -1] if last % 2 == 0 else [0]] = 1.0  # what has no mirror image
    fitted = [_fitted(w, p, -1, kept) for p in parts]
    products = [_times(w, part, table * twice) for part, table in zip(fitted, (cosines, -sines), strict=True)]
    w.give("Cast", w.add("Add", *products), to=w.dtype)


def _complex_to_complex(w: OperatorWriter, dims: int, sign: int) -> None:
    """FFT and IFFT: [..., n, 2] to the same shape."""
    shape = w.shape
    parts, rank = _parts(w, w.inputs[0]), _rank(w)
    w.dtype = _REAL_TYPES[w.dtype]
    for axis in range(-dims, 0):
        size = shape[axis] if shape else -1
        if size < 0:
            raise NotImplementedError(f"{w.node.type} along a dim that is free")
        both = _both(waves(size, size, size, sign) / (size if sign > 0 else 1))
        parts = _product(w, parts, both, rank, axis)
    _give(w, parts)


def _complex(w: OperatorWriter) -> None:
    w.dtype = _REAL_TYPES[w.dtype]
    _give(w, w.inputs)


def _part(which: int, w: OperatorWriter) -> None:
    w.give("Identity", _parts(w, w.inputs[0])[which])


def _magnitude(w: OperatorWriter) -> None:
    w.give("Sqrt", w.add("Add", *(w.add("Mul", part, part) for part in _parts(w, w.inputs[0]))))


def _angle(w: OperatorWriter) -> None:
    w.inputs = _parts(w, w.inputs[0])[::-1]
    written(atan2)(w)


def _conjugate(w: OperatorWriter) -> None:
    w.dtype = _REAL_TYPES[w.dtype]
    real, imaginary = _parts(w, w.inputs[0])
    _give(w, [real, w.add("Neg", imaginary)])


def _product_of_complex(w: OperatorWriter) -> None:
    w.dtype = _REAL_TYPES[w.dtype]
    (a, b), (c, d) = (_parts(w, value) for value in w.inputs)
    ac, bd, ad, bc = (w.add("Mul", x, y) for x, y in ((a, c), (b, d), (a, d), (b, c)))
    _give(w, [w.add("Sub", ac, bd), w.add("Add", ad, bc)])


def _alike(w: OperatorWriter) -> None:
    """An operator that does the same with the real and with the imaginary numbers: tf2onnx writes it for each."""
    from tf2onnx.handler import tf_op

    kind, shape = w.node.type.removesuffix(_COMPLEX), w.shape
    w.dtype = _REAL_TYPES[w.dtype]
    split = [_parts(w, value) if _is_complex(w, value) else [value, value] for value in w.inputs]
    write, further = tf_op.find_effective_op(kind)
    found = []
    for inputs in zip(*split, strict=True):
        node = w.graph.make_node(kind, list(inputs), attr=w.node.attr, shapes=[shape], dtypes=[w.dtype])
        result = w.graph.make_node("Identity", node.output, shapes=[shape], dtypes=[w.dtype])
        if "onnx_op" in further:
            node.type = further["onnx_op"]
        write(w.graph, node, **{**further, **w.rest, "tf_op": kind})
        found.append(result.output[0])
    _give(w, found)


def _lengths(w: OperatorWriter) -> list[int]:
    held = w.graph.get_node_by_output(w.inputs[1])
    if held is None or not held.is_const():
        raise NotImplementedError(f"{w.node.type} of a length that is computed")
    return [int(n) for n in held.get_tensor_value(as_list=False)]


def _rank(w: OperatorWriter) -> int:
    """How many dims it has in TensorFlow."""
    rank = w.graph.get_rank(w.node.output[0])
    if rank is None:
        raise NotImplementedError(f"{w.node.type} of unknown rank")
    return int(rank)


def _maker(w: OperatorWriter, value: str) -> Any:
    maker = w.graph.get_node_by_output(value)
    while maker is not None and maker.type == "Identity":
        maker = w.graph.get_node_by_output(maker.input[0])
    return maker


def _is_complex(w: OperatorWriter, value: str) -> bool:
    maker = _maker(w, value)
    return w.graph.get_dtype(value) in _REAL_TYPES or (maker is not None and maker.name.startswith(_PAIR))


def _parts(w: OperatorWriter, value: str) -> list[str]:
    """The real and the imaginary numbers of a complex value."""
    maker = _maker(w, value)
    if maker is not None and maker.is_const():
        number = maker.get_tensor_value(as_list=False)
        kind = np.float64 if number.dtype == np.complex128 else np.float32
        return [w.constant(number.real, kind), w.constant(number.imag, kind)]
    if maker is not None and maker.type == "Cast":  # of real numbers
        real = maker.input[0]
        return [real, w.add("Sub", real, real)]
    if maker is None or not maker.name.startswith(_PAIR):
        raise NotImplementedError(f"{w.node.type} of complex numbers that {maker.type if maker else 'an input'} gives")
    return [w.add("Gather", value, w.constant(k, np.int64), axis=-1) for k in (0, 1)]


def _give(w: OperatorWriter, parts: Sequence[str]) -> None:
    """Complex numbers in the operator's place; operators on real ones that take them become those on complex ones.

    Raises:
        NotImplementedError: another operator takes them, which would see one dim more.
    """
    readers = w.graph.find_output_consumers(w.node.output[0])
    for reader in readers:
        if reader.type + _COMPLEX in FORMS:
            reader.type += _COMPLEX
    others = {reader.type for reader in readers} - {*FORMS, "Identity"}
    if others or w.node.output[0] in w.graph.outputs:
        raise NotImplementedError(f"complex numbers in {', '.join(sorted(others)) or 'an output'}")
    last = w.constant([-1], np.int64)
    pair = [w.add("Unsqueeze", part, last) for part in parts]
    w.shape = None if w.shape is None else [*w.shape, 2]
    w.give("Concat", *pair, name=f"{_PAIR}_{w.node.name}", axis=-1)


def _both(table: np.ndarray) -> list[np.ndarray]:
    """What the real and what the imaginary numbers are multiplied with."""
    return [table, np.stack([-table[1], table[0]])]


def _times(w: OperatorWriter, rows: str, table: np.ndarray) -> str:
    """In float64: a sum of n terms loses more digits than TensorFlow's fast transform."""
    return w.add("MatMul", w.cast(rows, DOUBLE), w.constant(table, np.float64))


def _product(w: OperatorWriter, parts: Sequence[str], tables: Sequence[np.ndarray], rank: int, axis: int) -> list[str]:
    """Parts times tables [2, n, m] along an axis, added: the real and the imaginary numbers."""
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]

    def turned(value: str) -> str:
        return value if axis == -1 else w.add("Transpose", value, perm=order)

    found = []
    for which in (0, 1):
        products = [_times(w, turned(part), table[which]) for part, table in zip(parts, tables, strict=True)]
        total = products[0] if len(products) == 1 else w.add("Add", *products)
        found.append(turned(w.cast(total, w.dtype)))
    return found


def _fitted(w: OperatorWriter, value: str, axis: int, size: int) -> str:
    """Cut off, or filled with zeros, to a size along an axis."""
    int64 = partial(w.constant, dtype=np.int64)
    rank = _rank(w)
    pads = np.zeros((2, rank), np.int64)
    pads[1, axis] = size
    wide = w.add("Pad", value, int64(pads.reshape(-1)))
    return w.add("Slice", wide, int64([0]), int64([size]), int64([axis]))


FORMS: dict[str, Handler] = {
    "RFFT": partial(_real_to_half, dims=1),
    "RFFT2D": partial(_real_to_half, dims=2),
    "IRFFT": partial(_half_to_real, dims=1),
    "IRFFT2D": partial(_half_to_real, dims=2),
    "FFT": partial(_complex_to_complex, dims=1, sign=-1),
    "FFT2D": partial(_complex_to_complex, dims=2, sign=-1),
    "IFFT": partial(_complex_to_complex, dims=1, sign=1),
    "IFFT2D": partial(_complex_to_complex, dims=2, sign=1),
    "Complex": _complex,
    "Real": partial(_part, 0),
    "Imag": partial(_part, 1),
    "ComplexAbs": _magnitude,
    "Angle": _angle,
    "Conj": _conjugate,
    "Mul" + _COMPLEX: _product_of_complex,
    **{name + _COMPLEX: _alike for name in _ALIKE},
}


@contextmanager
def _written() -> Iterator[None]:
    with ExitStack() as stack:
        for name, write in FORMS.items():
            stack.enter_context(handled(name, 13, write, only_missing=False))
        yield


PATCH = LibraryPatch("tf2onnx", "1.18", "tf2onnx 1.17 knows no complex numbers but in magnitudes", _written)
