"""Reading model files: the only module that opens them for reading."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError
from onnx import external_data_helper

from onnxtool.errors import InputError, OnnxToolError, ResourceError
from onnxtool.model.io import set_aside
from onnxtool.model.io.lazy_read import mark_inside, read_without_graph, read_without_weights
from onnxtool.model.provenance.metadata import file_digest
from onnxtool.model.safety.limits import DEFAULT, Limits, verify_environment
from onnxtool.model.safety.pickle_scan import pickled_imports
from onnxtool.model.safety.structure import verify_operands, verify_structure, verify_texts
from onnxtool.model.safety.tensors import (
    all_tensors,
    external_ref,
    make_dense,
    other_tensors,
    verify_expansion,
    verify_tensors,
)

if TYPE_CHECKING:
    import onnx_ir as ir

LAST_OLD_FORMAT = 3  # IR version of files whose operator sets may be older than what runtimes take


def read_proto(
    path: str | os.PathLike[str], limits: Limits = DEFAULT, *, in_place: bool = False, external: bool = True
) -> onnx.ModelProto:
    """Read an .onnx file without its external data, and verify all declared sizes.

    Args:
        path: the file.
        limits: how large it may be.
        in_place: large weights of a large file become references into it, as if they were external data.
        external: False does not look for external data, which may then be missing.

    Raises:
        InputError: missing, empty, no ONNX model, or damaged.
        UnsafeError: external data outside the model's folder.
        ResourceError: larger than the limits.
    """
    path = Path(path)
    model = read_without_weights(path) if in_place else None
    if model is None or not model.HasField("graph") or model.ir_version <= 0:
        model = _read_whole(path, limits)
    try:
        verify_texts(model, limits)
        verify_operands(model)
        verify_tensors(model, path.parent if external else None, limits)
        verify_expansion(model, limits)
        if model.ir_version <= LAST_OLD_FORMAT:
            from onnxtool.model.io.old_forms import raise_old_forms

            raise_old_forms(model)
    except OnnxToolError as error:
        raise type(error)(f"{path}: {error}") from error
    return model


def old_opset(path: str | os.PathLike[str]) -> int:
    """The operator set of a file that `read_proto` gives as a later one, which runtimes take; 0 of other files."""
    model = read_without_graph(Path(path))
    if model is None or not 0 < model.ir_version <= LAST_OLD_FORMAT:
        return 0
    from onnxtool.model.io.old_forms import OLDEST, opset_of

    opset = opset_of(model)
    return opset if opset < OLDEST else 0


def _read_whole(path: Path, limits: Limits) -> onnx.ModelProto:
    data = _read_regular(path, limits.max_model_bytes)
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise InputError(f"{path}: {_why_not_onnx(data)}") from error
    if not model.HasField("graph") or model.ir_version <= 0:
        raise InputError(f"{path}: {_why_not_onnx(data)}")
    return model


def load(path: str | os.PathLike[str], limits: Limits = DEFAULT, *, in_place: bool = False) -> ir.Model:
    """Load a model; external data is memory-mapped when touched, never copied up front.

    With `in_place` the weights of a large file are treated in the same way, and the file has to stay as it is for as
    long as the model is used.

    Raises:
        InputError, UnsafeError, ResourceError: as `read_proto`.
    """
    return lift(read_proto(path, limits, in_place=in_place), Path(path), in_place=in_place)


def lift(proto: onnx.ModelProto, path: Path, *, in_place: bool = False) -> ir.Model:
    """The model of a message that `read_proto` read from a file, with `in_place` likewise; the message is used up.

    Raises:
        InputError: its graph is not valid.
    """
    try:
        verify_structure(proto)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    _load_attribute_tensors(proto, path.parent)
    try:
        make_dense(proto)
    except OnnxToolError as error:
        raise type(error)(f"{path}: {error}") from error
    _forget_negative_dims(proto)
    model = from_proto(proto, path.parent)
    if in_place:
        mark_inside(model, path.name)
    return model


def from_proto(proto: onnx.ModelProto, folder: Path | None = None) -> ir.Model:
    """Lift a ModelProto into onnx_ir; `folder` is where its external data lies.

    Raises:
        InputError: the graph cannot be represented (damaged beyond what protobuf notices).
    """
    import onnx_ir as ir

    try:
        with set_aside.hidden_maps(proto) as types, set_aside.large_lists(proto) as lists:
            model = ir.from_proto(proto)
        set_aside.remember(model, types)
        set_aside.put_back(model, lists)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"the model's graph is not valid: {reason}") from error
    if folder is not None:
        ir.external_data.set_base_dir(model.graph, folder.resolve())
    return model


def _load_attribute_tensors(proto: onnx.ModelProto, folder: Path) -> None:
    """Bring external tensors of node attributes (Constant) into the proto: only initializers can be saved as external
    again, and a reference that is left would point from the new file into the old one's folder.
    """
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


def native_path(path: str | os.PathLike[str]) -> str:
    """A path for native code, which wants UTF-8 whatever the locale is; Python has surrogates where that lacks letters.

    Raises:
        InputError: the name is not UTF-8 on the disk either.
    """
    try:
        return os.fsencode(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: the runtime takes names in UTF-8 only; rename the file.") from error


def sha256(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file, in hex."""
    return file_digest(Path(path)).hex()


def total_bytes(path: str | os.PathLike[str]) -> int:
    """Size on disk of a model: the .onnx file and its external data files."""
    path = Path(path)
    return path.stat().st_size + sum(f.stat().st_size for f in external_files(path))


def _read_regular(path: Path, limit: int) -> bytes:
    verify_environment()
    try:
        info = path.stat()
        if stat.S_ISDIR(info.st_mode):
            raise InputError(f"{path}: is a folder, not an ONNX file.")
        if not stat.S_ISREG(info.st_mode):
            raise InputError(f"{path}: is not a regular file.")
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
        return f"this holds a pickle, which can run code when loaded.{names} To turn it into ONNX: onnxtool convert"
    if head.startswith(b"PK\x03\x04"):
        return "this is a zip archive (PyTorch, Keras, skops?), not an ONNX file. To turn it into one: onnxtool convert"
    if head.startswith(b"\x89HDF"):
        return "this is an HDF5 file (Keras?), not an ONNX file. To turn it into one: onnxtool convert"
    if head.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer; fetch the real file with: git lfs pull"
    if b"\0" not in data[:4096] and all(c in b"\t\n\r" or c >= 32 for c in data[:4096]):
        return "this is a text file, not an ONNX file."
    return "this is not an ONNX file, or it is damaged or cut off."


def external_files(path: Path) -> list[Path]:
    """The external data files that the model at `path` uses now; none when it cannot be read."""
    try:
        proto = read_proto(path, in_place=True)
        names = {r.location for t in all_tensors(proto, DEFAULT) if (r := external_ref(t)) is not None}
    except (OnnxToolError, OSError):
        return []
    return [path.parent / name for name in sorted(names - {path.name})]
