"""Is a UBJSON file whole? XGBoost 3.2 reads beyond the end of one that is cut off, and may crash.

Source: Universal Binary JSON specification, draft 12 (https://ubjson.org).
"""

from __future__ import annotations

import struct

# Marker -> size in bytes and struct format of numbers.
_NUMBERS = {b"i": "b", b"U": "B", b"I": ">h", b"l": ">i", b"L": ">q", b"d": ">f", b"D": ">d", b"C": "c"}
_EMPTY = (b"Z", b"N", b"T", b"F")
_DEEPEST = 64


def is_whole(data: bytes) -> bool:
    """True when the bytes are exactly one well-formed UBJSON value."""
    try:
        return _value(data, 0, 0) == len(data)
    except (ValueError, IndexError, struct.error, RecursionError):
        return False


def _value(data: bytes, place: int, depth: int) -> int:
    """The place after the value that begins at `place`."""
    marker = data[place : place + 1]
    place += 1
    if marker in _EMPTY:
        return place
    if marker in _NUMBERS:
        return _skip(data, place, struct.calcsize(_NUMBERS[marker]))
    if marker in (b"S", b"H"):
        return _text(data, place)
    if marker in (b"[", b"{"):
        return _container(data, place, marker == b"{", depth + 1)
    raise ValueError(marker)


def _container(data: bytes, place: int, keyed: bool, depth: int) -> int:
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    kind = b""
    if data[place : place + 1] == b"$":
        kind = data[place + 1 : place + 2]
        place += 2
    if data[place : place + 1] == b"#":
        count, place = _integer(data, place + 1)
        if kind in _NUMBERS and not keyed:
            return _skip(data, place, count * struct.calcsize(_NUMBERS[kind]))
        if kind:
            raise ValueError("typed objects do not occur")
        for _ in range(count):
            place = _value(data, _text(data, place) if keyed else place, depth)
        return place
    end = b"}" if keyed else b"]"
    while data[place : place + 1] != end:
        place = _value(data, _text(data, place) if keyed else place, depth)
    return place + 1


def _text(data: bytes, place: int) -> int:
    length, place = _integer(data, place)
    return _skip(data, place, length)


def _integer(data: bytes, place: int) -> tuple[int, int]:
    layout = (
        _NUMBERS[bytes(data[place : place + 1])] if data[place : place + 1] in (b"i", b"U", b"I", b"l", b"L") else ""
    )
    if not layout:
        raise ValueError("a length is expected")
    (value,) = struct.unpack_from(layout, data, place + 1)
    if value < 0:
        raise ValueError("a negative length")
    return int(value), place + 1 + struct.calcsize(layout)


def _skip(data: bytes, place: int, size: int) -> int:
    if place + size > len(data):
        raise ValueError("cut off")
    return place + size
