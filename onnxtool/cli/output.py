"""One command's conversation with the outside: progress and tables for people, JSON for machines, exit codes."""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

import typer

from onnxtool import progress
from onnxtool.cli import streams
from onnxtool.cli.forms.registry import find_renderer, parse_reports
from onnxtool.cli.text import clean
from onnxtool.errors import InputError, OnnxToolError, ResourceError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from onnxtool.report.base import Report

_BUG = 70
# What a path that no file can have gives, wherever it is looked at first.
_NO_SUCH_NAME = (errno.ENAMETOOLONG, errno.ELOOP)
_INTERRUPTED = 130


class Output(AbstractContextManager["Output"]):
    """Wraps the body of a command: `with Output(json, verbose, quiet) as out: out.emit(report)`.

    Errors of our own family end the command with one line and their exit code; anything else is a bug of ours
    (exit 70). With `--json -` stdout carries JSON only; what people read goes to stderr, with -v.
    """

    def __init__(
        self,
        json_target: str | None = None,
        verbose: int = 0,
        quiet: bool = False,
        files: Mapping[str, Path | None] | None = None,
        reports: Sequence[str] | None = None,
    ) -> None:
        """Take the options of a command.

        Args:
            json_target: where the JSON form goes; "-" is stdout.
            verbose: more detail.
            quiet: nothing for people.
            files: other forms to write, by the name of their renderer ("junit": Path("report.xml")).
            reports: more of them, as the command line has them: "junit=report.xml".
        """
        self.files = {form: path for form, path in (files or {}).items() if path is not None}
        self._reports = reports
        self.json_target = json_target
        self.verbose = verbose
        self.quiet = quiet
        self.given: Mapping[str, str] = {}  # fields whose options were typed, and how each is called
        self._listening: AbstractContextManager[None] | None = None
        self._consoles: dict[bool, Console] = {}
        self._machine: streams.MachineOutput | None = None

    def console(self, error: bool = False) -> Console:
        """Where people read; plain text when that is not a terminal, with NO_COLOR, or with -q."""
        from rich.console import Console

        stderr = error or self._machine is not None
        if stderr not in self._consoles:
            stream: IO[str] = sys.stderr if stderr else sys.stdout
            width = None if stream.isatty() or "COLUMNS" in os.environ else 120
            self._consoles[stderr] = _patient(Console)(file=stream, highlight=False, soft_wrap=False, width=width)
        return self._consoles[stderr]

    def __enter__(self) -> Output:
        if self.json_target == "-":
            self._machine = streams.MachineOutput()
        if not self.verbose:
            # What libraries log or warn of, with texts from files, is not part of a command's one line.
            logging.lastResort = logging.NullHandler()
            if not sys.warnoptions:
                warnings.simplefilter("ignore")
        try:
            self.files |= parse_reports(self._reports)
        except UsageError as error:
            self._fail(str(error), error.exit_code)
        if self.for_people and sys.stderr.isatty():
            self._listening = progress.listen(RichProgress())
            self._listening.__enter__()
        return self

    @property
    def for_people(self) -> bool:
        """Whether anybody is to read along: not with -q, nor beside JSON on stdout unless -v asks for it."""
        return not self.quiet and (self.json_target != "-" or self.verbose > 0)

    def take_stdout(self) -> streams.MachineOutput:
        """Standard output for data: what people read goes to stderr from now on.

        Raises:
            UsageError: the report's JSON goes there.
        """
        if self._machine is not None:
            raise UsageError("-o - and --json - both go to standard output: give one of them a file.")
        self._machine = streams.MachineOutput()
        return self._machine

    def emit(self, report: Report) -> None:
        """Show a report: as JSON where asked, and for people unless -q."""
        if self.json_target is not None:
            text = json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n"
            if self._machine is not None and self.json_target == "-":
                self._machine.write(text)
            else:
                write_text(Path(self.json_target), text)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            self._annotate(report)
        for form, path in self.files.items():
            write_text(path, find_renderer(form)(report))
        if self.for_people:
            from onnxtool.cli.forms import terminal

            terminal.render(report, self.console(), verbose=self.verbose)
        if not self.quiet:
            self._warn_of_setting()
        if not report.ok:
            raise typer.Exit(1)

    @staticmethod
    def _warn_of_setting() -> None:
        """Tell of a provider that crashed and was started again with a setting of the environment."""
        from onnxtool.runtime.worker import isolation

        said = isolation.helping_setting()
        if said:
            with suppress(OSError):
                print(f"warning: {said}", file=sys.stderr, flush=True)

    def _annotate(self, report: Report) -> None:
        """Tell GitHub's runner what to show beside the files; it reads both streams."""
        from onnxtool.cli.forms import github

        stream = sys.stdout if self._machine is None else sys.stderr
        stream.write(github.render(report))
        stream.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listening is not None:
            self._listening.__exit__(None, None, None)
        if self._machine is not None:
            self._machine.close()
        if error is None or isinstance(error, (typer.Exit, typer.Abort, BrokenPipeError)):
            return
        from onnxtool.runtime.worker import isolation  # not for --help, which it would slow down

        ending = isolation.ending_code()
        if ending is not None:
            raise typer.Exit(ending) from None  # the parent says why
        if type(error).__module__.startswith("typer."):  # usage errors: Typer prints them itself, exit 2
            return
        if isinstance(error, OnnxToolError):
            self._fail(str(error), error.exit_code)
        if isinstance(error, KeyboardInterrupt):
            self._fail("interrupted; nothing was left half-written.", _INTERRUPTED)
        no_room = streams.no_room(error)
        if no_room is not None:
            self._fail(no_room, ResourceError.exit_code)
        if isinstance(error, OSError) and error.errno in _NO_SUCH_NAME:
            self._fail(f"{error.filename}: cannot be opened ({error.strerror}).", InputError.exit_code)
        if isinstance(error, MemoryError):
            self._fail("out of memory.", ResourceError.exit_code)
        if isinstance(error, Exception):
            text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            self._fail(f"this is a bug in onnxtool, please report it with the output of -v: {text}", _BUG)

    def _fail(self, message: str, code: int) -> None:
        if self.verbose:
            traceback.print_exc()
        print_error(message, code, as_json=self.json_target == "-")
        raise typer.Exit(code) from None


