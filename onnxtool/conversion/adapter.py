"""The two base classes of a converter: an Adapter for each framework, and the SourceModel that it loads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from onnxtool.conversion.quiet import import_all
from onnxtool.conversion.source import Source
from onnxtool.equality.reference import DescribedRunner
from onnxtool.options.convert import ConvertOptions

if TYPE_CHECKING:
    import onnx_ir as ir


class SourceModel(DescribedRunner):
    """A loaded framework model. It is a Runner, in the names and shapes that the ONNX file will have.

    `Adapter.export` may leave other tensor names in the graph: `convert` renames graph inputs and outputs to these, in
    order, and gives them these dynamic dims.

    Attributes:
        form: what was recognised: "PyTorch state_dict".
        framework: framework and version: "torch 2.13.0".
        notes: things to say aloud: "prefix model. stripped from 62 names". `load` and `export` add to it.
        limits: kinds of inputs on which a difference is said and not refused: "thresholds" where the framework
            compares in doubles and the graph in floats.
        compared_sizes: numbers that the code, or the exporter's record of it, compares sizes with.
        compared_values: likewise, for values.
        traced_sizes: of dynamic dims, those that the first run showed to be taken.
        dropped: options of the source that its exporter is known to leave out: they are named where the proof fails.
        untested: what the proof leaves out on this model, and may matter to its user; "" for nothing.
        cheap_rows: a row costs next to nothing, so that the whole of a given sample is compared.
        advice: what the user can do where the ONNX graph fails though the source runs; "" where nothing is known.
        difference_hint: where the graph runs and gives something else, what may be the reason.
    """

    form: str
    framework: str
    notes: list[str]
    advice: str = ""
    difference_hint: str = ""
    limits: Sequence[str] = ()
    untested: str = ""
    cheap_rows: bool = False
    dropped: Sequence[str] = ()
    compared_sizes: Sequence[int] = ()
    compared_values: Sequence[float] = ()
    traced_sizes: Mapping[str, int] = MappingProxyType({})

    def drop_tied_rows(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The feeds without those rows on which rounding alone decides (two classes that tie).

        The proof runs on what this gives.
        """
        return dict(feeds)

    def as_written(self, feeds: Mapping[str, np.ndarray]) -> Mapping[str, Any] | None:  # noqa: ARG002
        """What `run` gives, in the types that the source itself computes in; None where `run` computes in these.

        Raises:
            InputError: it does not run in these.
        """
        return None

    def unproven(self) -> list[str]:
        """What the export decided and no run since has shown to be harmless: a frozen branch, with its line."""
        return []

    def blamed(self, feeds: Mapping[str, np.ndarray]) -> list[str]:  # noqa: ARG002
        """Lines of the source at which its exporter took another side than these inputs need, the likeliest first."""
        return []

    def one_sided(self, tried: Sequence[Mapping[str, np.ndarray]]) -> list[str]:  # noqa: ARG002
        """Lines at which the exporter decided for good what no input tried has shown to be harmless.

        Args:
            tried: inputs, those that the source refused included.
        """
        return []

    def release(self) -> None:
        """Give back the weights. Called after the export and the source's own runs; `run` is not called after it."""


class LayeredModel(SourceModel):
    """A source that can show what its layers give, for `compare --layers`."""

    @abstractmethod
    def layers(self, feeds: Mapping[str, np.ndarray], see: Callable[[str, str, np.ndarray], None]) -> None:
        """One forward pass; `see` is called with name, kind and value of every layer's output as it is made."""


class Adapter(ABC):
    """Brings one framework. Its module imports the framework inside `prepare`, `load` and `export` only.

    Attributes:
        name: as `--adapter` and messages have it.
        extra: the extra of onnxtool, or the package, that installs the framework.
        imports_in_prepare: True where `prepare` imports all that `load` and `export` use, so that a file's limits of
            time and memory need not leave room for imports.
        reads_tables: `load` sees a sample that is a table; else none, since the model says what is made of it.
        loading: modules that `load` uses, for `prepare`.
        exporting: likewise, that `export` uses.
    """

    name: str
    extra: str
    imports_in_prepare: ClassVar[bool] = False
    reads_tables: ClassVar[bool] = False
    loading: ClassVar[Sequence[str]] = ()
    exporting: ClassVar[Sequence[str]] = ()

    @abstractmethod
    def recognises(self, source: Source, options: ConvertOptions) -> bool:
        """By content, not by suffix alone; works with no framework installed and executes nothing."""

    def prepare(self, source: Source, options: ConvertOptions, *, export: bool) -> None:  # noqa: ARG002
        """Import what `load` (`export` False) or `export` (True) will use; do nothing with the file."""
        import_all(self.exporting if export else self.loading, options.verbose)

    @abstractmethod
    def load(self, source: Source, options: ConvertOptions) -> SourceModel:
        """Load the model.

        Raises:
            MissingExtraError: the framework is not installed.
            InputError, UnsafeError, UnsupportedError, UsageError: one line each.
        """

    @abstractmethod
    def export(self, model: SourceModel, options: ConvertOptions) -> ir.Model:
        """Turn what `load` gave into an ONNX graph.

        Raises:
            UnsupportedError: an operator or feature that the exporter does not have.
        """

    def export_otherwise(
        self,
        model: SourceModel,  # noqa: ARG002
        options: ConvertOptions,  # noqa: ARG002
        other_side: Mapping[str, np.ndarray] | None = None,  # noqa: ARG002
    ) -> ir.Model | None:
        """The same by another exporter, after the first one's graph failed the proof; None where there is no other.

        Args:
            model: the source.
            options: as of `export`.
            other_side: given where `model.blamed` names lines for these inputs: the same exporter may do, from there.
        """
        return None
