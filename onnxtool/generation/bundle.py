"""A bundle: a folder with a decoder that has a key-value cache, its genai_config.json, tokenizer and chat template.

Its provenance.json says from what it was made, with a digest of each of its files.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError, ResourceError, UnsafeError, UsageError
from onnxtool.model.io import sha256
from onnxtool.model.io.atomic import sweep, sync
from onnxtool.model.json_file import read_json
from onnxtool.model.provenance.metadata import versions
from onnxtool.model.safety.declared_sizes import verify_counts
from onnxtool.report.base import Report, to_plain

CONFIG = "genai_config.json"
PROVENANCE = "provenance.json"
TOKENIZER = "tokenizer.json"
_LEAST_LAYER = 64  # bytes of a model's file: the names of a layer's keys and values, as inputs and as outputs


def is_bundle(path: Path) -> bool:
    """True for a folder with a genai_config.json."""
    return (path / CONFIG).is_file()


@dataclass(frozen=True)
class Bundle:
    """A bundle as it lies on disk.

    Attributes:
        folder: where it is.
        config: what its genai_config.json says.
        model: the decoder's .onnx file.
        layers, heads, kv_heads, head_size, hidden_size, vocabulary: of the decoder.
        context: the most tokens that prompt and answer may have together.
        eos: ids of the tokens that end a text.
        shared_cache: the new keys and values are written into the buffer of the old ones.
    """

    folder: Path
    config: Mapping[str, Any]
    model: Path
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    hidden_size: int
    vocabulary: int
    context: int
    eos: tuple[int, ...]
    shared_cache: bool

    @classmethod
    def open(cls, folder: str | Path) -> Bundle:
        """Read a bundle's configuration.

        Raises:
            InputError: no genai_config.json, or one that lacks what a decoder needs.
            UnsafeError: its model lies outside the folder.
        """
        folder = Path(folder)
        config = read_json(folder / CONFIG)
        try:
            model = config["model"]
            decoder = model["decoder"]
            eos = model.get("eos_token_id")
            made = cls(
                folder=folder,
                config=config,
                model=_inside(folder, str(decoder.get("filename", "model.onnx"))),
                layers=_positive(decoder, "num_hidden_layers"),
                heads=_positive(decoder, "num_attention_heads"),
                kv_heads=_positive(decoder, "num_key_value_heads"),
                head_size=_positive(decoder, "head_size"),
                hidden_size=_positive(decoder, "hidden_size"),
                vocabulary=_positive(model, "vocab_size"),
                context=_positive(model, "context_length"),
                eos=tuple(int(i) for i in (eos if isinstance(eos, list) else [] if eos is None else [eos])),
                shared_cache=bool((config.get("search") or {}).get("past_present_share_buffer", False)),
            )
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise InputError(
                f"{folder / CONFIG}: not the configuration of a decoder ({type(error).__name__}: {error})."
            ) from error
        if not made.model.is_file():
            raise InputError(f"{made.model}: no such file, but {CONFIG} names it.")
        verify_counts(folder / CONFIG, model, tensors=made.model_bytes // _LEAST_LAYER, size=made.model_bytes)
        return made

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(f.stat().st_size for f in self.folder.rglob("*") if f.is_file())

    @property
    def model_bytes(self) -> int:
        """Bytes of the model and of what lies beside it as its external data."""
        return sum(f.stat().st_size for f in self.folder.glob(f"{self.model.name}*") if f.is_file())


def _inside(folder: Path, name: str) -> Path:
    path = folder / name
    if Path(name).is_absolute() or not path.resolve().is_relative_to(folder.resolve()):
        raise UnsafeError(f"{folder / CONFIG}: the model {name!r} lies outside the folder.")
    return path


def _positive(values: Mapping[str, Any], name: str) -> int:
    number = int(values[name])
    if number <= 0 or number > 1 << 31:
        raise ValueError(f"{name} is {number}")
    return number


def check_output(output: Path) -> None:
    """Find out before any work whether a bundle can be written there.

    Raises:
        UsageError: a file, a folder with something else in it, or no folder to make it in.
    """
    if output.is_file():
        raise UsageError(f"{output}: is a file; a bundle is a folder.")
    if output.is_dir() and any(output.iterdir()) and not (is_bundle(output) or (output / PROVENANCE).is_file()):
        raise UsageError(f"{output}: is not empty and not a bundle; choose another folder.")
    parent = output.absolute().parent
    if not parent.is_dir():
        raise UsageError(f"{parent}: no such folder.")
    if not os.access(parent, os.W_OK):
        raise UsageError(f"{parent}: cannot be written to.")


@contextmanager
def staged_folder(output: Path) -> Iterator[Path]:
    """An empty folder beside `output`, which takes its place at the end when it has a provenance file by then.

    What is in `output` then goes as a whole; without, it stays. Folders that a killed process left are removed first.

    Raises:
        ResourceError: no room, or not allowed.
    """
    output = output.absolute()
    sweep(output)
    staged = output.with_name(f".{output.name}.{os.getpid()}-{secrets.token_hex(6)}.tmp")
    try:
        staged.mkdir()
        yield staged
        if (staged / PROVENANCE).is_file():
            for file in staged.rglob("*"):
                if file.is_file():
                    sync(file)
            _take_place(staged, output)
    except OSError as error:
        raise ResourceError(f"{output}: cannot be written ({error.strerror or error}).") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _take_place(staged: Path, output: Path) -> None:
    old = None
    if output.exists():
        old = output.with_name(f".{output.name}.{os.getpid()}-{secrets.token_hex(6)}.tmp")
        os.rename(output, old)
    try:
        os.rename(staged, output)
    except OSError:
        if old is not None:
            os.rename(old, output)
        raise
    with suppress(OSError):
        sync(output.parent)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


_SCHEMA = "onnxtool/provenance/1"
_PACKAGES = ("onnx", "onnxruntime", "onnxruntime-genai", "mobius-onnx", "transformers", "tokenizers", "torch")


def record(folder: Path, command: str, source: Path, report: Report, earlier: Path | None = None) -> None:
    """Write provenance.json: digests, history, proof. It is the last file to be written.

    Args:
        folder: the bundle.
        command: what made it.
        source: what it was made from.
        report: its figures are kept, without times and places.
        earlier: a bundle whose history goes before.
    """
    from onnxtool import __version__

    facts = {k: v for k, v in to_plain(report).items() if k not in ("seconds", "output", "source", "written", "bundle")}
    step = {
        "command": command,
        "onnxtool": __version__,
        "source": source.name,
        "source_sha256": source_digest(source),
        "versions": versions(*_PACKAGES),
        "proof": facts,
    }
    steps = history(earlier) if earlier is not None else []
    document = {"schema": _SCHEMA, "files": digests(folder), "history": [*steps, step]}
    (folder / PROVENANCE).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file but the provenance itself, by its path in the folder."""
    files = sorted(f for f in folder.rglob("*") if f.is_file() and f != folder / PROVENANCE)
    return {f.relative_to(folder).as_posix(): sha256(f) for f in files}


def total(files: dict[str, str]) -> str:
    """One digest of all files."""
    return "sha256:" + hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def source_digest(source: Path) -> str:
    """SHA-256 of a file; of a folder, over the sorted names and digests of its files."""
    return sha256(source) if source.is_file() else total(digests(source)).removeprefix("sha256:")


def history(folder: Path) -> list[dict[str, Any]]:
    """The steps that a bundle's provenance names; none where it has none."""
    path = folder / PROVENANCE
    if not path.is_file():
        return []
    steps = read_json(path).get("history")
    return [s for s in steps if isinstance(s, dict)] if isinstance(steps, list) else []


def recorded_files(folder: Path) -> dict[str, str]:
    """The digests that a bundle's provenance names.

    Raises:
        InputError: it has none.
    """
    path = folder / PROVENANCE
    files = read_json(path).get("files") if path.is_file() else None
    if not isinstance(files, dict):
        raise InputError(f"{path}: names no files; onnxtool did not write this bundle.")
    return {str(k): str(v) for k, v in files.items()}
