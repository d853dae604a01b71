"""`compare` of Python: models of any framework, in memory and in files."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

from onnxtool.conversion.convert import open_source
from onnxtool.conversion.factory import adapter_for
from onnxtool.conversion.registry import find_adapter
from onnxtool.conversion.source import Source
from onnxtool.equality import compare as files
from onnxtool.errors import InputError, UsageError
from onnxtool.model import header, io
from onnxtool.model.io.in_memory import is_model
from onnxtool.options.convert import ConvertOptions
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.runner import Runner


@wraps(files.compare)
def compare(a: Any, b: Any, **settings: Any) -> CompareReport:
    """As of `equality.compare`, whose docstring this one is given."""
    return files.compare(_opened(a, b), _opened(b, a), **settings)


def _opened(model: Any, other: Any) -> Any:
    """An estimator, booster, torch module, Keras model or a file of theirs as a Runner; all else as it is."""
    if isinstance(model, (str, os.PathLike)):
        found = None if str(model).endswith(".onnx") else opened_source(Path(model), other, ConvertOptions())
        return found if isinstance(found, Runner) else model
    if isinstance(model, Runner) or is_model(model):
        return model
    return model if adapter_for(model) is None else open_source(model)


def opened_source(path: Path, other: Any, options: ConvertOptions) -> Path | Runner:
    """A framework's file loaded, with the input shapes of `other` where it has none of its own and that is an ONNX
    file; a path that no framework reads stays one: an ONNX file by another name, or nothing.
    """
    try:
        find_adapter(Source(path), options)
    except InputError:
        return path
    try:
        return open_source(path, options)
    except UsageError:
        if options.input_shapes or Path(str(other)).suffix != ".onnx":
            raise
        inputs = header.read_header(io.read_proto(Path(other))).inputs
    alone = len(inputs) == 1
    like = replace(
        options,
        input_shapes={"" if alone else s.name: s.shape for s in inputs if s.shape is not None},
        input_dtypes={"" if alone else s.name: s.dtype for s in inputs},
    )
    return open_source(path, like)
