"""`verify`: is a file as onnxtool wrote it, and is it made from a given source?"""

from __future__ import annotations

import os
from pathlib import Path

from onnxtool.errors import InputError
from onnxtool.model.digest import check_seal
from onnxtool.model.io import external_files, read_proto, sha256
from onnxtool.model.metadata import read_history
from onnxtool.report.verify import VerifyReport


def verify(model: str | os.PathLike[str], *, source: str | os.PathLike[str] | None = None) -> VerifyReport:
    """Recompute a file's digest and hold it, and the source's SHA-256, against what the file's metadata says.

    Args:
        model: an .onnx file.
        source: what it is supposed to be made from: a framework file, or an .onnx file that was optimized.

    Returns:
        A report; `ok` when the file is unchanged and, with `source`, a step of its history names that source.

    Raises:
        InputError, UnsafeError, ResourceError: as `read_proto`.
    """
    path = Path(model)
    proto = read_proto(path)
    files = external_files(path)
    recorded, actual = check_seal(path.read_bytes(), files)
    history = read_history({entry.key: entry.value for entry in proto.metadata_props})
    digest = step = None
    if source is not None:
        if not Path(source).is_file():
            raise InputError(f"{source}: no such file.")
        digest = sha256(source)
        step = next((s["command"] for s in history if s.get("source_sha256") == digest), None)
    return VerifyReport(
        model=str(path),
        recorded=recorded,
        actual=actual,
        external=tuple(f.name for f in files),
        history=tuple(history),
        source=None if source is None else str(source),
        source_sha256=digest,
        source_step=step,
    )
