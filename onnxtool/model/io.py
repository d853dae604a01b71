"""Reading and writing model files: the only place that opens them.

Protobuf stays in this folder; everything above works on `onnx_ir` (or, for the quick look that `check` and
`inspect` need, on the `ModelProto` that `read_proto` gives, because importing onnx_ir takes twice as long as
checking a small model).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError
from onnx import external_data_helper

from onnxtool.errors import InputError, OnnxToolError, ResourceError, UsageError
from onnxtool.model import map_types
from onnxtool.model.atomic import fill, locked, replace, settled, staged, sweep, sync, write_atomic
from onnxtool.model.digest import DIGEST_KEY, seal
from onnxtool.model.limits import DEFAULT, Limits
from onnxtool.model.pickle_scan import pickled_imports
from onnxtool.model.serialize import (
    bytes_in,
    externalized,
    large_initializers,
    move_out,
    serialize_inline,
    to_proto,
)
from onnxtool.model.structure import verify_structure
from onnxtool.model.tensors import all_tensors, external_ref, other_tensors, verify_tensors

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "check_output",
    "from_proto",
    "load",
    "read_proto",
    "save",
    "sha256",
    "to_proto",
    "total_bytes",
    "weight_bytes",
    "write_atomic",
]

# Above this, weights go to OUT.onnx.data; protobuf itself ends at 2 GiB and needs room for the graph.
INLINE_LIMIT = 1_900_000_000
_CHUNK = 1 << 20


def read_proto(path: str | os.PathLike[str], limits: Limits = DEFAULT) -> onnx.ModelProto:
    """Read an .onnx file without its external data, and verify all declared sizes.

    Raises:
        InputError: missing, empty, no ONNX model, or damaged.
        UnsafeError: external data outside the model's folder.
        ResourceError: larger than the limits.
    """
    path = Path(path)
    data = _read_regular(path, limits.max_model_bytes)
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise InputError(f"{path}: {_why_not_onnx(data)}") from error
    if not model.HasField("graph") or model.ir_version <= 0:
        raise InputError(f"{path}: {_why_not_onnx(data)}")
    try:
        verify_tensors(model, path.parent, limits)
    except OnnxToolError as error:
        raise type(error)(f"{path}: {error}") from error
    return model


def load(path: str | os.PathLike[str], limits: Limits = DEFAULT) -> ir.Model:
    """Load a model; external data is memory-mapped when touched, never copied up front.

    Raises:
        InputError, UnsafeError, ResourceError: as `read_proto`.
    """
    proto = read_proto(path, limits)
    try:
        verify_structure(proto)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    _load_attribute_tensors(proto, Path(path).parent)
    _forget_negative_dims(proto)
    return from_proto(proto, Path(path).parent)


def from_proto(proto: onnx.ModelProto, folder: Path | None = None) -> ir.Model:
    """Lift a ModelProto into onnx_ir; `folder` is where its external data lies.

    Raises:
        InputError: the graph cannot be represented (damaged beyond what protobuf notices).
    """
    import onnx_ir as ir

    try:
        with map_types.hidden(proto) as types:
            model = ir.from_proto(proto)
        map_types.remember(model, types)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"the model's graph is not valid: {reason}") from error
    if folder is not None:
        ir.external_data.set_base_dir(model.graph, folder.resolve())
    return model


def _load_attribute_tensors(proto: onnx.ModelProto, folder: Path) -> None:
    """Bring external tensors of node attributes (Constant) into the proto: only initializers can be saved as external
    again, and a reference that is left would point from the new file into the old one's folder."""
    for tensor in other_tensors(proto, DEFAULT):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            external_data_helper.load_external_data_for_tensor(tensor, str(folder))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]


