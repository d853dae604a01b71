"""Models that a command may get in any framework's file, and what the command line says of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxtool.errors import UsageError
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


def opened(path: Path, other: Path, options: ConvertOptions, data: Any = None) -> Path | Runner:
    """An ONNX file stays a path; a framework file is loaded, with the other's input shapes where it has none, and in
    the types of the data where these are a table; a URL is a V2 endpoint.
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
    from onnxtool.conversion.compare_sources import opened_source

    return opened_source(path, other, options, data)
