"""The options of `verify`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxtool.options import shared
from onnxtool.options.option import input_option, option, seldom_option
from onnxtool.options.shared import Decimal, Shown


@dataclass(frozen=True)
class VerifyCommand(Shown):
    """What `verify` takes."""

    model: Path = shared.MODEL()
    source: Path | None = input_option(None, "What the model should be made from.", metavar="FILE")
    sign: Path | None = option(None, "Sign the model with this private key.", metavar="KEY.pem")
    public_key: Path | None = option(None, "Verify the model's signature.", metavar="KEY.pem")
    signature: Path | None = seldom_option(None, "Where the signature is, or goes: MODEL.sig.", metavar="FILE")
    replay: bool = option(False, "Run the recorded proof again, on --source or --factory and the file.")
    factory: str | None = shared.FACTORY()
    factory_args: Mapping[str, Any] = shared.FACTORY_ARG()
    python_path: tuple[Path, ...] = shared.PYTHON_PATH()
    trust: bool = shared.TRUST()
    sample: Any = input_option(None, "The sample of the recorded proof.", kind="sample", metavar="FILE", role="data")
    decimal: Decimal = shared.DECIMAL()
