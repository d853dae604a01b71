"""Which files the user's own code reads: seen in the code before it runs, and watched while it runs.

A step that runs code is stale when any of these changes. Before the run: the modules that the code imports from the
user's folders, and every text in it that is the name of a file. During the run: every file that Python opens and every
module that is imported, outside of the installation. What native code opens by a name that is put together at run time
is not seen; `depends` in the build file names it.
"""

from __future__ import annotations

import ast
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_LONGEST_NAME = 300
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/run", "/lib", "/lib64", "/usr/lib", "/usr/share")


def code_file(place: str, folders: Sequence[Path]) -> Path | None:
    """The file of "file.py", in the last of the folders, or of "package.module"; None for an installed module."""
    if place.endswith(".py"):
        file = Path(folders[-1]) / place
        return file if file.is_file() else None
    return next(iter(_module_files(place, folders)), None)


def static_reads(start: Path, folders: Sequence[Path]) -> set[Path]:
    """The modules that a file imports from `folders` and from its own, theirs in turn, and the files that they name."""
    found: set[Path] = set()
    pending = [start.resolve()]
    while pending:
        file = pending.pop()
        if file in found:
            continue
        found.add(file)
        if file.suffix != ".py":
            continue
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        places = [file.parent, start.resolve().parent, *folders]
        for node in ast.walk(tree):
            for name in _imported(node, file):
                pending += _module_files(name, places)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                pending += _named_files(node.value, places)
    return found


def _imported(node: ast.AST, file: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:  # relative: seen from the folder of the file, or one above it for each further dot
            package = file.parent
            for _ in range(node.level - 1):
                package = package.parent
            base = f"{package}|{base}"
        yield base
        yield from (f"{base}.{alias.name}" if not base.endswith("|") else base + alias.name for alias in node.names)


def _module_files(name: str, places: Iterable[Path]) -> list[Path]:
    """Files of a module and of the packages that it is in."""
    folder, bar, rest = name.rpartition("|")
    roots = [Path(folder)] if bar else list(places)
    parts = [p for p in rest.split(".") if p] if bar else name.split(".")
    for root in roots:
        files: list[Path] = []
        at = Path(root)
        if bar and (at / "__init__.py").is_file():
            files.append(at / "__init__.py")
        for part in parts:
            if (at / part / "__init__.py").is_file():
                files.append(at / part / "__init__.py")
            elif (at / f"{part}.py").is_file():
                files.append(at / f"{part}.py")
            at = at / part
        if files:
            return [f.resolve() for f in reversed(files)]
    return []


def _named_files(text: str, places: Iterable[Path]) -> list[Path]:
    if not text or len(text) > _LONGEST_NAME or "\n" in text or "\0" in text:
        return []
    found = []
    for place in [*places, Path.cwd()]:
        try:
            if (place / text).is_file():
                found.append((place / text).resolve())
        except OSError:
            continue
    return found


class Recorder:
    """Files that Python opened for reading, and modules that it imported, while this was at work."""

    def __init__(self) -> None:
        self.opened: set[str] = set()


_recorders: list[Recorder] = []
_hooked: list[bool] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _recorders and isinstance(arguments[0], (str, bytes)):
        mode = arguments[1]
        if mode is None or not set(str(mode)) & set("wax+"):
            name = arguments[0] if isinstance(arguments[0], str) else arguments[0].decode(errors="surrogateescape")
            _recorders[-1].opened.add(name)


@contextmanager
def recorded() -> Iterator[Recorder]:
    """Watch which files Python opens inside the block; afterwards, forget the user's modules that it imported.

    A module that stays would be taken for that of the next model, whose file may only have the same name.
    """
    if not _hooked:
        sys.addaudithook(_hook)  # cannot be removed again: it looks at `_recorders` and is done
        _hooked.append(True)
    recorder = Recorder()
    before = set(sys.modules)
    _recorders.append(recorder)
    try:
        yield recorder
    finally:
        _recorders.pop()
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and is_users(Path(file)):
                recorder.opened.add(file)
                del sys.modules[name]


def users_files(recorder: Recorder, besides: Iterable[Path]) -> list[Path]:
    """What was opened and is the user's: regular files outside of the installation and of temporary folders."""
    others = [p.resolve() for p in besides]
    found = set()
    for name in recorder.opened:
        path = Path(name).resolve()
        if "__pycache__" in path.parts or not path.is_file() or not is_users(path):
            continue
        if not any(path == other or other in path.parents for other in others):
            found.add(path)
    return sorted(found)


def is_users(path: Path) -> bool:
    """True for a file that is not part of an installation, of the system, or temporary."""
    path = path.resolve()
    return not any(root in path.parents for root in _installation())


def _installation() -> list[Path]:
    if not _roots:
        named = [str(Path(__file__).parents[1]), *_SYSTEM, *site.getsitepackages(), site.getusersitepackages()]
        named += [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        named += [f"{prefix}/{part}" for prefix in (sys.prefix, sys.base_prefix) for part in ("lib", "share", "etc")]
        home = Path.home()
        named += [str(home / ".cache" / n) for n in ("matplotlib", "fontconfig", "pip", "onnxtool")]
        named += [str(home / ".config"), str(home / ".keras"), str(home / ".triton")]
        _roots.extend(Path(n).resolve() for n in named)
    # Libraries make folders of temporary files under names of their own.
    return [*_roots, *Path(tempfile.gettempdir()).glob("torchinductor*")]


_roots: list[Path] = []


def relative_to_any(path: Path, folders: Iterable[Path]) -> str:
    """How a file is called from the first of the folders that it lies below; empty when it lies below none."""
    path = path.resolve()
    for folder in folders:
        if path.is_relative_to(folder.resolve()):
            return path.relative_to(folder.resolve()).as_posix()
    return ""
