"""What a model file must pass before it is served: `check` in a process of its own, a load, a run, and, when it takes
the place of another, the same interface and equal answers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from onnxtool.errors import InputError, OnnxToolError, ResourceError, UnsupportedError
from onnxtool.generation.bundle import Bundle
from onnxtool.generation.tokenizer import BundleTokenizer
from onnxtool.model.io.read import external_files, read_proto
from onnxtool.model.safety.limits import DEFAULT
from onnxtool.model.safety.tensors import all_tensors, external_ref, resolve_inside
from onnxtool.options.serve import Reload
from onnxtool.options.session import SessionOptions
from onnxtool.runtime.probes import find_probes
from onnxtool.runtime.protocol_v2.tensors import tensor_metadata
from onnxtool.runtime.worker.tasks import run_python
from onnxtool.serving.served_model import ServingRunner

_COMMAND_SECONDS = 600
_TRIES = 3
_PREFIX, _MODEL = "onnxtool-serve-", "model"
_ADVICE = "What is meant to differ needs --reload interface."

Signature = tuple[tuple[str, int, int], ...]


class BundleTexts:
    """What turns requests for texts into a bundle's tokens."""

    def __init__(self, folder: Path) -> None:
        """Read it; errors as of `Bundle.open` and `BundleTokenizer`."""
        self.bundle, self.tokenizer = Bundle.open(folder), BundleTokenizer(folder)


def file_signature(path: Path) -> Signature:
    """Path, size and time of the model and its external data, or of all files of a bundle's folder: another one means
    a change.
    """
    if path.is_dir():
        return _states(path.rglob("*"))
    own = _states([path])
    return own + _states(_external_files(own)) if own else own


@lru_cache(maxsize=256)
def _external_files(model: Signature) -> list[Path]:
    """The files that a model names in its header, which is read when it has changed."""
    return external_files(Path(model[0][0]))


def _states(files: Iterable[Path]) -> Signature:
    found = []
    for file in sorted(files):
        with suppress(OSError):
            status = file.stat()
            found.append((str(file), status.st_size, status.st_mtime_ns))
    return tuple(found)


class PrivateCopy:
    """A copy of a model and its external data, or of a bundle's folder, that nobody else writes: what is checked is
    what is served, again after a new start of its process too.

    Attributes:
        path: of the copied model.
        signature: of the files that were copied.
    """

    def __init__(self, path: Path) -> None:
        """Copy a model; once more when it changes meanwhile.

        Raises:
            InputError, UnsafeError, ResourceError: as of `read_proto`, or the files cannot be copied.
        """
        for _ in range(_TRIES):
            self.signature = file_signature(path)
            self._copy(path)
            if file_signature(path) == self.signature:
                return
            self.close()
        raise InputError(f"{path}: keeps changing while it is loaded.")

    def _copy(self, path: Path) -> None:
        self._folder = TemporaryDirectory(prefix=_PREFIX)
        self._held = _hold(Path(self._folder.name))
        self.path = Path(self._folder.name) / _MODEL / path.name
        self.path.parent.mkdir()
        try:
            if path.is_dir():
                shutil.copytree(path, self.path, copy_function=shutil.copyfile)
                return
            shutil.copyfile(path, self.path)
            # The copy is read, not the file, which may change at any time.
            tensors = all_tensors(read_proto(self.path, external=False, in_place=True), DEFAULT)
            places = {found.location for tensor in tensors if (found := external_ref(tensor)) is not None}
            for location in places - {self.path.name}:
                source = resolve_inside(path.parent, location)
                own = self.path.parent / location
                own.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, own)
        except OSError as error:
            self.close()
            raise InputError(f"{path}: cannot be copied ({error}).") from error
        except OnnxToolError as error:
            self.close()
            raise type(error)(str(error).replace(str(self.path), str(path))) from error

    def close(self) -> None:
        """Remove it."""
        self._folder.cleanup()
        if self._held is not None:
            os.close(self._held)


