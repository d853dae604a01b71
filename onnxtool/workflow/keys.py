"""The key of a step: a digest of all that decides what it gives. Content, options, versions; no path, no time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError
from onnxtool.words import texts
from onnxtool.workflow import digests
from onnxtool.workflow.digests import MEASURE, text_digest
from onnxtool.workflow.instances import Instance
from onnxtool.workflow.run_step import Files, StepTask
from onnxtool.workflow.steps import Step
from onnxtool.workflow.store import FORMAT
from onnxtool.workflow.user_files import code_file, relative_to_any, static_reads

_CODE_SUFFIX = ".py:"
_LONGEST_NAME = 200


class Digests:
    """Digests of the user's files, each taken once in a build."""

    def __init__(self) -> None:
        self._known: dict[Path, str] = {}
        self._libraries: dict[bool, str] = {}

    def of(self, path: Path) -> str:
        """As `digests.path_digest`."""
        if path not in self._known:
            self._known[path] = digests.path_digest(path)
        return self._known[path]

    def libraries(self, everything: bool) -> str:
        """Digest of the versions that count."""
        if everything not in self._libraries:
            self._libraries[everything] = text_digest(digests.versions(everything))
        return self._libraries[everything]


@dataclass
class _Ingredients:
    """What a key is made of, and the files that were looked at for it."""

    uses: dict[str, str]
    inputs: list[tuple[str, str]]
    runs_code: bool = False


def make_task(
    instance: Instance,
    step: Step,
    root: Path,
    store: Path,
    known: Digests,
    source: Path | None,
    model: Files | None,
    reference: Files | None,
    reference_path: Path | None,
    processor: Callable[[tuple[str, ...]], str],
) -> StepTask:
    """Everything that a step needs, with its key; `processor` tells that of the machine which has the step's tags.

    Raises:
        InputError: a file that it names is not there.
        UnsupportedError: no machine has the tags that it asks for.
    """
    found = _Ingredients({"format": str(FORMAT), "command": step.command}, [])
    _options(found, step, root, known)
    everything = step.runs_framework or found.runs_code
    uses = found.uses
    uses["tool"] = digests.tool_digest()
    uses["platform"] = digests.platform_name()
    uses["libraries"] = known.libraries(everything)
    tags = (MEASURE, *instance.runs_on) if step.measured else instance.runs_on if "provider" in step.options else ()
    if step.measured:
        uses["processor"] = processor(tags)
    if step.searches:
        uses["limits"] = text_digest(asdict(instance.constraints))
    if model is not None:
        uses["model"] = files_digest(model)
    elif source is not None:
        uses["source"] = known.of(source)
        uses["source name"] = source.name  # stands in the history that is written into the model
        found.inputs.append((str(source), uses["source"]))
    if step.uses_reference:
        if reference is not None:
            uses["reference"] = files_digest(reference)
        elif reference_path is not None:
            uses["reference"] = known.of(reference_path)
            found.inputs.append((str(reference_path), uses["reference"]))
    if step.runs_framework:
        for pattern in instance.depends:
            for path in _matching(root, pattern, instance.name):
                _add(found, f"depends {relative_to_any(path, [root])}", path, known)
    return StepTask(
        key=text_digest(uses),
        uses=uses,
        command=step.command,
        options=step.options,
        limits=instance.constraints,
        source=instance.source if instance.source is None or "://" not in instance.source else str(source),
        model=model,
        reference=reference if step.uses_reference else None,
        reference_path=None if reference_path is None else str(reference_path),
        inputs=tuple(found.inputs),
        root=str(root),
        store=str(store),
        watched=everything,
        measured=step.measured,
        tags=tags,
    )


def files_digest(files: Files) -> str:
    """Digest of the files of a result."""
    return text_digest({name: file.sha256 for name, file in files.items()})


def _options(found: _Ingredients, step: Step, root: Path, known: Digests) -> None:
    described = step.declared()
    folders = [root / p for p in texts(step.options.get("pythonpath", ()))] + [root]
    for name, value in step.options.items():
        use = f"option {name}"
        if described[name].role in ("", "operation", "folders"):
            found.uses[use] = _plain(found, value, root, known) if described[name].role != "folders" else "see code"
            continue
        digests_of = []
        for text in texts(value):
            if described[name].role == "code" or _CODE_SUFFIX in text:
                digests_of.append(_code(found, name, text, folders, known))
            else:
                path = _there(root / text, name)
                found.inputs.append((str(path), known.of(path)))
                digests_of.append(known.of(path) + path.suffix)
        found.uses[use] = text_digest(digests_of)
    if step.ordered:
        found.uses["order"] = text_digest(list(step.options))


def _plain(found: _Ingredients, value: Any, root: Path, known: Digests) -> str:
    """The digest of an option that is no file by itself; the content of whatever file it names belongs to it:
    "weight=values.npy", "other.onnx", checkpoint = "net.pt".
    """
    named = {}
    for text in _words(value):
        for part in {text, text.partition("=")[2], text.partition(":")[2]}:
            path = root / part
            if part and len(part) < _LONGEST_NAME and "\0" not in part and path.is_file():
                found.inputs.append((str(path), known.of(path)))
                named[part] = known.of(path)
    return text_digest([value, sorted(named.values())])


def _words(value: Any) -> Iterator[str]:
    """Every text in an option, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _words(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _words(inner)


def _code(found: _Ingredients, name: str, text: str, folders: list[Path], known: Digests) -> str:
    """The digest of the code behind "file.py:function" or "package.module:Class", with what it names and imports."""
    place, colon, attribute = text.rpartition(":")
    if not colon:
        return text  # a word, such as accuracy
    found.runs_code = True
    file = code_file(place, folders)
    if file is None:
        if place.endswith(".py"):
            raise InputError(f"{name} {text}: no such file {place}.")
        return text
    files = sorted(static_reads(file, folders))
    found.inputs += [(str(f), known.of(f)) for f in files]
    return text_digest([attribute, [(relative_to_any(f, [file.parent, *folders]), known.of(f)) for f in files]])


def _add(found: _Ingredients, use: str, path: Path, known: Digests) -> None:
    found.uses[use] = known.of(path)
    found.inputs.append((str(path), known.of(path)))


def _there(path: Path, name: str) -> Path:
    if not path.exists():
        raise InputError(f"{name}: no such file {path.name}.")
    return path


def _matching(root: Path, pattern: str, name: str) -> Iterator[Path]:
    paths = sorted(root.glob(pattern))
    if not paths:
        raise InputError(f"{name}: depends: no file is called {pattern}.")
    yield from paths


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names of what differs between two sets of ingredients, the user's own first."""
    names = [n for n in {**before, **now} if before.get(n) != now.get(n)]
    last = ("format", "platform", "tool", "libraries", "processor")
    return sorted(names, key=lambda n: (n in last, n))
