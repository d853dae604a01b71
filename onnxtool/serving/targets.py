"""Which models a server has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from onnxtool.errors import InputError, OnnxToolError, UsageError
from onnxtool.options.serve import ServeOptions


@dataclass(frozen=True)
class ServeTarget:
    """One model to serve.

    Attributes:
        name: in the URL.
        version: in the URL; whole numbers order themselves, the highest answers where no version is named.
        path: the .onnx file, or the bundle's folder.
        text: how the user has named it.
        options: of this model alone; None for those of the server.
    """

    name: str
    version: str
    path: Path
    text: str = ""
    options: ServeOptions | None = None

    @property
    def labels(self) -> dict[str, str]:
        """What events and metrics call it."""
        return {"model": self.name, "version": self.version}

    @property
    def is_bundle(self) -> bool:
        """Whether it is a bundle, whose runs are texts; a model is a file."""
        return self.path.is_dir()


def find_versions(
    texts: Sequence[str], last: Sequence[ServeTarget], own: Mapping[str, ServeOptions]
) -> tuple[ServeTarget, ...]:
    """What is to be served now: folders with versions are read again, all else stays.

    Args:
        texts, own: as of `parse_targets`.
        last: what it gave before.
    """
    found = list[ServeTarget]()
    for text in texts:
        try:
            found += parse_targets([text], own)
        except (OnnxToolError, OSError):  # a file that is gone, or a folder that cannot be read now
            found += [t for t in last if t.text == text]
    return tuple(found)


def parse_targets(
    texts: Sequence[str], own: Mapping[str, ServeOptions] = MappingProxyType({})
) -> tuple[ServeTarget, ...]:
    """Read PATH, NAME=PATH and NAME:VERSION=PATH; a folder with numbered folders holds versions of one model.

    Args:
        texts: as they are written.
        own: options of single models, by these texts.

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
        found += [replace(t, text=text, options=own.get(text)) for t in _versions(path, name, version)]
    seen = set()
    for target in found:
        if not all(map(_fits_url, (target.name, target.version))):
            raise UsageError(f"{target.name!r}: does not fit into a URL; give the model a name with NAME=PATH.")
        if (target.name, target.version) in seen:
            raise UsageError(
                f"{target.name!r}, version {target.version}, is there twice; tell them apart with NAME=PATH or "
                "NAME:VERSION=PATH."
            )
        seen.add((target.name, target.version))
    return tuple(found)


def _fits_url(text: str) -> bool:
    return bool(text.strip(".")) and text.isprintable() and not any(c in text for c in "/?#%\\ ")


def _versions(path: Path, name: str, version: str) -> list[ServeTarget]:
    from onnxtool.generation.bundle import is_bundle

    if not path.is_dir() or is_bundle(path):
        return [ServeTarget(name or (path.name if path.is_dir() else path.stem), version or "1", path)]
    numbered = sorted((d for d in path.iterdir() if d.name.isdigit() and d.is_dir()), key=lambda d: int(d.name))
    found = [ServeTarget(name or path.name, d.name, m) for d in numbered for m in [d / "model.onnx"] if m.is_file()]
    if not found or version:
        raise InputError(f"{path}: a folder must be a bundle, or hold models as 1/model.onnx, 2/model.onnx.")
    return found
