"""Writing model files: as a whole, weights inside or beside them, with a digest."""

from __future__ import annotations

import mmap
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onnxtool.errors import UsageError, writing
from onnxtool.model.io.atomic import fill, locked, replace, settled, staged, sweep, sync
from onnxtool.model.io.read import external_files, load
from onnxtool.model.io.serialize import (
    bytes_in,
    externalized,
    large_initializers,
    move_out,
    rename_data,
    serialized_pieces,
    take_in_small,
    to_proto,
    weight_bytes,
)
from onnxtool.model.provenance.metadata import DIGEST_KEY, file_digest, seal, sealed
from onnxtool.model.safety.limits import PROTOBUF_LIMIT

if TYPE_CHECKING:
    import onnx_ir as ir


# Above this, weights go to OUT.onnx.data; protobuf itself ends at 2 GiB and needs room for the graph.
INLINE_LIMIT = 1_900_000_000
_CHUNK = 1 << 22  # bytes copied at a time
# Bytes in a folder that are searched for the names of data files that seem to be left over; some ten seconds' work.
_LOOKED_THROUGH = 1 << 33


@contextmanager
def spilled(model: ir.Model, path: str | os.PathLike[str]) -> Iterator[Path]:
    """Inside the block the model's large weights lie in a temporary file beside `path`, mapped into memory.

    For work on models that fill the memory. `save(model, path, spill=...)` inside the block takes the file over
    when the weights go to external data anyway, so that they are written once.

    Raises:
        ResourceError: no space, no permission.
    """
    path = settled(Path(path))
    with writing(path), staged(path.with_name(path.name + ".data")) as data:
        move_out(model, data)
        yield data


