"""The bytes of weights, read from their file rather than mapped.

A mapped page counts as memory of the process, and where the kernel keeps files in huge pages, a look at one byte of
a weight maps 2 MB of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from onnxtool.errors import InputError

if TYPE_CHECKING:
    import onnx_ir as ir

_CHUNK = 1 << 22


def pieces(tensor: ir.TensorProtocol) -> Iterator[bytes]:
    """The values as they stand in `raw_data`; external ones a few MB at a time.

    Raises:
        InputError: the file of external weights is shorter than the model says.
    """
    import onnx_ir as ir

    if not isinstance(tensor, ir.ExternalTensor):
        yield tensor.tobytes()
        return
    with open(tensor.path, "rb") as file:
        for start in range(0, tensor.nbytes, _CHUNK):
            yield _read(file, tensor, start, min(_CHUNK, tensor.nbytes - start))


def ends(tensor: ir.TensorProtocol, count: int) -> tuple[bytes, bytes]:
    """The first and the last `count` bytes of the values; all of them twice where there are fewer.

    Raises:
        InputError: the file of external weights is shorter than the model says.
    """
    import onnx_ir as ir

    count = min(count, tensor.nbytes)
    if not isinstance(tensor, ir.ExternalTensor):
        data = _viewed(tensor)
        return bytes(data[:count]), bytes(data[len(data) - count :])
    with open(tensor.path, "rb") as file:
        return _read(file, tensor, 0, count), _read(file, tensor, tensor.nbytes - count, count)


def _viewed(tensor: ir.TensorProtocol) -> memoryview | bytes:
    array = tensor.numpy().reshape(-1)
    # Numbers of less than a byte are apart in an array and packed in the file.
    return array.view("uint8").data if array.nbytes == tensor.nbytes else tensor.tobytes()


def _read(file: BinaryIO, tensor: ir.ExternalTensor, start: int, count: int) -> bytes:
    file.seek((tensor.offset or 0) + start)
    found = file.read(count)
    if len(found) < count:
        raise InputError(f"{tensor.path}: shorter than the model says; it has been cut off.")
    return found
