"""Digests of what a step reads: files, folders, libraries, the processor. Content and versions, no paths or times."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from onnxtool.errors import reading
from onnxtool.model.io import sha256
from onnxtool.runtime import cpu

MEASURE = "measure"  # the tag of machines that latency is measured on
_DIST = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)\.(?:dist|egg)-info")
# Libraries that write or run ONNX, whatever the step. Steps that run a framework or code of the user's read them all.
_ONNX = re.compile(r"onnx.*|numpy|protobuf|ml_dtypes|scipy|pillow")


def text_digest(value: Any) -> str:
    """SHA-256 in hex of plain JSON data, in one spelling."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()).hexdigest()


def path_digest(path: Path) -> str:
    """SHA-256 in hex of a file or folder; of a folder over the sorted relative names and digests of its files.

    The external data of an .onnx file belongs to it.

    Raises:
        InputError: it cannot be read.
    """
    with reading(path):
        if path.is_dir():
            files = sorted(f for f in path.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
            return text_digest([(f.relative_to(path).as_posix(), sha256(f)) for f in files])
        beside = external_data(path)
        own = sha256(path)
        return own if not beside else text_digest([own, [(f.name, sha256(f)) for f in beside]])


def external_data(path: Path) -> list[Path]:
    """Files beside an ONNX file that hold its weights; empty for every other file."""
    if path.suffix != ".onnx" or not _mentions_location(path):
        return []
    from onnxtool.model import io

    return sorted(io.external_files(path))


def _mentions_location(path: Path) -> bool:
    """Whether the key of external data is in a file at all; looking is much faster than parsing."""
    before = b""
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            if b"location" in before + chunk:
                return True
            before = chunk[-16:]
    return False


@cache
def tool_digest() -> str:
    """Digest of this program's own Python files: a version number does not change with every change of the code."""
    root = Path(__file__).parents[1]
    whole = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        if file.relative_to(root).parts[0] not in ("cli", "workflow"):  # these do not change what a step gives
            whole.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    for name in ("steps.py", "run_step.py"):
        whole.update((root / "workflow" / name).read_bytes())
    return whole.hexdigest()


@cache
def installed() -> Mapping[str, str]:
    """Versions of all installed distributions, read off the names of their folders."""
    found: dict[str, str] = {}
    for entry in sys.path:
        folder = Path(entry or ".")
        if folder.is_dir():
            for item in folder.iterdir():
                match = _DIST.fullmatch(item.name)
                if match is not None:
                    found.setdefault(match["name"].lower().replace("-", "_"), match["version"])
    for own in ("onnxtool", "onnxtool_cli"):  # `tool_digest` stands for it
        found.pop(own, None)
    return dict(sorted(found.items()))


def versions(everything: bool) -> dict[str, str]:
    """The versions that a step's result may depend on.

    Args:
        everything: True for steps that run a framework or code of the user's, which may import any of them.
    """
    plain = {name: version for name, version in installed().items() if everything or _ONNX.fullmatch(name)}
    return {"python": platform.python_version(), **plain}


@cache
def platform_name() -> str:
    """Operating system and kind of processor."""
    return f"{platform.system()}-{platform.machine()}"


@cache
def processor() -> str:
    """The processor, its instruction sets and how many cores may be used: what measured times depend on."""
    features = ",".join(f.name for f in cpu.features() if f.present)
    return f"{cpu.model_name()}; {cpu.usable_cores()} cores; {features}"


def own_tags() -> frozenset[str]:
    """What this machine may be asked for by `runs-on`: to measure, and its kind of processor."""
    machine = platform.machine().lower()
    return frozenset({MEASURE, {"aarch64": "arm64", "amd64": "x86_64"}.get(machine, machine)})
