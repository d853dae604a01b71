"""PyTorch: state dicts, pickled modules, TorchScript, exported programs, or a factory alone."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from onnxtool.conversion.adapter import Adapter, SourceModel
from onnxtool.conversion.pytorch.bare_weights import refuse_bare_weights
from onnxtool.conversion.quiet import import_all
from onnxtool.conversion.source import Source
from onnxtool.errors import MissingExtraError
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.feeds import Feeds

if TYPE_CHECKING:
    import onnx_ir as ir

# First bytes of a file written by torch.save before its zip form: pickle protocol 2, then torch's magic number.
_LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_HF_WEIGHTS = re.compile(r"(model|pytorch_model)([-.].*)?\.(safetensors|bin)(\.index\.json)?$")


class PyTorchAdapter(Adapter):
    """Reads what torch writes; exports with torch.export first and TorchScript second."""

    name = "pytorch"
    extra = "pytorch"
    imports_in_prepare = True
    loading = ("torch", "torch.export", "onnxtool.conversion.pytorch.load", "onnxtool.conversion.pytorch.model")
    exporting = (
        "torch.onnx",
        "torch.onnx._internal.exporter._core",
        "onnxscript",
        "onnxtool.conversion.pytorch.export",
    )

    def recognises(self, source: Source, options: ConvertOptions) -> bool:
        """True for every form that `form_of` knows."""
        return form_of(source, options) is not None

    def prepare(self, source: Source, options: ConvertOptions, *, export: bool) -> None:
        """Import torch, and what else this form needs; for the export its exporters."""
        if find_spec("torch") is None:
            return
        if not export and options.factory is None and source.model is None:
            refuse_bare_weights(source)
        super().prepare(source, options, export=export)
        form = None if export else form_of(source, options)
        if form == "safetensors":
            import_all(("safetensors.torch",), options.verbose)
        if form in ("hugging face", "sentence-transformers") and find_spec("transformers") is not None:
            from onnxtool.conversion.pytorch.sentence_transformers import transformer_of
            from onnxtool.conversion.pytorch.transformers import import_class

            import_class(source if form == "hugging face" else transformer_of(source), options)

    def load(self, source: Source, options: ConvertOptions) -> SourceModel:
        """Load the module and work out its inputs and outputs.

        Raises:
            MissingExtraError: torch (or, for .safetensors, safetensors) is not installed.
            InputError, UnsafeError, UnsupportedError, UsageError: as the loaders find.
        """
        if find_spec("torch") is None:
            raise MissingExtraError(str(source), "PyTorch", self.extra)
        from onnxtool.conversion.pytorch.load import load_module
        from onnxtool.conversion.pytorch.model import TorchModel

        form = form_of(source, options)
        assert form is not None
        loaded = load_module(source, form, options)
        return TorchModel.prepare(loaded, source, options)

    def export(self, model: SourceModel, options: ConvertOptions) -> ir.Model:
        """Export with torch.export's exporter; on failure, and where that is sound, with TorchScript's.

        Raises:
            UnsupportedError: no exporter can do it; says which operator or line is to blame.
        """
        from onnxtool.conversion.pytorch.export import export
        from onnxtool.conversion.pytorch.model import TorchModel

        assert isinstance(model, TorchModel)
        return export(model, options)

    def export_otherwise(
        self, model: SourceModel, options: ConvertOptions, other_side: Feeds | None = None
    ) -> ir.Model | None:
        """At other sizes or with TorchScript's exporter, where torch.export's wrote a graph that fails the proof."""
        from onnxtool.conversion.pytorch.export import export_otherwise
        from onnxtool.conversion.pytorch.model import TorchModel

        assert isinstance(model, TorchModel)
        return export_otherwise(model, options, other_side)


def form_of(source: Source, options: ConvertOptions) -> str | None:
    """Which form of PyTorch model this is, by content; None for none.

    Returns:
        "archive" or "legacy" (torch.save's zip and older form: a state dict, a checkpoint or a pickled module),
        "torchscript", "exported program", "safetensors", "hugging face", "sentence-transformers", "factory", "memory",
        or None.
    """
    if source.model is not None:
        return "memory"
    if source.path is None:
        return "factory" if options.factory is not None else None
    if source.is_folder:
        if "modules.json" in source.names() and options.task in (None, "sentence-embedding"):
            return "sentence-transformers"
        return "hugging face" if _is_hugging_face(source) else None
    names = source.zip_names()
    if names:
        return _form_of_archive(names)
    head = source.head(16)
    if head.startswith(_LEGACY_MAGIC[:15]):
        return "legacy"
    return "safetensors" if _is_safetensors(source) else None


def _form_of_archive(names: tuple[str, ...]) -> str | None:
    inner = {n.partition("/")[2] for n in names}
    if any(n.startswith("models/") and n.endswith(".json") for n in inner) and "archive_format" in inner:
        return "exported program"
    if "serialized_exported_program.json" in names or "serialized_exported_program.json" in inner:
        return "exported program"
    if "data.pkl" not in inner:
        return None
    return "torchscript" if "constants.pkl" in inner or any(n.startswith("code/") for n in inner) else "archive"


def _is_hugging_face(source: Source) -> bool:
    if "config.json" not in source.names() or not any(_HF_WEIGHTS.match(n) for n in source.names()):
        return False
    config = source.json("config.json")
    return isinstance(config, dict) and ("architectures" in config or "model_type" in config)


def _is_safetensors(source: Source) -> bool:
    # Eight bytes with the length of a JSON header, then that header.
    head = source.head(16)
    return len(head) >= 9 and head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= source.size - 8
