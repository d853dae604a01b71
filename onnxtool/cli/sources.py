"""Models that a command may get in any framework's file, and what the command line says of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxtool.errors import InputError, UsageError
from onnxtool.options.convert import ConvertOptions
from onnxtool.options.option import options_of
from onnxtool.runtime.protocol_v2.client import url_of

if TYPE_CHECKING:
    from onnxtool.runtime.runner import Runner


def needs_factory(asked: Any) -> None:
    """Refuse --factory-arg alone.

    Raises:
        UsageError: it is.
    """
    if asked.factory_args and asked.factory is None:
        raise UsageError("--factory-arg needs --factory.")


def source_options(asked: Any, **changes: Any) -> ConvertOptions:
    """What a command that is not convert says of a source.

    Raises:
        UsageError: options that do not go together.
    """
    needs_factory(asked)
    of_source = [name for name, option in options_of(ConvertOptions).items() if option.of_source]
    names = (n for n in (*of_source, "seed", "verbose") if hasattr(asked, n))
    return ConvertOptions(**{n: getattr(asked, n) for n in names} | changes)


def opened(path: Path, other: Path, options: ConvertOptions) -> Path | Runner:
    """An ONNX file stays a path; a framework file is loaded, with the other's input shapes where it has none; a URL
    is a V2 endpoint.
    """
    if path.suffix == ".onnx":
        return path
    url = url_of(path)
    if url is not None:
        from onnxtool.runtime.protocol_v2.client import RemoteRunner

        return RemoteRunner(url)
    if path.is_dir():
        from onnxtool.packaging.manifest import is_package

        if is_package(path):
            from onnxtool.packaging.registry import open_package

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
