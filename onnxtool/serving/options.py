"""What a server is told: addresses, limits, and how models are run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onnxtool.errors import InputError, UsageError
from onnxtool.runtime.session.session import DEFAULT, SessionOptions

Batching = Literal["auto", "off"]
Reload = Literal["equal", "interface", "off"]


@dataclass(frozen=True)
class ServeLimits:
    """What one request, and all of them together, may take.

    Attributes:
        request_bytes: of a body.
        json_bytes: of the JSON in a body; parsed JSON takes many times its size in memory.
        buffered_bytes: of all bodies that are held at a time.
        connections: open at a time.
        queue: requests that may wait for a model while others run; more are refused with 429.
        header_seconds: from the first byte of a request (or from connecting) to the end of its headers.
        body_seconds: from there to the end of its body.
        run_seconds: of waiting and running together; then the run is ended and the answer is 504.
        drain_seconds: after SIGTERM, for what has been accepted.
    """

    request_bytes: int = 64 << 20
    json_bytes: int = 16 << 20
    buffered_bytes: int = 1 << 30
    connections: int = 1024
    queue: int = 64
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    run_seconds: float = 60.0
    drain_seconds: float = 30.0


@dataclass(frozen=True)
class ServeOptions:
    """How to serve.

    Attributes:
        host: address to bind to; localhost unless told otherwise.
        port: 0 for any free one.
        tokens: any of these must stand in a request's Authorization header; empty for no such rule.
        certificate, key: PEM files for TLS.
        limits: what requests may take.
        session: how models are run.
        concurrency: runs of one model at a time; None for what fits the cores.
        batching: "off" runs every request alone; "auto" joins requests that wait, for models on which that was measured
            to gain. That no request then changes the answer to another was tried on a few random inputs, not shown.
        reload: when a model's file changes, take it after `check` and when its answers are equal to the present ones
            ("equal"), or after `check` and when its inputs and outputs are the same ("interface"), or never ("off").
        reload_seconds: between two looks at the files.
        access_log: a line for every request.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    tokens: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    limits: ServeLimits = ServeLimits()
    session: SessionOptions = DEFAULT
    concurrency: int | None = None
    batching: Batching = "off"
    reload: Reload = "equal"
    reload_seconds: float = 1.0
    access_log: bool = False

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise UsageError("TLS takes both a certificate and its key.")


@dataclass(frozen=True)
class ServeTarget:
    """One model to serve.

    Attributes:
        name: in the URL.
        version: in the URL; whole numbers order themselves, the highest answers where no version is named.
        path: the .onnx file, or the bundle's folder.
    """

    name: str
    version: str
    path: Path


def parse_targets(texts: Sequence[str]) -> tuple[ServeTarget, ...]:
    """Read PATH, NAME=PATH and NAME:VERSION=PATH; a folder with numbered folders holds versions of one model.

    Raises:
        UsageError: two models of one name and version, or a name that does not fit into a URL.
        InputError: no such file.
    """
    found: list[ServeTarget] = []
    for text in texts:
        label, equals, rest = text.rpartition("=")
        if equals and not Path(text).exists():
            name, _, version = label.partition(":")
            path = Path(rest)
        else:
            name, version, path = "", "", Path(text)
        if not path.exists():
            raise InputError(f"{path}: no such file.")
        found += _versions(path, name, version)
    seen = set()
    for target in found:
        if not target.name or not _fits_url(target.name + target.version) or not target.version:
            raise UsageError(f"{target.name!r}: does not fit into a URL; give the model a name with NAME=PATH.")
        if (target.name, target.version) in seen:
            raise UsageError(
                f"{target.name!r}, version {target.version}, is there twice; tell them apart with NAME=PATH or "
                "NAME:VERSION=PATH."
            )
        seen.add((target.name, target.version))
    return tuple(found)


def _fits_url(text: str) -> bool:
    return text.isprintable() and not any(c in text for c in "/?#%\\ ")


def _versions(path: Path, name: str, version: str) -> list[ServeTarget]:
    from onnxtool.generation.bundle import is_bundle

    if not path.is_dir() or is_bundle(path):
        return [ServeTarget(name or (path.name if path.is_dir() else path.stem), version or "1", path)]
    numbered = sorted((d for d in path.iterdir() if d.name.isdigit() and d.is_dir()), key=lambda d: int(d.name))
    found = [ServeTarget(name or path.name, d.name, m) for d in numbered for m in [d / "model.onnx"] if m.is_file()]
    if not found or version:
        raise InputError(f"{path}: a folder must be a bundle, or hold models as 1/model.onnx, 2/model.onnx.")
    return found


def read_tokens(path: Path) -> tuple[str, ...]:
    """The tokens of a file, one a line; lines that begin with # are comments.

    Raises:
        InputError: cannot be read, or holds none.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}).") from error
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens:
        raise InputError(f"{path}: holds no token; write one a line.")
    return tokens
