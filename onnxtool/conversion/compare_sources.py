"""`compare` of Python: models of any framework, in memory and in files."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import onnx

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
    data = settings.get("data")
    return files.compare(_opened(a, b, data), _opened(b, a, data), **settings)


def _opened(model: Any, other: Any, data: Any) -> Any:
    """An estimator, booster, torch module, Keras model or a file of theirs as a Runner; all else as it is."""
    if isinstance(model, (str, os.PathLike)):
        found = None if str(model).endswith(".onnx") else opened_source(Path(model), other, data=data)
        return found if isinstance(found, Runner) else model
    if isinstance(model, Runner) or is_model(model):
        return model
    kind = adapter_for(model)
    if kind is None:
        return model
    found = _of_rows(model, other, ConvertOptions(), data) if kind == "sklearn" else None
    return found or open_source(model)


def _of_rows(model: Any, other: Any, options: ConvertOptions, data: Any) -> Runner | None:
    """What is given tables: it computes in the types that the data have, and takes floats as the other model does.

    None where the data are not known to be such; what is wrong with them is said when they are read for both.
    """
    try:
        source = open_source(model, options, sample=data)
    except (InputError, UsageError):
        return None
    file = isinstance(other, (str, os.PathLike)) and str(other).endswith(".onnx")
    proto = io.read_proto(Path(other)) if file else other if isinstance(other, onnx.ModelProto) else None
    kinds = {s.name: s.dtype for s in header.read_header(proto).inputs} if proto is not None else {}
    floats = (np.dtype(np.float32), np.dtype(np.float64))
    source.inputs = tuple(
        replace(s, dtype=kinds[s.name]) if s.dtype in floats and kinds.get(s.name) in floats else s
        for s in source.inputs
    )
    return source


def opened_source(
    path: Path,
    other: Any,
    options: ConvertOptions = ConvertOptions(),  # noqa: B008  (frozen)
    data: Any = None,
) -> Path | Runner:
    """A framework's file loaded, with the input shapes of `other` where it has none of its own and that is an ONNX
    file; a path that no framework reads stays one: an ONNX file by another name, or nothing.
    """
    try:
        adapter = find_adapter(Source(path), options)
    except InputError:
        return path
    found = _of_rows(path, other, options, data) if adapter.reads_tables else None
    if found is not None:
        return found
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
