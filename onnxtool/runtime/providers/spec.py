"""`NAME[:KEY=VALUE,...]`: how an execution provider and its options are asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onnxtool.errors import UsageError

_SUFFIX = "ExecutionProvider"
_LARGEST_FILE = 1 << 20
_OPENING, _CLOSING = "{[", "}]"


@dataclass(frozen=True)
class ProviderSpec:
    """One execution provider as the user asked for it.

    Attributes:
        name: short ("cuda") or in full ("CUDAExecutionProvider").
        options: (key, value) in the order given.
    """

    name: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """The form that `parse_provider` reads."""
        return self.name + (":" + ",".join(f"{k}={v}" for k, v in self.options) if self.options else "")

    def get(self, key: str) -> str | None:
        """The value of an option; None when it is not given."""
        return dict(self.options).get(key)

    def having(self, key: str, value: str) -> ProviderSpec:
        """The same with one option set."""
        return replace(self, options=(*((k, v) for k, v in self.options if k != key), (key, value)))


def short_name(name: str) -> str:
    """ "CUDAExecutionProvider" -> "cuda"; a full name of any case, or a short one."""
    lowered = name.lower()
    return lowered.removesuffix(_SUFFIX.lower()) or lowered


def parse_provider(text: str) -> ProviderSpec:
    """Parse `NAME`, `NAME:KEY=VALUE,...` or `NAME:@FILE.json` (an object of keys and values; more may follow).

    A comma inside {} or [] belongs to the value, so that JSON can be given as it is.

    Raises:
        UsageError: another form, or a file that does not hold such an object.
    """
    name, separator, rest = text.strip().partition(":")
    if not name or (separator and not rest.strip()):
        raise UsageError(f"--provider {text}: write NAME, or NAME:KEY=VALUE,... such as cuda:device_id=1.")
    options: dict[str, str] = {}
    for part in _parts(rest):
        if part.startswith("@"):
            options |= _read(part[1:], text)
            continue
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--provider {text}: '{part}' is not KEY=VALUE, nor @FILE.json.")
        options[key.strip()] = value.strip()
    return ProviderSpec(name, tuple(options.items()))


def parse_providers(texts: str | Sequence[str]) -> tuple[ProviderSpec, ...]:
    """Parse providers in order of priority; each may be named once.

    Raises:
        UsageError: another form, or one provider twice.
    """
    specs = tuple(parse_provider(t) for t in ([texts] if isinstance(texts, str) else texts)) or (ProviderSpec("cpu"),)
    names = [short_name(s.name) for s in specs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"--provider {name} is given {names.count(name)} times; a session takes each provider once."
            )
    return specs


def _parts(text: str) -> Iterator[str]:
    """Split at commas outside brackets."""
    depth, start = 0, 0
    for position, character in enumerate(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth == 0:
            yield text[start:position].strip()
            start = position + 1
    if text:
        yield text[start:].strip()


def _read(name: str, text: str) -> dict[str, str]:
    path = Path(os.path.expanduser(name))
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise UsageError(f"--provider {text}: {path} is too large for options.")
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--provider {text}: {path} cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise UsageError(f"--provider {text}: {path} is not JSON ({error}).") from error
    if not isinstance(loaded, Mapping):
        raise UsageError(f"--provider {text}: {path} holds no object of keys and values.")
    return {str(key): value if isinstance(value, str) else json.dumps(value) for key, value in loaded.items()}
