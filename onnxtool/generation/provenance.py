"""Where a bundle came from: the digests of its files, the steps that made it, and what was proven."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError
from onnxtool.generation.bundle import PROVENANCE, read_json
from onnxtool.model.io import sha256
from onnxtool.model.provenance.metadata import versions
from onnxtool.report.base import Report, to_plain

_SCHEMA = "onnxtool/provenance/1"
_PACKAGES = ("onnx", "onnxruntime", "onnxruntime-genai", "mobius-onnx", "transformers", "tokenizers", "torch")


def record(folder: Path, command: str, source: Path, report: Report, earlier: Path | None = None) -> None:
    """Write provenance.json: digests, history, proof. It is the last file to be written.

    Args:
        folder: the bundle.
        command: what made it.
        source: what it was made from.
        report: its figures are kept, without times and places.
        earlier: a bundle whose history goes before.
    """
    from onnxtool import __version__

    facts = {k: v for k, v in to_plain(report).items() if k not in ("seconds", "output", "source", "written", "bundle")}
    step = {
        "command": command,
        "onnxtool": __version__,
        "source": source.name,
        "source_sha256": source_digest(source),
        "versions": versions(*_PACKAGES),
        "proof": facts,
    }
    steps = history(earlier) if earlier is not None else []
    document = {"schema": _SCHEMA, "files": digests(folder), "history": [*steps, step]}
    (folder / PROVENANCE).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file but the provenance itself, by its path in the folder."""
    files = sorted(f for f in folder.rglob("*") if f.is_file() and f != folder / PROVENANCE)
    return {f.relative_to(folder).as_posix(): sha256(f) for f in files}


def total(files: dict[str, str]) -> str:
    """One digest of all files."""
    return "sha256:" + hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def source_digest(source: Path) -> str:
    """SHA-256 of a file; of a folder, over the sorted names and digests of its files."""
    return sha256(source) if source.is_file() else total(digests(source)).removeprefix("sha256:")


def history(folder: Path) -> list[dict[str, Any]]:
    """The steps that a bundle's provenance names; none where it has none."""
    path = folder / PROVENANCE
    if not path.is_file():
        return []
    steps = read_json(path).get("history")
    return [s for s in steps if isinstance(s, dict)] if isinstance(steps, list) else []


def recorded_files(folder: Path) -> dict[str, str]:
    """The digests that a bundle's provenance names.

    Raises:
        InputError: it has none.
    """
    path = folder / PROVENANCE
    files = read_json(path).get("files") if path.is_file() else None
    if not isinstance(files, dict):
        raise InputError(f"{path}: names no files; onnxtool did not write this bundle.")
    return {str(k): str(v) for k, v in files.items()}
