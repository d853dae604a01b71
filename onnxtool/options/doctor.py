"""The options of `doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxtool.options.option import option
from onnxtool.options.shared import Shown


@dataclass(frozen=True)
class DoctorCommand(Shown):
    """What `doctor` takes."""

    measure: Path | None = option(
        None,
        "Time this machine's kernels by shape and type, for quantize --target FILE.json elsewhere.",
        metavar="FILE.json",
    )
