"""`onnxtool.lock`: what every step used and what came out, as digests; no path of this machine, no time, no secret."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from onnxtool.errors import InputError
from onnxtool.model.io.atomic import write_atomic
from onnxtool.workflow.digests import versions

_VERSION = 1


@dataclass
class LockedStep:
    """One step: its key, what that was made of, and the digests of the files that it gave."""

    command: str
    key: str
    uses: dict[str, str]
    made: dict[str, str]


@dataclass
class LockedModel:
    """One model: its steps, and the digest of its output; of external data too, by name."""

    output: str
    files: dict[str, str]
    steps: list[LockedStep] = field(default_factory=list)


class Lock:
    """The lock file."""

    def __init__(self, path: Path, models: dict[str, LockedModel], known: Mapping[str, str], digest: str) -> None:
        self.path, self.models, self.versions, self._digest = path, models, known, digest

    @staticmethod
    def read(path: Path) -> Lock:
        """Read the file; an empty lock where there is none.

        Raises:
            InputError: it is not a lock file.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return Lock(path, {}, {}, "")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path.name}: cannot be read ({error}).") from error
        try:
            table = json.loads(text)
            if table["version"] != _VERSION:
                raise InputError(f"{path.name}: version {table['version']} is not known. Delete the file.")
            models = {
                name: LockedModel(m["output"], dict(m["files"]), [LockedStep(**s) for s in m["steps"]])
                for name, m in table["models"].items()
            }
            return Lock(path, models, dict(table["versions"]), hashlib.sha256(text.encode()).hexdigest())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path.name}: this is not a lock file of onnxtool. Delete it.") from error

    def write(self, models: Mapping[str, LockedModel]) -> bool:
        """Write the file; False when it has this content already."""
        digest = hashlib.sha256()
        for piece in _pieces(models):
            digest.update(piece)
        if digest.hexdigest() == self._digest:
            return False
        write_atomic(self.path, _pieces(models))
        return True

    def changed_versions(self) -> list[str]:
        """Libraries whose version is another than when the lock was written: "onnx 1.22 -> 1.23"."""
        now = versions(everything=True)
        names = sorted({*self.versions, *now})
        return [
            f"{n} {self.versions.get(n, 'none')} -> {now.get(n, 'none')}"
            for n in names
            if self.versions.get(n) != now.get(n)
        ]


def _pieces(models: Mapping[str, LockedModel]) -> Iterator[bytes]:
    """The file, one model after the other: the text of ten thousand steps is never in memory as a whole."""
    yield b'{\n "models": {'
    for index, (name, model) in enumerate(sorted(models.items())):
        text = json.dumps({name: asdict(model)}, indent=1, sort_keys=True)
        inner = text.removeprefix("{\n").removesuffix("\n}").replace("\n", "\n ")
        yield f"{',' if index else ''}\n {inner}".encode()
    rest = json.dumps({"version": _VERSION, "versions": versions(everything=True)}, indent=1, sort_keys=True)
    yield ("\n },\n" if models else "},\n").encode() + rest.removeprefix("{\n").encode() + b"\n"