def _patient(console: type[Console]) -> type[Console]:
    """A console that goes on when its reader has gone: the verdict still decides the exit code."""

    class PatientConsole(console):  # type: ignore[misc, valid-type]
        def on_broken_pipe(self) -> None:
            self.quiet = True
            streams.discard(self.file.fileno())

    return PatientConsole


def write_text(path: Path, text: str) -> None:
    """Write a report's file.

    Raises:
        ResourceError: there is no room for it.
        UsageError: it cannot be written there.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        if streams.no_room(error) is not None:
            raise ResourceError(f"{path}: cannot be written ({error.strerror}).") from error
        raise UsageError(f"{path}: cannot be written ({error.strerror}).") from error


class RichProgress:
    """Progress bars on stderr for whatever takes longer than a second."""

    _patience = 1.0

    def __init__(self) -> None:
        self._bars: Any = None
        self._depth = 0

    def start(self, label: str, total: int | None) -> _Bar:
        """Show a bar, below those that are there."""
        self._depth += 1
        return _Bar(self, label, total)

    def finish(self, task: progress.Task) -> None:
        """Take a bar away; with the last one the display goes."""
        assert isinstance(task, _Bar)
        self._depth -= 1
        if self._bars is not None:
            task.remove()
            if self._depth == 0:
                self._bars.stop()
                self._bars = None

    def bars(self) -> Any:
        """The live display, started when first needed."""
        if self._bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[steps]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bars.start()
        return self._bars


class _Bar:
    def __init__(self, owner: RichProgress, label: str, total: int | None) -> None:
        self._owner, self._label, self._total = owner, label, total
        self._began, self._done = time.monotonic(), 0
        self._id: Any = None

    def advance(self, steps: int = 1) -> None:
        self._done += steps
        self._show()

    def describe(self, label: str) -> None:
        self._label = label
        self._show()

    def remove(self) -> None:
        if self._id is not None:
            self._owner.bars().remove_task(self._id)

    def _show(self) -> None:
        if self._id is None:
            if time.monotonic() - self._began < RichProgress._patience:
                return
            self._id = self._owner.bars().add_task(self._label, total=self._total, steps="")
        steps = f"{self._done}/{self._total}" if self._total else ""  # how much of nobody knows what says nothing
        self._owner.bars().update(self._id, completed=self._done, description=self._label, steps=steps)


def print_error(message: str, code: int, *, as_json: bool) -> None:
    """Print `error: ...` to stderr and, where stdout carries JSON, an error object there."""
    line = clean(" ".join(message.split()), limit=2000)
    if as_json:
        with suppress(OSError):
            print(json.dumps({"schema": "onnxtool/error/1", "ok": False, "error": line, "exit_code": code}), flush=True)
    with suppress(OSError):
        print(f"error: {line}", file=sys.stderr, flush=True)
