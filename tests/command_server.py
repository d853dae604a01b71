"""Runs the real command on many files quickly: forked from a process that has imported the libraries once."""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

_FILES = {
    "pytorch": {"pt", "pt2", "pth"},
    "tensorflow": {"keras", "h5", "pb", "tflite"},
    "trees": {"joblib", "pkl", "skops", "ubj", "cbm"},
}


@dataclass(frozen=True)
class Outcome:
    """What a command did.

    Attributes:
        code: exit code; negative for a signal.
        stdout, stderr: what it printed.
        seconds: wall time.
        busy: processor time of the command and its children; unlike wall time it is not stretched by other work.
        peak: bytes of the largest process, without what it had from this one when it was forked; frameworks count.
    """

    code: int
    stdout: str
    stderr: str
    seconds: float
    busy: float
    peak: int


def warm(kind: str = "") -> int:
    """Import what the commands import; no session is made, so no threads run when forking.

    Args:
        kind: "pytorch", "tensorflow" or "trees" imports what `convert` imports for these before it looks at a file.

    Returns:
        Bytes that this process has without the frameworks of a kind.
    """
    libraries = (
        "onnx.checker",
        "onnx.reference",
        "onnx.shape_inference",
        "onnx.version_converter",
        "onnx_ir",
        "onnxruntime",
        "rich.table",
    )
    modules = (
        "cli.app",
        "optimization.optimize",
        "quantization.quantize",
        "lint.check",
        "equality.compare",
        "equality.certificate.models",
        "conversion.convert",
        "benchmark.bench",
    )
    for name in (*libraries, *(f"onnxtool.{module}" for module in modules), "tests.efforts"):
        import_module(name)
    from onnxtool.cli.app import COMMANDS, main

    for command in COMMANDS:
        import_module(f"onnxtool.cli.commands.{command}")
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
        main(["verify", "no-such-file.onnx"])  # what Typer imports when it is used
    own = _resident()
    if kind:
        from onnxtool.conversion import quiet
        from onnxtool.conversion.registry import adapters

        frameworks = {
            "pytorch": ("pytorch",),
            "tensorflow": ("keras", "tensorflow"),
            "trees": ("sklearn", "boosting"),
        }[kind]
        for adapter in (a for a in adapters() if a.name in frameworks):
            quiet.import_all([*adapter.loading, *adapter.exporting])
        more = {
            "pytorch": ["transformers", "safetensors.torch", "torch.export._trace", "torch._dynamo"],
            "trees": ["xgboost", "lightgbm"],
        }
        quiet.import_all(more.get(kind, ()))
    gc.freeze()
    return own


def kind_for(arguments: Sequence[str]) -> str:
    """Which libraries a command imports before it does its work, by the names of its files; as for `warm`."""
    if not arguments or arguments[0] not in ("convert", "compare", "quickstart"):
        return ""
    if arguments[0] == "quickstart" or "--factory" in arguments:
        return "pytorch"
    ends = {Path(word).suffix.lstrip(".") for word in arguments[1:]}
    for kind, known in _FILES.items():
        if ends & known:
            return kind
    return ""


def run(
    arguments: Sequence[str],
    folder: Path,
    limit: float = 300.0,
    kind: str = "",
    environment: Mapping[str, str] = MappingProxyType({}),
    *,
    quick: bool = False,
) -> Outcome:
    """`onnxtool ARGUMENTS` with `folder` as its working folder; `kind` as for `warm`.

    With `quick` the effort "normal" is "quick".

    `environment` is for what is read when the command runs, such as COLUMNS; what counts when Python starts or a
    library is imported comes too late.

    The forking is done by a process of its own: a test worker has frameworks with threads, whose locks a fork copies.
    """
    server = _server(kind)
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps([list(arguments), str(folder), limit, dict(environment), quick]) + "\n")
    server.stdin.flush()
    return Outcome(**json.loads(server.stdout.readline()))


@cache
def _server(kind: str) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.command_server", kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    atexit.register(_stop, server)
    return server


def _stop(server: subprocess.Popen[str]) -> None:
    for stream in (server.stdin, server.stdout):
        if stream is not None:
            stream.close()
    server.wait()


def serve() -> None:
    """Answer one request in a line after the other."""
    own = warm(sys.argv[1])
    for line in sys.stdin:
        arguments, folder, limit, environment, quick = json.loads(line)
        done = _run(arguments, Path(folder), limit, environment, quick)
        print(json.dumps(asdict(replace(done, peak=done.peak - own))), flush=True)


def _run(arguments: Sequence[str], folder: Path, limit: float, environment: Mapping[str, str], quick: bool) -> Outcome:
    """`onnxtool ARGUMENTS` in a forked process with `folder` as its working folder."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            _become(arguments, folder, environment, quick, out.fileno(), err.fileno())
        status, usage = _wait(child, began + limit)
        seconds = time.monotonic() - began
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "replace"))
    code = os.waitstatus_to_exitcode(status)
    busy = usage.ru_utime + usage.ru_stime
    return Outcome(code, texts[0], texts[1], seconds, busy, usage.ru_maxrss * 1024)


def _resident() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _wait(child: int, deadline: float) -> tuple[int, resource.struct_rusage]:
    while time.monotonic() < deadline:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            return status, usage
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    return status, usage


def _become(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], quick: bool, out: int, err: int
) -> None:
    try:
        os.setsid()
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        # pytest has put its own objects in place of the streams.
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        os.environ.update({"COLUMNS": "120", "NO_COLOR": "1", **environment})
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.argv = ["onnxtool", *arguments]
        from onnxtool.cli.app import main
        from tests import efforts

        with efforts.meaning(quick=quick):
            main()
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 99
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()
