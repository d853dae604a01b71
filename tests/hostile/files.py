"""External data that leads elsewhere, wrappings that hold code, input data that is not data.

The payload of every pickle only makes an empty file, `ran`, in the working folder: it shows whether code ran.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.hostile.cases import DATA_COMMANDS, INVALID, UNREADABLE, UNSAFE, Case, codes, file
from tests.hostile.graphs import sound

MARKER = "ran"


class Payload:
    """Makes the marker file when unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (MARKER, "w")


def cases() -> Iterator[Case]:
    """All of them."""
    yield from external_cases()
    yield from pickle_cases()
    yield from data_cases()


def external(
    entries: dict[str, str], arrange: Callable[[Path], object] = lambda folder: None
) -> Callable[[Path], Path]:
    """A writer of the sound model with its weights declared elsewhere."""

    def write(folder: Path) -> Path:
        inside = folder / "model"
        inside.mkdir()
        (folder / "secret.bin").write_bytes(b"S" * 4096)
        (inside / "w.bin").write_bytes(np.arange(16, dtype=np.float32).tobytes())
        arrange(inside)
        made = sound()
        tensor = made.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value.replace("{folder}", str(folder)))
        (inside / "m.onnx").write_bytes(made.SerializeToString())
        return inside / "m.onnx"

    return write


def shared(folder: Path) -> Path:
    """The sound model with weights and biases in the same bytes of one file, which is allowed."""
    made = sound()
    (folder / "w.bin").write_bytes(np.arange(16, dtype=np.float32).tobytes())
    for tensor, length in zip(made.graph.initializer, ("48", "16"), strict=True):
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": "w.bin", "offset": "0", "length": length}.items():
            tensor.external_data.add(key=key, value=value)
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    return folder / "m.onnx"


def external_cases() -> Iterator[Case]:
    """Where weights must not be read from."""
    outside = {
        "absolute": "{folder}/secret.bin",
        "etc-passwd": "/etc/passwd",
        "parent": "../secret.bin",
        "parent-in-the-middle": "a/../../secret.bin",
        "dot-parent": "./../secret.bin",
        "backslashes": "..\\secret.bin",
        "device-zero": "/dev/zero",
        "device-stdin": "/dev/stdin",
        "own-memory": "/proc/self/mem",
        "nul-byte": "w.bin\0.txt",
    }
    for name, location in outside.items():
        yield Case(f"external-{name}", external({"location": location, "length": "48"}), UNSAFE)
    arranged: dict[str, Callable[[Path], object]] = {
        "symlink-out": lambda f: (f / "out").symlink_to("../secret.bin"),
        "symlink-to-absolute": lambda f: (f / "out").symlink_to("/etc/passwd"),
        "symlink-chain": lambda f: ((f / "a").symlink_to("../secret.bin"), (f / "out").symlink_to("a")),
        "hardlink-out": lambda f: os.link(f / "../secret.bin", f / "out"),
        "pipe": lambda f: os.mkfifo(f / "out"),
        "folder": lambda f: (f / "out").mkdir(),
    }
    for name, arrange in arranged.items():
        yield Case(f"external-{name}", external({"location": "out", "length": "48"}, arrange), UNSAFE)
    yield Case(
        "external-symlinked-folder",
        external({"location": "d/secret.bin", "length": "48"}, lambda f: (f / "d").symlink_to("..")),
        UNSAFE,
    )
    broken = {
        "missing": {"location": "nothing.bin", "length": "48"},
        "symlink-loop": {"location": "loop", "length": "48"},
        "no-location": {"length": "48"},
        "empty-location": {"location": "", "length": "48"},
        "url": {"location": "https://example.invalid/w.bin", "length": "48"},
        "past-the-end": {"location": "w.bin", "offset": "32", "length": "48"},
        "length-huge": {"location": "w.bin", "length": str(1 << 62)},
        "length-too-short": {"location": "w.bin", "length": "44"},
        "length-negative": {"location": "w.bin", "length": "-48"},
        "offset-negative": {"location": "w.bin", "offset": "-4", "length": "48"},
        "offset-huge": {"location": "w.bin", "offset": str(1 << 63), "length": "48"},
        "offset-no-number": {"location": "w.bin", "offset": "one", "length": "48"},
        "length-no-number": {"location": "w.bin", "length": "0x30"},
    }
    for name, entries in broken.items():
        arrange = (lambda f: (f / "loop").symlink_to("loop")) if name == "symlink-loop" else (lambda f: None)
        yield Case(f"external-{name}", external(entries, arrange), UNREADABLE)
    yield Case(
        "external-shared", shared, codes(0, convert=(3, 4), quantize=(0, 1, 4), compare=(1,), diff=(1,), verify=(1,))
    )
    whole = codes(0, convert=(3, 4), quantize=(0, 1, 4), compare=(1,), diff=(1,), verify=(1,))
    good = {"location": "w.bin", "length": "48"}
    yield Case("external-good", external(good), whole)
    yield Case("external-unknown-key", external({**good, "\u202e\x1b[2J": "x"}), INVALID)


