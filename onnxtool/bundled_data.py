"""Where the bundled real model and its data lie: inside the installed package, or in the source tree."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from onnxtool.errors import UnsupportedError


def bundled_folder() -> Path:
    """The folder with digits_cnn.onnx, its PyTorch original and the digits.

    Raises:
        UnsupportedError: this installation has no bundled files.
    """
    installed = Path(str(files("onnxtool"))) / "bundled"
    in_tree = Path(__file__).parents[1] / "fixtures"
    for folder in (installed, in_tree):
        if (folder / "digits_cnn.onnx").is_file():
            return folder
    raise UnsupportedError("this installation of onnxtool has no bundled model; install it from a wheel or a clone.")
