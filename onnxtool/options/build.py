"""The options of `build`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxtool.options import shared
from onnxtool.options.option import option, speed_option
from onnxtool.options.shared import Shown


@dataclass(frozen=True)
class BuildCommand(Shown):
    """What `build` takes."""

    arguments: tuple[str, ...] = option(
        (),
        "The build file, onnxtool.toml unless given; then models, patterns or tag:WORD.",
        argument=True,
        metavar="[FILE.toml] [TARGET...]",
    )
    dry_run: bool = option(False, "Say what is stale and why; exit 1 if anything is.", "--check", "--dry-run")
    frozen: bool = option(False, "Fail where anything differs from onnxtool.lock.")
    jobs: int | None = speed_option(None, "How many steps run at a time.", "--jobs", "-j", low=1, metavar="N")
    executor: str | None = option(
        None, "Where steps run: local, processes, dask://HOST:PORT or ray://HOST:PORT.", metavar="NAME"
    )
    cache: str | None = option(None, "The cache, in place of the file's.", metavar="DIR")
    history: bool = option(False, "Show the builds of this file so far, and end.")
    report_files: tuple[str, ...] = shared.REPORT_FILES()
    junit: Path | None = shared.JUNIT()
    html: Path | None = shared.HTML()
