"""The options of `certificate`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from onnxtool.options.option import option
from onnxtool.options.shared import Shown


@dataclass(frozen=True)
class CertificateCommand(Shown):
    """What `certificate` takes."""

    a: Path = option(MISSING, "The .onnx file that is right.", argument=True, metavar="A")
    b: Path = option(MISSING, "The .onnx file to judge.", argument=True, metavar="B")
    output: Path | None = option(None, "Write the certificate here.", "--output", "-o", metavar="FILE.json", step=False)
