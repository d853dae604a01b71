"""Arrays between two processes: messages through a socket, large arrays through memory that both of them see."""

from __future__ import annotations

import fcntl
import io
import mmap
import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

# How a parent names the run that is to end; the first message, which loads the model, is number 1.
RUN_NUMBER = struct.Struct("<Q")
_LENGTH = struct.Struct("<Q")
# Buffers that are together smaller go through the socket.
_SMALL = 16 << 10
_ALIGNMENT = 64
# A region keeps so much memory between two messages.
_KEPT = 64 << 20


class Region:
    """Memory that two processes share, as a file without a name: nothing of it stays when both have gone."""

    def __init__(self, descriptor: int | None = None) -> None:
        """Make a region, or open that of another process by its descriptor, which is then owned."""
        self.descriptor = _anonymous_file() if descriptor is None else descriptor
        self._view: mmap.mmap | None = None

    def write(self, buffers: Sequence[memoryview]) -> list[tuple[int, int]]:
        """Put buffers in; gives the place and the size of each, in bytes."""
        places, end = [], 0
        for buffer in buffers:
            places.append((end, buffer.nbytes))
            end += -(-buffer.nbytes // _ALIGNMENT) * _ALIGNMENT
        if os.fstat(self.descriptor).st_size < end:
            os.ftruncate(self.descriptor, end)
        for buffer, place in zip(buffers, places, strict=True):
            self.part(*place)[:] = buffer
        return places

    def part(self, place: int, size: int) -> memoryview:
        """Bytes of the region.

        Raises:
            ValueError: it ends before them.
        """
        if self._view is None or len(self._view) < place + size:
            self._view = mmap.mmap(self.descriptor, 0)  # parts of the old view, which is smaller, keep it alive
        if place + size > len(self._view):
            raise ValueError("the shared memory ends before its message.")
        return memoryview(self._view)[place : place + size]

    def forget(self) -> None:
        """Give memory back to the system that a large message took; its bytes are lost."""
        if self._view is not None and len(self._view) > _KEPT and hasattr(mmap, "MADV_REMOVE"):
            self._view.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        """Close the descriptor."""
        self._view = None
        os.close(self.descriptor)


def _anonymous_file() -> int:
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
    descriptor = os.memfd_create("onnxtool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with suppress(OSError):  # cut short by one process it would end the other
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return descriptor


class Channel:
    """One end: sends and receives objects that hold arrays. The two sides take turns, except for texts."""

    def __init__(self, socket: socket.socket, sending: Region, receiving: Region) -> None:
        self.socket, self._sending, self._receiving = socket, sending, receiving

    def send(self, value: object) -> None:
        """Send an object. Arrays of the last message sent must be of no more use to the other side.

        Raises:
            OSError: the other side has gone, or takes longer than the socket's timeout.
        """
        buffers: list[memoryview] = []
        head = pickle.dumps(value, 5, buffer_callback=lambda buffer: buffers.append(buffer.raw()))
        small = sum(buffer.nbytes for buffer in buffers) < _SMALL
        places = [bytes(buffer) for buffer in buffers] if small else self._sending.write(buffers)
        message = pickle.dumps((head, places), 5)
        self.socket.sendall(_LENGTH.pack(len(message)) + message)

    def receive(self) -> Any:
        """The next object, whose arrays hold until the next message; from a process that is trusted.

        Raises:
            EOFError, OSError: the other side has gone, or takes longer than the socket's timeout.
        """
        head, buffers = pickle.loads(self._message())
        return pickle.loads(head, buffers=[b if isinstance(b, bytes) else self._receiving.part(*b) for b in buffers])

    def receive_arrays(self) -> Any:
        """The next object, with arrays of its own; made of arrays, numbers, texts, lists and dicts alone, since native
        code may have harmed the process that sends it.

        Raises:
            EOFError, OSError: the other side has gone, or takes longer than the socket's timeout.
            ValueError, pickle.UnpicklingError: it sends something else.
        """
        head, buffers = _loads(self._message(), [])
        copies = [b if isinstance(b, bytes) else bytearray(self._receiving.part(*b)) for b in buffers]
        value = _loads(head, copies)
        self._receiving.forget()
        self._sending.forget()
        return value

    def _message(self) -> bytearray:
        return self._exactly(_LENGTH.unpack(self._exactly(_LENGTH.size))[0])

    def _exactly(self, size: int) -> bytearray:
        found = bytearray(size)
        rest = memoryview(found)
        while rest:
            taken = self.socket.recv_into(rest)
            if not taken:
                raise EOFError
            rest = rest[taken:]
        return found

    def close(self) -> None:
        """Close this end."""
        self.socket.close()
        self._sending.close()
        self._receiving.close()


_CALLABLE = {
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("onnxtool.model.spec", "TensorSpec"),
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module.replace("numpy.core.", "numpy._core."), name) in _CALLABLE or module == "ml_dtypes":
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no array")


def _loads(data: bytes | bytearray, buffers: Sequence[bytes | bytearray]) -> Any:
    return _ArrayUnpickler(io.BytesIO(data), buffers=buffers).load()
