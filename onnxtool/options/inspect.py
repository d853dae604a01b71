"""The options of `inspect`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxtool.options.option import OUTPUT, option
from onnxtool.options.shared import DATA, INPUT_SHAPE, MODEL, REQUIRE_PROVIDER, Runtime, Shown


@dataclass(frozen=True)
class InspectCommand(Runtime, Shown):
    """What `inspect` takes."""

    model: Path = MODEL()
    input_shapes: tuple[str, ...] = INPUT_SHAPE()
    nodes: bool = option(False, "List all nodes.", group=OUTPUT)
    largest: int = option(5, "How many of the largest tensors to list.", low=0, group=OUTPUT)
    sbom: Path | None = option(None, "Write a bill of materials (CycloneDX 1.6).", metavar="FILE.json", group=OUTPUT)
    placement: bool = option(False, "Run the model and show which provider runs which node, and why.", group=OUTPUT)
    data: Path | None = DATA()
    require_provider: bool = REQUIRE_PROVIDER()
