"""From the words of the command line to ConvertOptions, and models that a command may get in any framework's file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxtool.conversion.options import ConvertOptions
from onnxtool.errors import InputError, UsageError
from onnxtool.model.spec import parse_dtype, parse_input_shapes
from onnxtool.runtime.data.archive import read_npz
from onnxtool.runtime.urls import url_of

if TYPE_CHECKING:
    import numpy as np

    from onnxtool.runtime.runner import Runner

# Options of convert whose values are few; None is "not given".
CHOICES = {"exporter": ("auto", "dynamo", "torchscript"), "layout": ("nhwc", "nchw", None)}


def convert_options(
    *,
    factory: str | None = None,
    factory_arg: Iterable[str] | None = None,
    pythonpath: Iterable[Path] | None = None,
    trust: bool = False,
    input_shape: Iterable[str] | None = None,
    input_dtype: Iterable[str] | None = None,
    sample: Path | None = None,
    input_names: str | None = None,
    output_names: str | None = None,
    custom_op_library: Iterable[Path] | None = None,
    inputs: str | None = None,
    outputs: str | None = None,
    **plain: Any,
) -> ConvertOptions:
    """Build the options; `plain` are fields that need no parsing.

    Raises:
        UsageError: an argument that cannot be read.
        InputError: the sample cannot be read.
    """
    for name, allowed in CHOICES.items():
        if plain.get(name, allowed[-1]) not in allowed:
            known = ", ".join(a for a in allowed if a)
            raise UsageError(f"--{name} {plain[name]}: must be one of {known}.")
    if factory_arg and factory is None:
        raise UsageError("--factory-arg needs --factory.")
    return ConvertOptions(
        factory=factory,
        factory_args=dict(map(_factory_argument, factory_arg or ())),
        python_path=tuple(pythonpath or ()),
        trust=trust,
        input_shapes={name or "": dims for name, dims in parse_input_shapes(input_shape or ()).items()},
        input_dtypes=dict(map(_dtype, input_dtype or ())),
        sample=None if sample is None else read_npz(sample),
        input_names=_names(input_names),
        output_names=_names(output_names),
        custom_op_libraries=tuple(custom_op_library or ()),
        frozen_inputs=_names(inputs),
        frozen_outputs=_names(outputs),
        **plain,
    )


def _factory_argument(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value read as JSON where it is JSON ("3", "true", "[1,2]", "null"), else as text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"--factory-arg {text}: write NAME=VALUE.")
    try:
        return name, json.loads({"True": "true", "False": "false", "None": "null"}.get(value, value))
    except ValueError:
        return name, value


def _dtype(text: str) -> tuple[str, np.dtype | str]:
    name, _, dtype = text.rpartition(":")
    return name, parse_dtype(dtype)


def _names(text: str | None) -> tuple[str, ...]:
    names = tuple(n.strip() for n in (text or "").split(",") if n.strip())
    if text is not None and not names:
        raise UsageError("a list of names is empty.")
    return names


def opened(path: Path, other: Path, options: ConvertOptions) -> Path | Runner:
    """An ONNX file stays a path; a framework file is loaded, with the other's input shapes where it has none; a URL
    is a V2 endpoint.
    """
    if path.suffix == ".onnx":
        return path
    url = url_of(path)
    if url is not None:
        from onnxtool.runtime.protocol_v2.client import RemoteRunner

        return RemoteRunner.open(url)
    if path.is_dir():
        from onnxtool.packaging.manifest import is_package

        if is_package(path):
            from onnxtool.packaging.folder_runner import open_package

            return open_package(path, trust=options.trust)
    from onnxtool.conversion.convert import open_source
    from onnxtool.conversion.registry import find_adapter
    from onnxtool.conversion.source import Source

    try:
        find_adapter(Source(path), options)
    except InputError:
        return path  # an ONNX file by another name, or nothing: reading it as ONNX tells
    try:
        return open_source(path, options)
    except UsageError:
        if options.input_shapes or other.suffix != ".onnx":
            raise
        return open_source(path, _like(other, options))


def _like(path: Path, options: ConvertOptions) -> ConvertOptions:
    """`options` with the input shapes and dtypes of an ONNX file."""
    from onnxtool.model import header, io

    inputs = header.read_header(io.read_proto(path)).inputs
    alone = len(inputs) == 1
    return replace(
        options,
        input_shapes={"" if alone else s.name: s.shape for s in inputs if s.shape is not None},
        input_dtypes={"" if alone else s.name: s.dtype for s in inputs},
    )
