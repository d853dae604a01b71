"""Files that are no model, or only a part of one."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from collections.abc import Iterator

import numpy as np
import onnx

from tests.hostile.cases import INVALID, ODD, UNREADABLE, Case, file
from tests.hostile.graphs import sound

# Found by fuzzing: one DFT. The runtime ends the process in its first run, and says so itself.
_DFT = (
    b'\x08\t\x12\x0cbackend-test:W\n\x13\n\x01x\n\x00\n\x04axis\x12\x01y"\x03DFT\x12\x08test_dftZ\t\n\x01x\x12\x04'
    b"\n\x02\x08\x01Z\x0e\n\x04axis\x12\x06\n\x04\x08\x07\x12\x00b\x1b\n\x01x\x12\x16\n\x14\x08\x01\x12\x10\n\x02\x08\x01\n\x02\x08"
    b"\n\n\x02\x08\n\n\x02\x08\x01B\x04\n\x00\x10\x14"
)


def cases() -> Iterator[Case]:
    """Bytes: wrong kinds of files, truncations, noise, flipped bits."""
    whole = sound().SerializeToString()
    for name, content in wrong_kinds(whole).items():
        yield Case(f"bytes-{name}", file("m.onnx", content), UNREADABLE)
    for percent in (1, 5, 20, 40, 60, 80, 90, 95, 99):
        content = whole[: max(1, len(whole) * percent // 100)]
        yield Case(f"truncated-{percent}", file("m.onnx", content), ODD)
    yield Case("truncated-last-byte", file("m.onnx", whole[:-1]), UNREADABLE)
    generator = np.random.default_rng(11)
    for index in range(12):
        flipped = bytearray(whole)
        for position in generator.integers(0, len(whole), size=1 + index * 3):
            flipped[position] ^= 1 << int(generator.integers(0, 8))
        yield Case(f"bit-flips-{index}", file("m.onnx", bytes(flipped)), ODD)
    yield Case("bytes-dft-that-ends-the-process", file("m.onnx", _DFT), ODD)
    for name, text in {"node": b"dense", "value": b"h"}.items():
        letters = len(text).to_bytes() + text
        yield Case(
            f"no-utf8-in-{name}-name",
            file("m.onnx", whole.replace(letters, len(text).to_bytes() + b"\xff" * len(text))),
            UNREADABLE,
        )
    yield Case("trailing-garbage", file("m.onnx", whole + b"\xff\xfe\xfd" * 7), UNREADABLE)
    yield Case("leading-bom", file("m.onnx", b"\xef\xbb\xbf" + whole), UNREADABLE)
    yield Case("twice", file("m.onnx", whole + whole), INVALID)


def wrong_kinds(whole: bytes) -> dict[str, bytes]:
    """Everything that people hand to a model tool by mistake or on purpose."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("model.onnx", whole)
    generator = np.random.default_rng(3)
    graphless = onnx.ModelProto(ir_version=10)
    unknown_field = struct.pack("<BQ", (200 << 3 | 1) & 0xFF, 1)
    return {
        "empty": b"",
        "one-zero": b"\0",
        "one-letter": b"x",
        "zeros": bytes(4096),
        "ones": b"\xff" * 4096,
        "text": b"not a model\n" * 50,
        "html": b"<!DOCTYPE html><html><body>404 not found</body></html>",
        "json": b'{"model": {"graph": []}}',
        "utf16": "a model".encode("utf-16"),
        "png": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "elf": b"\x7fELF\x02\x01\x01" + bytes(100),
        "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(100),
        "zip": archive.getvalue(),
        "gzip": gzip.compress(whole, mtime=0),
        "lfs-pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n",
        "noise": bytes(generator.integers(0, 256, 10_000, dtype=np.uint8)),
        "no-graph": graphless.SerializeToString(),
        "graph-alone": sound().graph.SerializeToString(),
        "tensor-alone": sound().graph.initializer[0].SerializeToString(),
        "unknown-fields-only": unknown_field * 20,
        "endless-varint": b"\x08" + b"\xff" * 500,
        "length-beyond-the-end": b"\x3a\xff\xff\xff\xff\x07" + bytes(30),
        "groups-unclosed": b"\x0b" * 3000,
    }
