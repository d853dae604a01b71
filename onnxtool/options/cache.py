"""The options of `cache`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from onnxtool.options.option import option, proof_option
from onnxtool.options.shared import Shown

Action = Literal["size", "prune", "verify"]


@dataclass(frozen=True)
class CacheCommand(Shown):
    """What `cache` takes."""

    action: Action = option(
        MISSING, "size counts, prune removes, verify looks for damage.", argument=True, choices=Action
    )
    folder: Path | None = option(
        None, "The cache; ONNXTOOL_CACHE or the user's own unless given.", "--cache", metavar="DIR"
    )
    max_size: str | None = proof_option(None, "prune: remove the oldest until this is left.", metavar="SIZE")
    older_than: str | None = option(None, "prune: only what is older than 12h, 30d, 2w.", metavar="TIME")
