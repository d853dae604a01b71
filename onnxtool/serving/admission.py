"""What a model file must pass before it is served: `check` in a process of its own, a load, a run, and, when it takes
the place of another, the same interface and equal answers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from onnxtool.equality.compare import compare
from onnxtool.errors import InputError, UnsupportedError
from onnxtool.options.serve import Reload
from onnxtool.runtime.probes import find_probes
from onnxtool.runtime.protocol_v2.tensors import tensor_metadata
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

_CHECK_SECONDS = 600

Signature = tuple[tuple[str, int, int], ...]


def file_signature(path: Path) -> Signature:
    """Name, size and time of the model and of what may be its external data, or of all files of a bundle's folder:
    another one means a change.
    """
    found = []
    beside = {path, *path.parent.glob(f"{path.name}*"), *path.parent.glob("*.data")}
    for file in sorted(path.rglob("*") if path.is_dir() else beside):
        try:
            status = file.stat()
        except OSError:
            continue
        found.append((file.name, status.st_size, status.st_mtime_ns))
    return tuple(found)


def admit(path: Path, options: SessionOptions) -> OnnxRunner:
    """Load a model after it has passed `onnxtool check`, which runs it where it can crash or hang alone.

    Raises:
        InputError: it does not pass, or does not load.
        UnsupportedError: an input or output that the protocol cannot carry.
    """
    command = [sys.executable, "-m", "onnxtool", "check", str(path), "--json=-"]
    for provider in (options.provider,) if isinstance(options.provider, str) else options.provider:
        command += ["--provider", provider]
    for library in options.custom_op_libraries:
        command += ["--custom-op-library", str(library)]
    for plugin in options.ep_libraries:
        command += ["--ep-library", plugin]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{path}: check took longer than {_CHECK_SECONDS} s.") from error
    if done.returncode != 0:
        raise InputError(f"{path}: does not pass onnxtool check: {_reason(done)}")
    runner = OnnxRunner.open(path, options)
    _ = runner.aborts_when_empty  # asked of this file, not of one that takes its place
    try:
        tensor_metadata((*runner.inputs, *runner.outputs))
    except UnsupportedError as error:
        raise UnsupportedError(f"{path}: {error}") from error
    return runner


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    try:
        report = json.loads(done.stdout)
        faults = [f for f in report["findings"] if f["severity"] == "error"]
        failed = [s for s in report["stages"] if s["status"] == "failed"]
        told = [f["message"] for f in faults] or [s.get("detail") or s["name"] for s in failed]
        return str(told[0])[:300]
    except (ValueError, KeyError, IndexError, TypeError):
        lines = (done.stderr or done.stdout).strip().splitlines()
        return lines[-1].removeprefix("error: ")[:300] if lines else f"exit code {done.returncode}"


def warm_up(runner: OnnxRunner) -> None:
    """One run on random inputs, so that the first request does not pay for it; models that take none are left."""
    try:
        find_probes(runner, runner.inputs, 0, wanted=1, batch=1)
    except (InputError, UnsupportedError):
        return


def succeed(old: OnnxRunner, new: OnnxRunner, path: Path, rule: Reload) -> None:
    """Hold a new model against the one that it is to replace.

    Args:
        old: what is served now.
        new: what has passed `admit`.
        path: of the new one.
        rule: what it must have in common with the old one.

    Raises:
        InputError: other inputs or outputs, or, where equality is asked for, other answers.
    """
    for what, before, after in (("inputs", old.inputs, new.inputs), ("outputs", old.outputs, new.outputs)):
        was, now = tensor_metadata(before), tensor_metadata(after)
        if was != now:
            raise InputError(f"{path}: has other {what} than the model that is served: {now} instead of {was}.")
    if rule == "equal":
        report = compare(old, path, names=("served", str(path)), effort="quick")
        if not report.ok:
            worst = report.worst
            detail = "" if worst is None else f": {worst.name!r} is off by up to {worst.max_abs:.3g}"
            raise InputError(
                f"{path}: gives other answers than the model that is served{detail}. "
                "A model that is meant to differ needs --reload interface."
            )