def framework(*right: int) -> dict[str, frozenset[int]]:
    """Codes for a framework's file: convert and compare look into it, to the others it is not a model."""
    return codes(3, convert=right, compare=right, check=(3, 5))


def pickle_cases() -> Iterator[Case]:
    """Code in every wrapping, given to convert (refused: 5) and to the others (no model: 3)."""
    refused = framework(5)
    plain = {f"protocol-{p}": pickle.dumps(Payload(), p) for p in range(6)}
    for name, content in plain.items():
        yield Case(f"pickle-{name}", file("m.pkl", content), refused)
    body = pickle.dumps({"model": Payload()}, 2)
    packed = {
        "gzip": gzip.compress(body, mtime=0),
        "zlib": zlib.compress(body),
        "bz2": bz2.compress(body),
        "xz": lzma.compress(body),
        "lzma": lzma.compress(body, format=lzma.FORMAT_ALONE),
    }
    for name, content in packed.items():
        yield Case(f"joblib-{name}", file("m.joblib", content), refused)
    yield Case("joblib-plain", file("m.joblib", body), refused)
    for suffix in ("pt", "pth", "bin", "ckpt", "onnx"):
        yield Case(f"torch-zip-{suffix}", file(f"m.{suffix}", torch_zip(body)), framework(3, 5))
    yield Case("torch-legacy", file("m.pt", legacy_torch()), framework(3, 5))
    yield Case("torch-zip-truncated", file("m.pt", torch_zip(body)[:-40]), framework(3, 5))
    yield Case("keras-lambda", file("m.keras", keras_lambda()), framework(5))
    yield Case("keras-custom-object", file("m.keras", keras_lambda("Custom", "os")), framework(3, 4, 5))
    yield Case(
        "keras-config-no-json", file("m.keras", zipped({"config.json": b"{", "model.weights.h5": b""})), codes(3)
    )
    yield Case("skops-untrusted", file("m.skops", skops_untrusted()), framework(5))
    yield Case("skops-no-schema", file("m.skops", zipped({"schema.json": b"[]"})), framework(3, 5))
    yield Case("safetensors-huge-header", file("m.safetensors", struct.pack("<Q", 1 << 60) + b"{}"), framework(2, 3))
    yield Case("safetensors-lying-offsets", file("m.safetensors", lying_safetensors()), framework(2, 3))
    yield Case("zip-bomb", file("m.pt", zip_bomb("archive/data.pkl")), framework(3, 5, 6))
    yield Case("zip-bomb-keras", file("m.keras", zip_bomb("config.json")), framework(3, 5, 6))
    yield Case("zip-slip", file("m.pt", zipped({"../../slipped": b"x", "archive/data.pkl": body})), framework(3, 5))