def _forget_negative_dims(proto: onnx.ModelProto) -> None:
    """Old exporters write -1 where they mean a dynamic dim; taken as a number it breaks whatever computes with it."""
    graph = proto.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value < 0:
                dim.Clear()


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all initializers of all graphs."""
    return sum(
        v.const_value.nbytes for g in model.graphs() for v in g.initializers.values() if v.const_value is not None
    )


@contextmanager
def spilled(model: ir.Model, path: str | os.PathLike[str]) -> Iterator[Path]:
    """Inside the block the model's large weights lie in a temporary file beside `path`, mapped into memory.

    For work on models that fill the memory. `save(model, path, spill=...)` inside the block takes the file over
    when the weights go to external data anyway, so that they are written once.

    Raises:
        ResourceError: no space, no permission.
    """
    path = settled(Path(path))
    try:
        with staged(path.with_name(path.name + ".data")) as data:
            move_out(model, data)
            yield data
    except OSError as error:
        raise _cannot_write(path, error) from error


def save(
    model: ir.Model, path: str | os.PathLike[str], *, external: bool | None = None, spill: Path | None = None
) -> None:
    """Write a model atomically: a killed run leaves the old file or the new one, never a part.

    The file is self-contained up to 2 GB. Above (or with `external=True`) the weights go to `OUT.onnx.data`
    beside it. When the old file at `path` already uses that name, the new data gets a fresh name, and the one
    rename of the .onnx file replaces both: old model with old data, or new model with new data. A digest of all of
    it stands at the end of the .onnx file (see `digest`).

    Args:
        model: what to write.
        path: where to.
        external: weights beside the model; None = when they are larger than 2 GB.
        spill: the file of `spilled`, which becomes the data file where it fits.

    Raises:
        UsageError: `path` is a folder or its folder does not exist.
        ResourceError: no space, no permission.
    """
    path = settled(Path(path))
    check_output(path)
    model.metadata_props.pop(DIGEST_KEY, None)  # of the file that the model was read from
    if external is None:
        external = weight_bytes(model) > INLINE_LIMIT
    try:
        if external and large_initializers(model):
            _save_external(model, path, spill)
        else:
            body = serialize_inline(model)
            sweep(path.with_name(path.name + ".data"))
            with locked(path.parent):
                stale = _own_data_files(path)
                write_atomic(path, [body, seal(body)])
                _remove(stale)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _save_external(model: ir.Model, path: Path, spill: Path | None = None) -> None:
    with staged(path.with_name(path.name + ".data")) as fresh, staged(path) as temporary:
        # A spill with much that the model no longer refers to (merged duplicates) is not worth keeping.
        fits = spill is not None and spill.parent == path.parent
        if spill is not None and fits and bytes_in(model, spill) > 0.9 * spill.stat().st_size:
            data, proto = spill, to_proto(model)
        else:
            data, proto = fresh, externalized(model, fresh)
        sync(data)
        # Another run may be writing the same output: names are chosen and both files renamed by one at a time.
        with locked(path.parent):
            stale = _own_data_files(path)
            final = _fresh_data_name(path)
            for tensor in all_tensors(proto, DEFAULT):
                for entry in tensor.external_data:
                    if entry.key == "location" and entry.value == data.name:
                        entry.value = final.name
            body = proto.SerializeToString()
            fill(temporary, [body, seal(body, [data])])
            os.replace(data, final)
            try:
                replace(temporary, path)
            except OSError:
                final.unlink(missing_ok=True)
                raise
            _remove(f for f in stale if f != final)


def _own_data_files(path: Path) -> list[Path]:
    """The data files that the model at `path` uses now and that bear its name."""
    if not any(f.name.startswith(f"{path.name}.") for f in path.parent.iterdir()):
        return []  # spares reading the old model
    return [f for f in external_files(path) if f.name.startswith(f"{path.name}.")]


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def check_output(path: Path) -> None:
    """Refuse an output path that cannot become a file, before any work is done.

    Raises:
        UsageError: it is a folder, no regular file, or its folder does not exist.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Give -o the name of a file, such as {path / 'model.onnx'}.")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no regular file, so it cannot be replaced as a whole.")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} does not exist.")


def sha256(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def total_bytes(path: str | os.PathLike[str]) -> int:
    """Size on disk of a model: the .onnx file and its external data files."""
    path = Path(path)
    return path.stat().st_size + sum(f.stat().st_size for f in external_files(path))


def _read_regular(path: Path, limit: int) -> bytes:
    try:
        info = path.stat()
        if stat.S_ISDIR(info.st_mode):
            raise InputError(f"{path}: is a folder, not an ONNX file.")
        if not stat.S_ISREG(info.st_mode):
            raise InputError(f"{path}: is no regular file.")
        if info.st_size == 0:
            raise InputError(f"{path}: the file is empty.")
        if info.st_size > limit:
            raise ResourceError(
                f"{path}: {info.st_size} bytes; a model file larger than {limit} bytes is not read. "
                "Weights beyond 2 GB belong in external data."
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}).") from error


def _why_not_onnx(data: bytes) -> str:
    head = data[:64]
    imports = pickled_imports(data)
    if imports is not None:
        names = f" It would import {', '.join(imports[:8])}{', ...' if len(imports) > 8 else ''}." if imports else ""
        return (
            f"this holds a pickle and is no ONNX file; loading it can run code.{names} To turn it into one: onnxtool convert"
        )
    if head.startswith(b"PK\x03\x04"):
        return "this is a zip archive (PyTorch, Keras, skops?), not an ONNX file. To turn it into one: onnxtool convert"
    if head.startswith(b"\x89HDF"):
        return "this is an HDF5 file (Keras?), not an ONNX file. To turn it into one: onnxtool convert"
    if head.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer; fetch the real file with: git lfs pull"
    if b"\0" not in data[:4096] and all(c in b"\t\n\r" or c >= 32 for c in data[:4096]):
        return "this is a text file, not an ONNX file."
    return "this is no ONNX file, or it is damaged or cut off."


def external_files(path: Path) -> list[Path]:
    """The external data files that the model at `path` uses now; none when it cannot be read."""
    try:
        proto = read_proto(path)
        names = {r.location for t in all_tensors(proto, DEFAULT) if (r := external_ref(t)) is not None}
    except (OnnxToolError, OSError):
        return []
    return [path.parent / name for name in sorted(names)]


def _fresh_data_name(path: Path) -> Path:
    plain = path.with_name(path.name + ".data")
    return plain if not plain.exists() else path.with_name(f"{path.name}.{secrets.token_hex(4)}.data")


def _cannot_write(path: Path, error: OSError) -> OnnxToolError:
    return ResourceError(f"{path}: cannot be written ({error.strerror or error}). The old file, if any, is untouched.")
