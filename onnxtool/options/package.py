"""The options of `package`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from onnxtool.options import shared
from onnxtool.options.option import option, output_option
from onnxtool.options.shared import Decimal, Shown, Tolerances

WebBackend = Literal["wasm", "webgpu"]


@dataclass(frozen=True)
class WebOptions:
    """What the kind "web" takes.

    Attributes:
        runtime_folder: the npm package onnxruntime-web, or node_modules with it.
        web_backend: "webgpu" packs that runtime too.
        browser: for the proof; the usual names are looked for unless given.
    """

    runtime_folder: Path | None = option(
        None, "web: the npm package onnxruntime-web, or node_modules with it.", metavar="DIR"
    )
    web_backend: WebBackend = option(
        "wasm",
        "web: webgpu packs that runtime too (27 MB), which pages take where the browser has it.",
        choices=WebBackend,
    )
    browser: Path | None = option(None, "web: Chromium or Chrome for the proof.")


@dataclass(frozen=True)
class PackageCommand(WebOptions, Tolerances, Shown):
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
    fresh: bool = option(
        False, "Prove servers in a fresh environment; pip installs their requirements.", "--fresh-venv"
    )
    seed: int = shared.SEED()
    custom_op_library: tuple[Path, ...] = shared.CUSTOM_OPS()
