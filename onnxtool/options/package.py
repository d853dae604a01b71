"""The options of `package`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from onnxtool.options import shared
from onnxtool.options.option import option, output_option
from onnxtool.options.shared import Decimal, Shown, Tolerances


@dataclass(frozen=True)
class PackageCommand(Tolerances, Shown):
    """What `package` takes."""

    model: Path = shared.MODEL()
    output: Path = output_option(MISSING, "Folder to write.", "--output", "-o", metavar="DIR")
    kinds: tuple[str, ...] = option(
        MISSING,
        "fastapi, kserve, triton, mlflow, azureml, web, ort or cpp. Repeatable: each is a folder in DIR.",
        "--for",
        metavar="KIND",
    )
    name: str | None = option(None, "Name of the model in the package.")
    data: Path | None = shared.DATA()
    decimal: Decimal = shared.DECIMAL()
    runtime_folder: Path | None = option(
        None, "web: the npm package onnxruntime-web, or node_modules with it.", metavar="DIR"
    )
    browser: Path | None = option(None, "web: Chromium or Chrome for the proof.")
    fresh: bool = option(
        False, "Prove servers in a fresh environment; pip installs their requirements.", "--fresh-venv"
    )
    seed: int = shared.SEED()
