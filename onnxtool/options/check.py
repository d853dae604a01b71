"""The options of `check`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onnxtool.options import shared
from onnxtool.options.option import input_option, option, output_option, proof_option, speed_option
from onnxtool.options.shared import Decimal, Runtime, Shown

FailOn = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class CheckCommand(Runtime, Shown):
    """What `check` takes."""

    models: tuple[str, ...] = option(
        (), "Files, folders or patterns such as 'models/*.onnx'.", argument=True, metavar="MODEL..."
    )
    data: Path | None = shared.DATA()
    decimal: Decimal = shared.DECIMAL()
    select: tuple[str, ...] = input_option(
        (),
        "Report these findings only: OT301, OT3 or a family such as security.",
        kind="ids",
        metavar="ID[,ID...]",
        complete="findings",
    )
    ignore: tuple[str, ...] = input_option(
        (), "Leave these findings out.", kind="ids", metavar="ID[,ID...]", complete="findings"
    )
    fail_on: FailOn = proof_option("error", "Exit 1 from this severity on.", choices=FailOn)
    explain: tuple[str, ...] = input_option(
        (),
        "Say what a finding means ('all' for every one), and end.",
        kind="ids",
        metavar="ID",
        complete="findings",
        step=False,
    )
    fix: bool = output_option(
        False, "Apply what onnxtool optimize can mend, verified, and check the result.", step=False
    )
    output: Path | None = shared.WRITTEN(default=None, help="Where --fix writes; over MODEL unless given.")
    jobs: int = speed_option(
        1, "How many models to check at a time, when there are several.", "--jobs", "-j", low=1, step=False
    )
    seed: int = shared.SEED()
    require_provider: bool = shared.REQUIRE_PROVIDER()
    report_files: tuple[str, ...] = shared.REPORT_FILES()
    junit: Path | None = shared.JUNIT()
    sarif: Path | None = shared.SARIF()
    markdown: Path | None = shared.MARKDOWN()
    html: Path | None = shared.HTML()
