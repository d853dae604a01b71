"""External data in several files of a limited size, for stores and file systems that take no large ones."""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from onnxtool.errors import ResourceError
from onnxtool.model.io.atomic import fill, locked, replace, settled, staged
from onnxtool.model.io.serialize import externalized, large_initializers, rename_data, take_in_small
from onnxtool.model.io.write import check_output, digest_synced, remove_left_data
from onnxtool.model.provenance.digest import DIGEST_KEY, seal

if TYPE_CHECKING:
    import onnx_ir as ir


def save_chunked(model: ir.Model, path: Path, limit: int) -> int:
    """Write a model atomically, with its weights in files of up to `limit` bytes beside it.

    A weight that is larger than the limit has a file of its own. The data files have fresh names, so that the one
    rename of the .onnx file replaces all of them.

    Args:
        model: what to write.
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
    take_in_small(model)
    groups = _groups(large_initializers(model), limit)
    mark = secrets.token_hex(4)
    finals = [path.with_name(f"{path.name}.{mark}.{number:04d}.data") for number in range(len(groups))]
    try:
        with ExitStack() as stack:
            parts = [stack.enter_context(staged(final)) for final in finals]
            temporary = stack.enter_context(staged(path))
            proto = externalized(model, list(zip(groups, parts, strict=True)))
            rename_data(proto, {part.name: final.name for part, final in zip(parts, finals, strict=True)})
            payload = proto.SerializeToString()
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
