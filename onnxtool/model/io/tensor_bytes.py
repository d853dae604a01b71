"""The bytes of weights, read from their file rather than mapped, or sent from one file to another.

A mapped page counts as memory of the process, and where the kernel keeps files in huge pages, a look at one byte of
a weight maps 2 MB of it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import cache
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from onnxtool.errors import InputError

if TYPE_CHECKING:
    import onnx_ir as ir

_WORTHWHILE = 1 << 20  # bytes
_SENT_AT_ONCE = 1 << 26  # bytes; between two, Ctrl-C is heard
_CANNOT = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV)


def sendable(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A tensor in external data that writes itself by `sendfile`, where there is such a thing; others as they are."""
    # onnx_ir copies by copy_file_range, with which the kernel took 5.1 s for 2.3 GB; with sendfile 1.6 s.
    import onnx_ir as ir

    if not isinstance(tensor, ir.ExternalTensor) or tensor.nbytes < _WORTHWHILE or not hasattr(os, "sendfile"):
        return tensor
    return _sent_type()(
        tensor.location,
        tensor.offset,
        tensor.length,
        tensor.dtype,
        shape=tensor.shape,
        name=tensor.name or "",
        base_dir=tensor.base_dir,
    )


@cache
def _sent_type() -> type[ir.ExternalTensor]:
    import onnx_ir as ir

    class Sent(ir.ExternalTensor):
        def tofile(self, file: Any) -> None:
            self._check_validity()
            self._check_path_containment()
            begin = file.tell()
            if not _send(self.path, self.offset or 0, self.length or self.nbytes, file):
                file.seek(begin)
                super().tofile(file)

    return Sent


def _send(path: str, offset: int, length: int, file: IO[bytes]) -> bool:
    """Append a part of a file to another; False when the system or the files cannot do it, or the part ends early."""
    file.flush()
    begin = file.tell()
    with open(path, "rb") as source:
        sent = 0
        while sent < length:
            try:
                count = os.sendfile(file.fileno(), source.fileno(), offset + sent, min(_SENT_AT_ONCE, length - sent))
            except OSError as error:
                if error.errno in _CANNOT:
                    return False
                raise
            if count == 0:
                return False
            sent += count
    file.seek(begin + length)
    return True


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