def data_cases() -> Iterator[Case]:
    """Input data for a sound model: x float32[2,3]."""
    wrong = {c: frozenset({3}) for c in DATA_COMMANDS}
    unsafe = {c: frozenset({3, 5}) for c in DATA_COMMANDS}
    good = np.zeros((2, 3), np.float32)

    def npz(**arrays: np.ndarray) -> bytes:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        return buffer.getvalue()

    def npy(array: np.ndarray) -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, array)
        return buffer.getvalue()

    payload = np.empty(1, object)
    payload[0] = Payload()
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1048576), }"
    huge = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    files = {
        "empty": b"",
        "text": b"1,2,3\n",
        "truncated": npz(x=good)[:-30],
        "no-arrays": npz(),
        "wrong-name": npz(image=good, label=good),
        "wrong-rank": npz(x=np.zeros((2, 3, 1), np.float32)),
        "wrong-dim": npz(x=np.zeros((2, 4), np.float32)),
        "wrong-dtype": npz(x=np.zeros((2, 3), np.complex128)),
        "strings": npz(x=np.array([["a"] * 3] * 2)),
        "dates": npz(x=np.zeros((2, 3), "datetime64[s]")),
        "scalar": npz(x=np.float32(1)),
        "huge-shape": zipped({"x.npy": huge}),
        "header-no-dict": zipped({"x.npy": b"\x93NUMPY\x01\x00\x05\x00hello"}),
        "header-that-calls": zipped({"x.npy": b"\x93NUMPY\x01\x00\x1e\x00" + b"__import__('os').getcwd()".ljust(30)}),
        "no-npy-inside": zipped({"x.txt": b"hello"}),
        "zip-bomb": zip_bomb("x.npy"),
    }
    for name, content in files.items():
        yield Case(f"data-{name}", file("d.npz", content), wrong if "bomb" not in name else wrong_or_limit(), data=True)
    yield Case("data-objects", file("d.npz", npz(x=payload)), unsafe, data=True)
    yield Case("data-objects-npy", file("d.npy", npy(payload)), unsafe, data=True)
    yield Case("data-pickle-called-npz", file("d.npz", pickle.dumps(Payload())), unsafe, data=True)
    yield Case("data-pipe", pipe, wrong, data=True)
    yield Case("data-endless", lambda folder: Path("/dev/zero"), wrong, data=True)
    yield Case("data-missing", lambda folder: folder / "missing.npz", wrong, data=True)


def pipe(folder: Path) -> Path:
    """A named pipe that nobody writes to."""
    os.mkfifo(folder / "d.npz")
    return folder / "d.npz"


def wrong_or_limit() -> dict[str, frozenset[int]]:
    """Bad data, or more of it than is allowed."""
    return {c: frozenset({3, 6}) for c in DATA_COMMANDS}


def zipped(members: dict[str, bytes]) -> bytes:
    """A zip archive with a fixed date."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def zip_bomb(member: str) -> bytes:
    """4 MB that unpack to 4 GB; made of few blocks, so that making it is quick."""
    size, chunk = 4 << 30, bytes(1 << 24)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(chunk) + packer.flush(zlib.Z_FULL_FLUSH)
    body = block * (size // len(chunk)) + packer.flush()
    name = member.encode()
    fields = (20, 0, 8, 0, 0x21, 0, len(body), size - 1, len(name), 0)  # one byte less: 4 GiB would need zip64
    local = struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", *fields) + name
    central = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\x01\x02", 20, *fields, 0, 0, 0, 0, 0) + name
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 1, 1, len(central), len(local) + len(body), 0)
    return local + body + central + end


def torch_zip(body: bytes) -> bytes:
    """What torch.save writes, with another pickle inside."""
    return zipped({"archive/data.pkl": body, "archive/version": b"3\n", "archive/byteorder": b"little"})


def legacy_torch() -> bytes:
    """The format of torch before 1.6: several pickles in a row."""
    return b"".join(pickle.dumps(o, 2) for o in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, Payload()))


def keras_lambda(class_name: str = "Lambda", module: str = "keras.layers") -> bytes:
    """A Keras archive whose one layer holds marshalled code."""
    layer = {
        "module": module,
        "class_name": class_name,
        "config": {
            "name": "evil",
            "function": {"class_name": "__lambda__", "config": {"code": "4wEAAAA=", "defaults": None}},
        },
        "registered_name": None,
    }
    config = {"module": "keras", "class_name": "Sequential", "config": {"name": "s", "layers": [layer]}}
    meta = {"keras_version": "3.15.1", "date_saved": "2026-01-01"}
    return zipped(
        {
            "metadata.json": json.dumps(meta).encode(),
            "config.json": json.dumps(config).encode(),
            "model.weights.h5": b"\x89HDF\r\n\x1a\n" + bytes(100),
        }
    )


def skops_untrusted() -> bytes:
    """A skops file that calls a function of the os module."""
    schema = {
        "__class__": "system",
        "__module__": "posix",
        "__loader__": "FunctionNode",
        "content": {"module_path": "posix", "function": "system"},
        "protocol": 2,
        "_skops_version": "0.16.0",
    }
    return zipped({"schema.json": json.dumps(schema).encode()})


def lying_safetensors() -> bytes:
    """A header that declares more bytes than there are."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(64)
