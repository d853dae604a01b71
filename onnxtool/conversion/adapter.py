"""The Adapter protocol and the registry: one adapter for each framework, built in or from an entry point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, UnsupportedError
from onnxtool.model.domains import Domain
from onnxtool.model.spec import Dim, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

ENTRY_POINTS = "onnxtool.adapters"

# name -> "module:Class"; in the order in which they are asked. A class is imported when it is asked.
BUILTIN: Mapping[str, str] = {
    "pytorch": "onnxtool.conversion.pytorch.adapter:PyTorchAdapter",
    "keras": "onnxtool.conversion.keras.adapter:KerasAdapter",
    "tensorflow": "onnxtool.conversion.tensorflow.adapter:TensorFlowAdapter",
    "sklearn": "onnxtool.conversion.sklearn.adapter:SklearnAdapter",
    "boosting": "onnxtool.conversion.boosting.adapter:BoostingAdapter",
}


@dataclass(frozen=True)
class ConvertOptions:
    """What the user asked for. An adapter reads what concerns it and leaves the rest alone.

    Attributes:
        input_shapes: input name -> dims; the key "" stands for the only input. str = dynamic dim with that name,
            None = unnamed dynamic dim.
        input_dtypes: input name -> dtype, "" likewise.
        sample: real inputs, by name; used in place of random ones. Its shapes and dtypes describe the inputs.
        opset: the ONNX opset to write; None = the newest that the embedded runtime fully supports.
        input_names: names for the inputs, in order; () = the model's own.
        output_names: likewise.
        factory: "file.py:function" or "package.module:Class".
        factory_args: keyword arguments for the factory.
        python_path: folders to import from while loading.
        trust: may load formats that run code.
        seed: of random inputs.
        verbose: 2 or more lets the exporters chatter.
        custom_op_libraries: shared libraries with the runtime's side of custom operators.
        adapter: name of the adapter to use; None = the first that recognises the source.
        exporter: PyTorch: which exporter; auto = torch.export's, then TorchScript's.
        keep_metadata: keep what exporters write into node metadata (PyTorch: stack traces with file paths).
        task: Hugging Face: what the model is for; None = from config.json.
        signature: SavedModel: which signature; None = serving_default or the only one.
        frozen_inputs: frozen .pb graph: names of the input tensors.
        frozen_outputs: frozen .pb graph: names of the output tensors.
        layout: "nchw" transposes a channels-last interface; None leaves it.
        zipmap: classifiers: probabilities as a list of maps instead of a tensor.
        float64: scikit-learn: keep doubles where the runtime can.
    """

    input_shapes: Mapping[str, tuple[Dim, ...]] = field(default_factory=dict)
    input_dtypes: Mapping[str, np.dtype | str] = field(default_factory=dict)
    sample: Mapping[str, np.ndarray] | None = None
    opset: int | None = None
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    factory: str | None = None
    factory_args: Mapping[str, Any] = field(default_factory=dict)
    python_path: tuple[Path, ...] = ()
    trust: bool = False
    seed: int = 0
    verbose: int = 0
    custom_op_libraries: tuple[Path, ...] = ()
    adapter: str | None = None
    exporter: Literal["auto", "dynamo", "torchscript"] = "auto"
    keep_metadata: bool = False
    task: str | None = None
    signature: str | None = None
    frozen_inputs: tuple[str, ...] = ()
    frozen_outputs: tuple[str, ...] = ()
    layout: Literal["nhwc", "nchw"] | None = None
    zipmap: bool = False
    float64: bool = False


class SourceModel(Protocol):
    """A loaded framework model. It is a Runner, in the names and shapes that the ONNX file will have.

    `export` may leave other tensor names in the graph: `api` renames graph inputs and outputs to these, in order,
    and gives them these dynamic dims.

    Two more methods are called and one attribute is read where a source has them:

    - `settle(feeds)` gives the feeds without those rows on which rounding alone decides (two classes that tie); the
      proof runs on what it gives.
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


def adapters() -> Iterator[Adapter]:
    """All adapters: the built-in ones, then those of installed packages (entry points "onnxtool.adapters")."""
    for target in BUILTIN.values():
        module, _, attribute = target.partition(":")
        if find_spec(module) is not None:
            yield getattr(import_module(module), attribute)()
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda e: e.name):
        yield entry.load()()


def find_adapter(source: Source, options: ConvertOptions) -> Adapter:
    """The adapter for a source.

    Raises:
        InputError: nobody recognises it; says what it looks like.
        UnsupportedError: `options.adapter` names none.
    """
    known = list(adapters())
    if options.adapter is not None:
        for adapter in known:
            if adapter.name == options.adapter:
                return adapter
        raise UnsupportedError(f"no adapter is called {options.adapter!r}; there are {_listed(known)}.")
    for adapter in known:
        if adapter.recognises(source, options):
            return adapter
    raise InputError(f"{source}: {_impression(source)}")


def _listed(known: Sequence[Adapter]) -> str:
    return ", ".join(a.name for a in known) or "none"


def _impression(source: Source) -> str:
    if source.is_folder:
        return "this folder holds no model in a form that is known (SavedModel, Hugging Face)."
    if source.suffix == ".onnx":
        return "this is an ONNX file already; check, optimize and quantize take it as it is."
    if source.is_text:
        return "this is a text file, not a model."
    if source.head(2) == b"PK" and not source.zip_names():
        return "this archive is damaged or cut off."
    return "this is no model in a form that is known, or it is damaged."