def remove_lost_copies() -> None:
    """Remove the copies of servers that were killed: nobody holds them any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(PermissionError):  # of another user
            if (folder / _MODEL).is_dir() and (held := _hold(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(held)


def _hold(folder: Path) -> int | None:
    """Lock the folder of a copy until this is closed or the process ends; None where another process holds it.

    systemd-tmpfiles removes what has been in a temporary folder for some days, unless it is locked in this way.
    """
    with suppress(ImportError, OSError):
        import fcntl

        held = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(held)
            raise
        return held
    return None


def run_command(*arguments: str, options: SessionOptions) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """An onnxtool command with a report in JSON, in a process of its own, where it can crash or hang alone.

    Raises:
        InputError: it takes too long.
    """
    command = [*arguments, "--json=-"]
    for provider in (options.provider,) if isinstance(options.provider, str) else options.provider:
        command += ["--provider", provider]
    for library in options.custom_op_libraries:
        command += ["--custom-op-library", str(library)]
    for plugin in options.ep_libraries:
        command += ["--ep-library", plugin]
    try:
        done = run_python("onnxtool", *command, seconds=_COMMAND_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{arguments[0]} took longer than {_COMMAND_SECONDS} s.") from error
    try:
        report = json.loads(done.stdout)
    except ValueError:
        report = {}
    return done, report


def admit(path: Path, copy: Path, options: SessionOptions) -> None:
    """Hold a model against `onnxtool check`, or let a bundle generate a token.

    Args:
        path: of the user's file, for messages.
        copy: what is to be served.
        options: how to run it.

    Raises:
        InputError: it does not pass.
    """
    if copy.is_dir():
        done, report = run_command("run", str(copy), "--prompt=a", "--max-tokens=1", options=SessionOptions())
        what = "does not generate"
    else:
        done, report = run_command("check", str(copy), options=options)
        what = "does not pass onnxtool check"
    if done.returncode != 0:
        raise InputError(f"{path}: {what}: {failure(done, report).replace(str(copy), str(path))}")


def failure(done: subprocess.CompletedProcess[str], report: Mapping[str, Any]) -> str:
    """Why a command has failed: the first error of its report, else the last line that it has written."""
    try:
        faults = [f for f in report["findings"] if f["severity"] == "error"]
        failed = [s for s in report["stages"] if s["state"] == "failed"]
        told = [f["message"] for f in faults] or [s.get("detail") or s["name"] for s in failed]
        return str(told[0])[:300]
    except (KeyError, IndexError, TypeError):
        lines = (done.stderr or done.stdout).strip().splitlines()
        return lines[-1].removeprefix("error: ")[:300] if lines else f"exit code {done.returncode}"


def warm_up(model: ServingRunner, runs: int) -> None:
    """Run a model on random inputs, so that the first request does not pay for it; models that take none are left."""
    with suppress(InputError, ResourceError, UnsupportedError):
        if runs:
            probe = find_probes(model, model.inputs, 0, wanted=1, batch=1)[0]
            for _ in range(runs - 1):
                model.run(probe.feeds)


def verify_protocol(path: Path, model: ServingRunner) -> None:
    """Hold inputs and outputs against the protocol.

    Raises:
        UnsupportedError: one of them cannot be carried by it.
    """
    try:
        tensor_metadata((*model.inputs, *model.outputs))
    except UnsupportedError as error:
        raise UnsupportedError(f"{path}: {error}") from error


def succeed(old: ServingRunner, new: ServingRunner, path: Path) -> None:
    """Hold a new model's interface against that of the one that it is to replace.

    Args:
        old: what is served now.
        new: what has passed `admit`.
        path: of the new one.

    Raises:
        InputError: other inputs or outputs.
    """
    for what, before, after in (("inputs", old.inputs, new.inputs), ("outputs", old.outputs, new.outputs)):
        was, now = tensor_metadata(before), tensor_metadata(after)
        if was != now:
            raise InputError(f"{path}: has other {what} than the model that is served: {now} instead of {was}.")


def succeed_bundle(old: BundleTexts, new: BundleTexts, path: Path, rule: Reload) -> None:
    """Hold a new bundle's interface against that of the one that it is to replace.

    Raises:
        InputError: another vocabulary, a shorter context or no template for chats any more; where equality is asked
            for, other tokens, another template or end of text.
    """
    from onnxtool.generation.proof import TEXTS

    if new.bundle.vocabulary != old.bundle.vocabulary or new.bundle.context < old.bundle.context:
        raise InputError(f"{path}: has another vocabulary or a shorter context than the bundle that is served.")
    template, other = old.tokenizer.chat_template, new.tokenizer.chat_template
    if template is not None and other is None:
        raise InputError(f"{path}: has no chat template, which the bundle that is served has.")
    same = all(np.array_equal(old.tokenizer.encode(text), new.tokenizer.encode(text)) for text in TEXTS)
    if rule == "equal" and not (same and template == other and old.bundle.eos == new.bundle.eos):
        raise InputError(f"{path}: has another tokenizer, chat template or end of text than what is served. {_ADVICE}")


def verify_equal(old: Path, new: Path, path: Path, options: SessionOptions) -> None:
    """Hold a new model's answers against those of the one that it is to replace.

    Args:
        old, new: copies of the models.
        path: of the user's file.
        options: how to run them.

    Raises:
        InputError: other answers.
    """
    done, report = run_command("compare", str(old), str(new), "--effort=quick", options=options)
    if done.returncode:
        off = [o for o in report.get("outputs", ()) if not o.get("ok", True)]
        detail = f": {off[0]['name']!r} is off by up to {float(off[0]['max_abs']):.3g}" if off else ""
        detail = detail or f": {failure(done, {})}" * (done.returncode != 1)
        raise InputError(f"{path}: gives other answers than the model that is served{detail}. {_ADVICE}")
