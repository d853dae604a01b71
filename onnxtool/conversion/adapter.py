"""The Adapter protocol and the registry: one adapter for each framework, built in or from an entry point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onnxtool.conversion.options import ConvertOptions
from onnxtool.conversion.source import Source
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir


class SourceModel(Protocol):
    """A loaded framework model. It is a Runner, in the names and shapes that the ONNX file will have.

    `export` may leave other tensor names in the graph: `api` renames graph inputs and outputs to these, in order,
    and gives them these dynamic dims.

    Two more methods are called and one attribute is read where a source has them:

    - `drop_tied_rows(feeds)` gives the feeds without those rows on which rounding alone decides (two classes that tie);
      the proof runs on what it gives.
    - `rounding` maps the outputs of a quantized model to how far they may be off, in their own units (steps, where they
      are integers): two correct implementations round differently half-way between two steps.
    - `release()` gives back the weights. It is called after the export and the source's own runs; `run` is not called
      after it.
    """

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What `run` takes; a str dim is dynamic."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What `run` gives."""

    @property
    def form(self) -> str:
        """What was recognised: "PyTorch state_dict"."""

    @property
    def framework(self) -> str:
        """Framework and version: "torch 2.13.0"."""

    @property
    def notes(self) -> list[str]:
        """Things to say aloud: "prefix model. stripped from 62 names". `load` and `export` add to it."""

    @property
    def feeds_hint(self) -> Mapping[str, Domain] | None:
        """Input name -> domain where the framework knows it better than the graph; None = nothing known."""

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass in inference mode; values are arrays."""


class Adapter(Protocol):
    """Brings one framework. Its module imports the framework inside `load` and `export` only.

    One more method is called where an adapter has it: `prepare(source, options, *, export)`, before `load` (`export`
    False) and before `export` (True). It imports what these will use and does nothing with the file, so that the time
    and memory that a file may take are not spent on imports.
    """

    name: str
    extra: str

    def recognises(self, source: Source, options: ConvertOptions) -> bool:
        """By content, not by suffix alone; works with no framework installed and executes nothing."""

    def load(self, source: Source, options: ConvertOptions) -> SourceModel:
        """Load the model.

        Raises:
            MissingExtraError: the framework is not installed.
            InputError, UnsafeError, UnsupportedError, UsageError: one line each.
        """

    def export(self, model: SourceModel, options: ConvertOptions) -> ir.Model:
        """Turn what `load` gave into an ONNX graph.

        Raises:
            UnsupportedError: an operator or feature that the exporter does not have.
        """
