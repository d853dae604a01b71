"""The options of `inspect`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxtool.options import shared
from onnxtool.options.option import output_option
from onnxtool.options.shared import Decimal, Runtime, Shown


@dataclass(frozen=True)
class InspectCommand(Runtime, Shown):
    """What `inspect` takes."""

    model: Path = shared.MODEL()
    input_shapes: tuple[str, ...] = shared.INPUT_SHAPE()
    nodes: bool = output_option(False, "List all nodes.")
    largest: int = output_option(5, "How many of the largest tensors to list.", low=0)
    sbom: Path | None = output_option(None, "Write a bill of materials (CycloneDX 1.6).", metavar="FILE.json")
    placement: bool = output_option(False, "Run the model and show which provider runs which node, and why.")
    data: Path | None = shared.DATA()
    decimal: Decimal = shared.DECIMAL()
    require_provider: bool = shared.REQUIRE_PROVIDER()
