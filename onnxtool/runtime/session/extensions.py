"""The custom operators of onnxruntime-extensions: decoding of pictures, tokenizers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from onnxtool.errors import MissingExtraError

PICTURES = "com.microsoft.extensions"  # the domain of DecodeImage
TEXTS = "ai.onnx.contrib"  # the domain of the tokenizers
NAMES = ("onnxruntime-extensions", "onnxruntime_extensions")


def is_extensions(library: Path) -> bool:
    """Whether a shared library is that of the installed package."""
    try:
        return library == extensions_library(str(library))
    except MissingExtraError:
        return False


def extensions_library(subject: str) -> Path:
    """The shared library of the installed package.

    Args:
        subject: what needs it, for the message.

    Raises:
        MissingExtraError: the package is not installed.
    """
    # Not by its own get_library_path: importing the package (0.15.2) switches every later process over to protobuf in
    # pure Python, by an environment variable.
    spec = find_spec(NAMES[1])
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec is not None else []
    for folder in folders:
        for file in sorted(folder.glob("_extensions_pydll*")):
            if file.suffix in (".so", ".pyd", ".dylib"):
                return file
    raise MissingExtraError(subject, "onnxruntime-extensions", "extensions")
