"""The options of `verify`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxtool.options.option import INPUT, SELDOM, option
from onnxtool.options.shared import FACTORY, FACTORY_ARG, MODEL, PYTHON_PATH, TRUST, Shown


@dataclass(frozen=True)
class VerifyCommand(Shown):
    """What `verify` takes."""

    model: Path = MODEL()
    source: Path | None = option(None, "What the model should be made from.", metavar="FILE", group=INPUT)
    sign: Path | None = option(None, "Sign the model with this private key.", metavar="KEY.pem")
    public_key: Path | None = option(None, "Verify the model's signature.", metavar="KEY.pem")
    signature: Path | None = option(None, "Where the signature is, or goes: MODEL.sig.", metavar="FILE", group=SELDOM)
    replay: bool = option(False, "Run the recorded proof again, on --source or --factory and the file.")
    factory: str | None = FACTORY()
    factory_args: Mapping[str, Any] = FACTORY_ARG()
    python_path: tuple[Path, ...] = PYTHON_PATH()
    trust: bool = TRUST()
    sample: Path | None = option(None, "The sample of the recorded proof.", metavar="FILE.npz", group=INPUT)
