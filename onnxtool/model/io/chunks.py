"""External data in several files of a limited size, for stores and file systems that take no large ones."""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from onnxtool.errors import ResourceError
from onnxtool.model.io.atomic import fill, locked, replace, settled, staged
from onnxtool.model.io.serialize import large_initializers, to_proto
from onnxtool.model.io.tensor_bytes import sendable
from onnxtool.model.io.write import check_output, digest_synced, remove_left_data
from onnxtool.model.provenance.digest import DIGEST_KEY, seal

if TYPE_CHECKING:
    import onnx_ir as ir


def save_chunked(model: ir.Model, path: Path, limit: int) -> int:
    """Write a model atomically, with its weights in files of up to `limit` bytes beside it.

    A weight that is larger than the limit has a file of its own. The data files have fresh names, so that the one
    rename of the .onnx file replaces all of them.

    Args:
        model: what to write; unchanged.
        path: where to.
        limit: bytes of one data file.

    Returns:
        Bytes written.

    Raises:
        UsageError: `path` is a folder or its folder does not exist.
        ResourceError: no space, no permission.
    """
    path = settled(Path(path))
    check_output(path)
    model.metadata_props.pop(DIGEST_KEY, None)
    groups = _groups(large_initializers(model), limit)
    mark = secrets.token_hex(4)
    finals = [path.with_name(f"{path.name}.{mark}.{number:04d}.data") for number in range(len(groups))]
    try:
        with ExitStack() as stack:
            parts = [stack.enter_context(staged(final)) for final in finals]
            temporary = stack.enter_context(staged(path))
            payload = _written(model, groups, parts, finals)
            body = payload + seal(payload, [digest_synced(part) for part in parts])
            fill(temporary, body)
            size = len(body) + sum(p.stat().st_size for p in parts)
            with locked(path.parent):
                _bring_in(parts, finals, temporary, path)
                remove_left_data(path, {f.name for f in finals})
        return size
    except OSError as error:
        raise ResourceError(
            f"{path}: cannot be written ({error.strerror or error}). The old file is untouched."
        ) from error


def _groups(values: list[ir.Value], limit: int) -> list[list[ir.Value]]:
    groups: list[list[ir.Value]] = []
    room = 0
    for value in values:
        assert value.const_value is not None
        size = value.const_value.nbytes
        if not groups or size > room:
            groups.append([])
            room = limit
        groups[-1].append(value)
        room -= size
    return groups


def _written(model: ir.Model, groups: list[list[ir.Value]], parts: list[Path], finals: list[Path]) -> bytes:
    """Write the data files; the model that refers to them by their final names."""
    import onnx_ir as ir

    originals = [[v.const_value for v in group] for group in groups]
    try:
        for group, tensors, part, final in zip(groups, originals, parts, finals, strict=True):
            given = [sendable(t) for t in tensors if t is not None]
            outside = ir.external_data.convert_tensors_to_external(given, part.parent, part.name)
            for value, tensor in zip(group, outside, strict=True):
                value.const_value = ir.ExternalTensor(
                    final.name,
                    tensor.offset,
                    tensor.length,
                    tensor.dtype,
                    shape=tensor.shape,
                    name=value.name or "",
                    base_dir=final.parent,
                )
        return bytes(to_proto(model).SerializeToString())
    finally:
        for group, tensors in zip(groups, originals, strict=True):
            for value, original in zip(group, tensors, strict=True):
                value.const_value = original


def _bring_in(parts: list[Path], finals: list[Path], temporary: Path, path: Path) -> None:
    moved: list[Path] = []
    try:
        for part, final in zip(parts, finals, strict=True):
            os.replace(part, final)
            moved.append(final)
        replace(temporary, path)
    except OSError:
        for final in moved:
            final.unlink(missing_ok=True)
        raise
