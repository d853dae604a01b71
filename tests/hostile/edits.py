"""Operations of `edit` that fit a hostile file, and what a command did wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

from tests.command_server import Outcome

_SECONDS = 30.0


def lines(path: Path) -> Iterator[list[str]]:
    """Operations that fit the file, as far as it can be read."""
    yield ["--opset", "18", "--doc", "x"]
    yield ["--external-data", "always", "--metadata", "a=b"]
    try:
        graph = onnx.load(path, load_external_data=False).graph
        weights = {t.name for t in graph.initializer}
        given = next(v for v in graph.input if v.name not in weights)
        name, dims = given.name, [str(d.dim_value or 3) for d in given.type.tensor_type.shape.dim]
        output = graph.output[0].name
    except Exception:
        return
    if dims:
        yield ["--set-shape", f"{name}:{','.join(['batch', *dims[1:]])}"]
    for operation, value in (
        ("io-dtype", f"{name}:float16"), ("layout", f"{name}:nhwc"), ("rename-input", f"{name}=other"),
        ("extract", f"{name}:{output}"), ("post", "softmax"), ("pre", f"{name}: u8"), ("append", str(path)),
        ("strip-weights", "w.safetensors"),
    ):  # fmt: skip
        yield [f"--{operation}", value]


def faults(outcome: Outcome, folder: Path) -> list[str]:
    """What a command did wrong."""
    found = []
    if outcome.code not in range(7):
        found.append(f"exit {outcome.code}")
    if "Traceback" in outcome.stderr + outcome.stdout:
        found.append("a traceback")
    if outcome.code and len(outcome.stderr.splitlines()) != 1:
        found.append(f"{len(outcome.stderr.splitlines())} lines of errors")
    if outcome.code and list(folder.iterdir()):
        found.append("something is left")
    if outcome.busy > _SECONDS:
        found.append(f"{outcome.busy:.0f} s")
    if any(c in outcome.stdout + outcome.stderr for c in "\x1b\x07\u202e\u2066"):
        found.append("control characters reach the terminal")
    return found
