"""The options of `check`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onnxtool.options.option import INPUT, OUTPUT, PROOF, SPEED, option
from onnxtool.options.shared import (
    DATA,
    HTML,
    JUNIT,
    MARKDOWN,
    REPORT_FILES,
    REQUIRE_PROVIDER,
    SARIF,
    SEED,
    WRITTEN,
    Runtime,
    Shown,
)

FailOn = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class CheckCommand(Runtime, Shown):
    """What `check` takes."""

    models: tuple[str, ...] = option(
        (), "Files, folders or patterns such as 'models/*.onnx'.", argument=True, metavar="MODEL..."
    )
    data: Path | None = DATA()
    select: tuple[str, ...] = option(
        (),
        "Report these findings only: OT301, OT3 or a family such as security.",
        kind="ids",
        metavar="ID[,ID...]",
        complete="findings",
        group=INPUT,
    )
    ignore: tuple[str, ...] = option(
        (), "Leave these findings out.", kind="ids", metavar="ID[,ID...]", complete="findings", group=INPUT
    )
    fail_on: FailOn = option("error", "Exit 1 from this severity on.", choices=FailOn, group=PROOF)
    explain: tuple[str, ...] = option(
        (),
        "Say what a finding means ('all' for every one), and end.",
        kind="ids",
        metavar="ID",
        complete="findings",
        step=False,
        group=INPUT,
    )
    fix: bool = option(
        False, "Apply what onnxtool optimize can mend, verified, and check the result.", step=False, group=OUTPUT
    )
    output: Path | None = WRITTEN(default=None, help="Where --fix writes; over MODEL unless given.")
    jobs: int = option(
        1,
        "How many models to check at a time, when there are several.",
        "--jobs",
        "-j",
        low=1,
        step=False,
        group=SPEED,
    )
    seed: int = SEED()
    require_provider: bool = REQUIRE_PROVIDER()
    report_files: tuple[str, ...] = REPORT_FILES()
    junit: Path | None = JUNIT()
    sarif: Path | None = SARIF()
    markdown: Path | None = MARKDOWN()
    html: Path | None = HTML()
