"""The process's own streams, made fit for odd surroundings: closed, broken, or in an encoding that lacks letters."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import TextIO

# What a full disk gives, whoever writes: the shell may have sent our output there.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def prepare() -> None:
    """Give closed streams a place to go, and let unknown letters be escaped rather than fatal.

    A closed descriptor 0, 1 or 2 would otherwise be given to the next file that is opened, and native code that
    prints would write into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        else:
            with suppress(AttributeError, ValueError):  # a test's stand-in has no reconfigure
                stream.reconfigure(errors="backslashreplace")


class MachineOutput:
    """Standard output for one program's data alone, until `close`.

    What else is printed there meanwhile, by the user's own code or by native libraries, goes to stderr.
    """

    def __init__(self) -> None:
        self._own: TextIO = sys.stdout
        try:
            self._own.flush()
            self._real = self._own.fileno() == 1
            kept = os.dup(1) if self._real else -1
        except (OSError, ValueError, AttributeError):  # a test's stand-in
            self._real = False
        if self._real:
            os.dup2(2, 1)
            self.stream: TextIO = open(kept, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
        else:
            self.stream, sys.stdout = self._own, sys.stderr

    def write(self, text: str) -> None:
        """Write at once; a reader that has gone is nobody's fault.

        Raises:
            OSError: there is no room.
        """
        try:
            self.stream.write(text)
            self.stream.flush()
        except BrokenPipeError:
            discard(self.stream.fileno())

    def close(self) -> None:
        """Give standard output back."""
        if not self._real:
            sys.stdout = self._own
            return
        with suppress(OSError, ValueError):
            self._own.flush()
        os.dup2(self.stream.fileno(), 1)
        with suppress(OSError):  # of what there was no room for
            self.stream.close()


def discard(descriptor: int) -> None:
    """Send what is still to be written to a reader that has gone (`| head`) nowhere."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, descriptor)
    os.close(sink)


def no_room(error: BaseException | None) -> str | None:
    """What to say when an exception means that something could not be written for want of room; else None."""
    if not isinstance(error, OSError) or error.errno not in _FULL:
        return None
    return f"{error.filename or 'standard output'}: cannot be written ({error.strerror})."


def finish() -> None:
    """Flush, so that a broken pipe shows here and not in the interpreter's last breath."""
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except OSError:
            discard(descriptor)
        except (ValueError, AttributeError):
            pass
