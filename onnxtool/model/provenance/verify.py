"""`verify`: is a file as onnxtool wrote it, and is it made from a given source?"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError, UsageError, writing
from onnxtool.model.file import ModelFile
from onnxtool.model.io import check_output, sha256
from onnxtool.model.provenance import signing
from onnxtool.model.provenance.metadata import COMPILE_STEP, check_seal, read_history, versions
from onnxtool.report.verify import VerifyReport


def verify(
    model: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str] | None = None,
    sign: str | os.PathLike[str] | None = None,
    public_key: str | os.PathLike[str] | None = None,
    signature: str | os.PathLike[str] | None = None,
) -> VerifyReport:
    """Recompute a file's digest and hold it, and the source's SHA-256, against what the file's metadata says.

    Args:
        model: an .onnx file.
        source: what it is supposed to be made from: a framework file, or an .onnx file that was optimized.
        sign: a private key in PEM; the model and its external data are signed with it, unless they were changed since
            onnxtool wrote them.
        public_key: a public key in PEM; the signature must be made with its other half.
        signature: where the signature is, or goes; None = MODEL.sig.

    Returns:
        A report; `ok` when the file is unchanged and, with `source`, a step of its history names that source, and, with
        `public_key`, the signature is good. A signed file need not be one that onnxtool wrote.

    Raises:
        InputError, UnsafeError, ResourceError: as `read_proto`; also for keys and signatures that are none.
        UsageError: a signature without a key.
        MissingExtraError: signatures need the package model-signing.
    """
    if signature is not None and sign is None and public_key is None:
        raise UsageError("--signature needs --public-key KEY.pem (to verify it) or --sign KEY.pem (to make it).")
    file = ModelFile(model)
    file.verify()
    path, files = file.path, file.external_files
    recorded, actual = check_seal(path.read_bytes(), files)
    history = read_history(file.header.metadata)
    digest = step = None
    if source is not None:
        if not Path(source).is_file():
            raise InputError(f"{source}: no such file.")
        digest = sha256(source)
        step = next((s["command"] for s in history if s.get("source_sha256") == digest), None)
    bundle = None
    fault = None
    if sign is not None or public_key is not None:
        bundle = path.with_name(path.name + ".sig") if signature is None else Path(signature)
        fault = _signature(path, files, sign, public_key, bundle, changed=recorded != actual)
    return VerifyReport(
        model=str(path),
        recorded=recorded,
        actual=actual,
        external=tuple(f.name for f in files),
        history=tuple(history),
        source=None if source is None else str(source),
        source_sha256=digest,
        source_step=step,
        signature=None if bundle is None else str(bundle),
        signature_made=sign is not None and fault is None,
        signature_fault=fault,
        stale=tuple(_stale(path, history)),
    )


def _stale(path: Path, history: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why a form that a provider has compiled is out of date."""
    step = history[-1] if history else {}
    if step.get("command") != COMPILE_STEP:
        return []
    found = []
    recorded = step.get("versions")
    for package, version in recorded.items() if isinstance(recorded, dict) else ():
        now = versions(package).get(package)
        if now != version:
            found.append(f"compiled with {package} {version}; {now or 'none'} is installed")
    name = step.get("source")
    beside = path.parent / name if isinstance(name, str) and Path(name).name == name else None
    if beside is not None and beside != path and beside.is_file() and sha256(beside) != step.get("source_sha256"):
        found.append(f"{name} beside it is not what it was compiled from")
    return found


def _signature(
    model: Path,
    external: list[Path],
    private_key: str | os.PathLike[str] | None,
    public_key: str | os.PathLike[str] | None,
    bundle: Path,
    *,
    changed: bool,
) -> str | None:
    """Make the signature, verify it, or both; what is wrong with it."""
    if private_key is not None:
        if changed:
            return "not signed: the file was changed after onnxtool wrote it"
        check_output(bundle)
        with writing(bundle):
            signing.sign(model, external, Path(private_key), bundle)
    if public_key is not None:
        return signing.verify_signature(model, external, Path(public_key), bundle)
    return None