def save(
    model: ir.Model,
    path: str | os.PathLike[str],
    *,
    external: bool | None = None,
    spill: Path | None = None,
    spare: tuple[int, Mapping[str, str]] | None = None,
) -> int:
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
        spare: with external data, a limit in bytes, and the metadata to write instead when all would be larger.

    Returns:
        Bytes written: the .onnx file, and its external data.

    Raises:
        UsageError: `path` is a folder or its folder does not exist.
        ResourceError: no space, no permission.
    """
    path = settled(Path(path))
    check_output(path)
    model.metadata_props.pop(DIGEST_KEY, None)  # of the file that the model was read from
    if external is None:
        external = weight_bytes(model) > INLINE_LIMIT
    with writing(path):
        if external and large_initializers(model):
            return _save_external(model, path, spill, spare)
        sweep(path.with_name(path.name + ".data"))
        return _put(path, sealed(serialized_pieces(model)))


def copy_model(source: Path, path: Path) -> None:
    """Write the model of one file to another: the same bytes, where all of it is in that file.

    External data goes into a file beside the new one, as `save` has it. Nothing happens where both are one file.

    Raises:
        InputError, UnsafeError, ResourceError: as `load` and `save`.
    """
    path = settled(path)
    if path.exists() and path.samefile(source):
        return
    if external_files(source):
        save(load(source, in_place=True), path, external=True)
        return
    with writing(path), open(source, "rb") as file:
        _put(path, iter(partial(file.read, _CHUNK), b""))


def _put(path: Path, payload: Iterable[bytes]) -> int:
    """Put a model of one file in its place, and remove the data files of an earlier one; its bytes."""
    with staged(path) as temporary:
        fill(temporary, payload)
        size = temporary.stat().st_size
        with locked(path.parent):
            replace(temporary, path)
            remove_left_data(path, set())
    return size


def _save_external(model: ir.Model, path: Path, spill: Path | None, spare: tuple[int, Mapping[str, str]] | None) -> int:
    take_in_small(model)
    with staged(path.with_name(path.name + ".data")) as fresh, staged(path) as temporary:
        # A spill with much that the model no longer refers to (merged duplicates) is not worth keeping.
        fits = spill is not None and spill.parent == path.parent
        if spill is not None and fits and bytes_in(model, spill) > 0.9 * spill.stat().st_size:
            data, proto = spill, to_proto(model)
        else:
            data, proto = fresh, externalized(model, [(large_initializers(model), fresh)])
        digest = digest_synced(data)
        # Another run may be writing the same output: names are chosen and both files renamed by one at a time.
        with locked(path.parent):
            final = _fresh_data_name(path)
            rename_data(proto, {data.name: final.name})
            body = proto.SerializeToString()
            end = seal(body, [digest])
            if spare is not None and len(body) + len(end) + data.stat().st_size > spare[0]:
                del proto.metadata_props[:]
                for key, text in spare[1].items():
                    proto.metadata_props.add(key=key, value=text)
                body = proto.SerializeToString()
                end = seal(body, [digest])
            fill(temporary, [body, end])
            size = temporary.stat().st_size + data.stat().st_size
            os.replace(data, final)
            try:
                replace(temporary, path)
            except OSError:
                final.unlink(missing_ok=True)
                raise
            remove_left_data(path, {final.name})
    return size


def digest_synced(data: Path) -> bytes:
    """Bring a data file to the disk, and meanwhile compute its digest, for which the disk is not needed."""
    with ThreadPoolExecutor(1) as disk:
        written = disk.submit(sync, data)
        digest = file_digest(data)
        written.result()
    return digest


def remove_left_data(path: Path, used: Set[str]) -> None:
    """Remove data files that bear the model's name and that no model in the folder mentions any more.

    Those of the model that was just replaced, and those that a killed run had brought into place but not yet named.
    """
    ours = re.compile(re.escape(path.name) + r"(\.[0-9a-f]{8})?(\.\d{4})?\.data")
    names = {f.name: f for f in path.parent.iterdir()}
    candidates = [n for n in names if ours.fullmatch(n) and n not in used]
    if not candidates:
        return
    # A model that was renamed, be it to "m.onnx.old", still reads the data file of its old name. So every file beside
    # it that may be a model is looked through, which happens only after a model with a data file was replaced or its
    # writing was killed. Where that is too much to read, the data stays: it may be in use.
    with suppress(OSError):  # the model is in place: what cannot be looked at is no reason to call it a failure
        others = [f for n, f in names.items() if not ours.fullmatch(n) and f.is_file()]
        sizes = {f: f.stat().st_size for f in others}
        models = [f for f, size in sizes.items() if 0 < size <= PROTOBUF_LIMIT]
        if sum(sizes[f] for f in models) > _LOOKED_THROUGH:
            return
        for candidate in candidates:
            if not any(_mentions(model, candidate) for model in models):
                names[candidate].unlink(missing_ok=True)


def _mentions(path: Path, name: str) -> bool:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(os.fsencode(name)) >= 0


def check_output(path: Path) -> None:
    """Refuse an output path that cannot become a file, before any work is done.

    Raises:
        UsageError: it is a folder, no regular file, or its folder does not exist.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Give -o the name of a file, such as {path / 'model.onnx'}.")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a regular file, so it cannot be replaced as a whole.")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} does not exist.")


def check_model_output(path: Path) -> None:
    """As `check_output`, for a model.

    Raises:
        UsageError: also as of `check_model_name`.
    """
    check_output(path)
    check_model_name(str(path))


def check_model_name(path: str) -> None:
    """Refuse a path or URL for a model that ends like another format: what is written is ONNX.

    Raises:
        UsageError: its suffix is neither .onnx nor missing.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in ("", ".onnx"):
        hint = " onnxtool package --for ort writes the runtime's own format." if suffix == ".ort" else ""
        raise UsageError(f"{path}: models are written as .onnx files; end the name with .onnx.{hint}")


def _fresh_data_name(path: Path) -> Path:
    plain = path.with_name(path.name + ".data")
    return plain if not plain.exists() else path.with_name(f"{path.name}.{secrets.token_hex(4)}.data")


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
    with writing(path), ExitStack() as stack:
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
