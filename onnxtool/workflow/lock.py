"""`onnxtool.lock`: what every step used and what came out, as digests; no path of this machine, no time, no secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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

    def __init__(self, path: Path, models: dict[str, LockedModel], known: Mapping[str, str], text: str) -> None:
        self.path, self.models, self.versions, self._text = path, models, known, text

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
            return Lock(path, models, dict(table["versions"]), text)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path.name}: this is not a lock file of onnxtool. Delete it.") from error

    def write(self, models: Mapping[str, LockedModel]) -> bool:
        """Write the file; False when it has this content already."""
        table: dict[str, Any] = {
            "version": _VERSION,
            "versions": versions(everything=True),
            "models": {
                name: {
                    "output": m.output,
                    "files": m.files,
                    "steps": [{"command": s.command, "key": s.key, "uses": s.uses, "made": s.made} for s in m.steps],
                }
                for name, m in sorted(models.items())
            },
        }
        text = json.dumps(table, indent=1, sort_keys=True) + "\n"
        if text == self._text:
            return False
        write_atomic(self.path, text.encode())
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
