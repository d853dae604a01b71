"""protocol.py of a package: what `serve` does with requests, cut out of its source.

A package's endpoint and `serve` so take and refuse the same, and neither can fall behind the other.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path

from onnxtool.generation import generate, openai_api, sampling
from onnxtool.runtime.protocol_v2 import fast_json, tensors, uploads

_HEAD = '''"""Tensors in the Open Inference Protocol V2 and in plain JSON; no value is rounded, no size is believed."""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from typing import Any

import numpy as np


class InputError(Exception):
    """A request that is not in order."""


class UnsupportedError(Exception):
    """What the protocol cannot carry."""
'''


_CHAT_HEAD = '''"""What a client of OpenAI's API asks for; what would change the answer and is not there is refused."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np


class InputError(Exception):
    """A request that is not in order."""


class UsageError(Exception):
    """A value that an option does not have."""
'''


def write_protocol(folder: Path, names: Sequence[str]) -> None:
    """Write protocol.py for tensors.

    Args:
        folder: where.
        names: of functions and constants of the protocol that are needed; what they use comes along.
    """
    text = "".join(map(inspect.getsource, (uploads, fast_json, tensors)))
    _write(folder, _HEAD, text.replace('    "BF16": np.dtype(ml_dtypes.bfloat16),\n', ""), names)  # needs a package


def write_chat_protocol(folder: Path) -> None:
    """Write protocol.py for texts: how requests are read, answers written and texts ended."""
    text = "".join(map(inspect.getsource, (fast_json, sampling, generate, openai_api)))
    reads = ("loads", "RequestError", "verify_options", "verify_room", "read_prompt", "read_messages", "read_request")
    _write(folder, _CHAT_HEAD, text, (*reads, "ChatWriter", "TextStream"))


def _write(folder: Path, head: str, text: str, names: Sequence[str]) -> None:
    parts = {name: node for node in ast.parse(text).body for name in _defined(node)}
    wanted, pending = set[str](), list(names)
    while pending:
        name = pending.pop()
        if name in parts and name not in wanted:
            wanted.add(name)
            pending += [n.id for n in ast.walk(parts[name]) if isinstance(n, ast.Name)]
    lines, made = text.splitlines(), [head.rstrip("\n")]
    for name, node in parts.items():
        if name in wanted:
            gap = "\n\n" if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else ""
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            made.append(gap + "\n".join(lines[first - 1 : node.end_lineno]))
    (folder / "protocol.py").write_text("\n".join(made) + "\n", encoding="utf-8")


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    yield from (t.id for t in targets if isinstance(t, ast.Name))
