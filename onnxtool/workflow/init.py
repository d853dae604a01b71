"""`init`: a first build file from what the sources are recognised as."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from onnxtool.conversion.registry import find_adapter
from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, OnnxToolError, UsageError
from onnxtool.model.io.atomic import write_atomic
from onnxtool.options.convert import ConvertOptions
from onnxtool.report.build import InitReport
from onnxtool.workflow.file import FILE_NAME

_HEAD = """\
# What `onnxtool build` makes here: docs/build.md has every key, docs/onnxtool.schema.json is the schema for editors.
#   onnxtool build             build what is stale
#   onnxtool build --check     say what is stale, build nothing (exit 1 when anything is)
version = 1

# Options that every model's steps have, under the names of the commands' options.
[defaults.optimize]
level = "extended"    # basic, extended or all

# Data sets. Name one in a model as `calibration` or `evaluation`.
# [data.calib]
# path = "calib.npz"
# [data.eval]
# path = "eval.npz"
# labels = "labels"   # the labels' array in the file
"""
_MODEL = """
[models.{name}]       # {form}
source = {source}
{more}steps = [{steps}]
output = "build/{name}.onnx"
# calibration = "calib"         # then add "quantize" to the steps
# evaluation = "eval"
# max-drop = 0.01               # accuracy that may be lost; 0.01 is one point
# max-latency = "0.8x"          # of float; or "2ms"
# max-size = "10MB"
# minimise = "latency"          # or "size"
# tags = ["nightly"]            # onnxtool build tag:nightly
"""
_SHAPE = '# input-shape = ["NAME:batch,3,224,224"]   # where the file does not tell\n'
_FACTORY = '# factory = "file.py:function"             # builds the model, where the file has weights alone\n'


def init(
    sources: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str] = FILE_NAME, *, force: bool = False
) -> InitReport:
    """Write a first build file, with comments.

    Args:
        sources: model files and folders; whatever `convert` takes, and .onnx files.
        output: the file to write.
        force: replace a file that is there.

    Raises:
        UsageError: no source, or the file is there already.
        InputError: a source is not there.
    """
    if not sources:
        raise UsageError("init needs a SOURCE: model files or folders.")
    target = Path(output)
    if target.exists() and not force:
        raise UsageError(f"{target}: is there already; --force replaces it.")
    named: dict[str, str] = {}
    unknown: list[str] = []
    text = _HEAD
    for given in sources:
        source = Path(given)
        form = _recognised(source)
        if form is None:
            unknown.append(str(source))
            continue
        name = _free_name(source, named)
        named[name] = form
        steps = ["optimize", "check"] if form == "onnx" else ["convert", "optimize", "check"]
        place = Path(os.path.relpath(str(source), str(target.parent))).as_posix()
        text += _MODEL.format(
            name=name,
            form=form,
            source=json.dumps(place),
            more="" if form == "onnx" else (_FACTORY if form == "pytorch" else "") + _SHAPE,
            steps=", ".join(f'"{s}"' for s in steps),
        )
    if not named:
        raise InputError(f"{unknown[0]}: this is not a model in a form that is known.")
    write_atomic(target, text.encode())
    return InitReport(str(target), named, tuple(unknown))


def _recognised(path: Path) -> str | None:
    """The adapter's name, "onnx", or None."""
    source = Source(path)
    if path.suffix == ".onnx":
        return "onnx"
    try:
        return find_adapter(source, ConvertOptions()).name
    except OnnxToolError:
        return None


def _free_name(path: Path, taken: dict[str, str]) -> str:
    base = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).strip("-") or "model"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name
