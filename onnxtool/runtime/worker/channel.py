"""Arrays between two processes: messages through a socket, large arrays through memory that both of them see."""

from __future__ import annotations

import fcntl
import io
import math
import mmap
import os
import pickle
import socket
import struct
import tempfile
from contextlib import suppress
from typing import IO, Any

import numpy as np

# How a parent names the run that is to end; the first message, which loads the model, is number 1.
RUN_NUMBER = struct.Struct("<Q")
_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 64
# A region keeps so much memory between two messages.
_KEPT = 64 << 20
_PIECE = 64 << 10  # of a message that is read at a time


class Region:
    """Memory that two processes share, as a file without a name: nothing of it stays when both have gone.

    Only one of them writes.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        """Make a region, or open that of another process by its descriptor, which is then owned."""
        self.descriptor = _anonymous_file() if descriptor is None else descriptor
        self.used = 0  # by the message that is written
        self._view: mmap.mmap | None = None
        self._bytes = np.empty(0, np.uint8)  # of the view

    def put(self, array: np.ndarray) -> int:
        """Put numbers in, behind those of the same message; gives their place in bytes."""
        place = self.used
        self.used += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        if self._bytes.size < self.used and os.fstat(self.descriptor).st_size < self.used:
            os.ftruncate(self.descriptor, self.used)
        self.part(place, array.nbytes).view(array.dtype).reshape(array.shape)[...] = array
        return place

    def part(self, place: int, size: int) -> np.ndarray:
        """Bytes of the region.

        Raises:
            ValueError: it ends before them.
        """
        if self._bytes.size < place + size:
            self._view = mmap.mmap(self.descriptor, 0)  # parts of the old view, which is smaller, keep it alive
            self._bytes = np.frombuffer(self._view, np.uint8)
        if not 0 <= place <= place + size <= self._bytes.size:
            raise ValueError("the shared memory ends before its message.")
        return self._bytes[place : place + size]

    def forget(self) -> None:
        """Give memory back to the system that a large message took; its bytes are lost."""
        if self._view is not None and len(self._view) > _KEPT and hasattr(mmap, "MADV_REMOVE"):
            self._view.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        """Close the descriptor."""
        self._view, self._bytes = None, np.empty(0, np.uint8)
        os.close(self.descriptor)


def _anonymous_file() -> int:
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
            os.ftruncate(descriptor, mmap.PAGESIZE)
            return descriptor
    descriptor = os.memfd_create("onnxtool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, mmap.PAGESIZE)  # an empty file cannot be mapped
    with suppress(OSError):  # cut short by one process it would end the other
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return descriptor


class Channel:
    """One end: sends and receives objects that hold arrays. The two sides take turns, except for texts."""

    def __init__(self, socket: socket.socket, sending: Region, receiving: Region) -> None:
        self.socket, self._sending, self._receiving = socket, sending, receiving
        self._come = bytearray()  # and not read yet

    def send(self, value: object) -> None:
        """Send an object. Arrays of the last message sent must be of no more use to the other side.

        Raises:
            OSError: the other side has gone, or takes longer than the socket's timeout.
        """
        file = io.BytesIO(bytes(_LENGTH.size))
        file.seek(_LENGTH.size)
        self._sending.used = 0
        _Pickler(file, self._sending).dump(value)
        message = file.getbuffer()
        _LENGTH.pack_into(message, 0, len(message))
        self.socket.sendall(message)

    def receive(self) -> Any:
        """The next object, whose arrays hold until the next message; from a process that is trusted.

        Raises:
            EOFError, OSError: the other side has gone, or takes longer than the socket's timeout.
        """
        return _Unpickler(self._message(), self._receiving, trusted=True).load()

    def receive_arrays(self) -> Any:
        """The next object, with arrays of its own; made of arrays, numbers, texts, lists and dicts alone, since native
        code may have harmed the process that sends it.

        Raises:
            EOFError, OSError: the other side has gone, or takes longer than the socket's timeout.
            ValueError: it sends something else.
            MemoryError: there is no room for them here.
        """
        message = self._message()
        try:
            value = _Unpickler(message, self._receiving, trusted=False).load()
        except MemoryError:
            raise
        except Exception as error:
            raise ValueError(f"not a message: {type(error).__name__}: {error}") from error
        self._receiving.forget()
        self._sending.forget()
        return value

    def _message(self) -> bytes:
        self._receive(_LENGTH.size)
        size = _LENGTH.unpack_from(self._come)[0]
        self._receive(size)
        found = bytes(memoryview(self._come)[_LENGTH.size : size])
        del self._come[:size]
        return found

    def _receive(self, size: int) -> None:
        """Have so many bytes, or more, where those of the next message have come too."""
        while len(self._come) < size:
            piece = self.socket.recv(_PIECE)
            if not piece:
                raise EOFError
            self._come += piece


class _Pickler(pickle.Pickler):
    """Writes numbers of arrays into a region, once, and the rest into a file."""

    def __init__(self, file: IO[bytes], region: Region) -> None:
        super().__init__(file, 5)
        self._region = region

    def persistent_id(self, value: object) -> tuple[tuple[int, ...], str, Any] | None:
        if not isinstance(value, np.ndarray):
            return None
        if value.dtype.hasobject:
            return value.shape, "", value.reshape(-1).tolist()
        kind = value.dtype.name if value.dtype.kind == "V" else value.dtype.str
        return value.shape, kind, self._region.put(value)


# Of what is no array, what a process that native code may have harmed may have made anew here.
_CALLABLE = {
    ("numpy._core.multiarray", "scalar"),
    ("numpy", "dtype"),
    ("onnxtool.model.spec", "TensorSpec"),
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, message: bytes, region: Region, *, trusted: bool) -> None:
        super().__init__(io.BytesIO(message))
        self._region, self._trusted = region, trusted

    def persistent_load(self, told: tuple[tuple[int, ...], str, Any]) -> np.ndarray:
        shape, kind, content = told
        if not kind:
            return np.array(content, object).reshape(shape)
        dtype = np.dtype(kind)
        part = self._region.part(content, math.prod(shape) * dtype.itemsize)
        return np.frombuffer(part if self._trusted else bytearray(part), dtype).reshape(shape)

    def find_class(self, module: str, name: str) -> Any:
        known = (module.replace("numpy.core.", "numpy._core."), name) in _CALLABLE or module == "ml_dtypes"
        if self._trusted or known:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no array")
