"""The TensorFlow adapter: SavedModel folders, frozen graphs, TensorFlow Lite files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from onnxtool.conversion.adapter import Adapter, SourceModel
from onnxtool.conversion.opset import export_at
from onnxtool.conversion.source import Source
from onnxtool.conversion.tensorflow.environment import import_tensorflow
from onnxtool.options.convert import ConvertOptions

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")


class TensorFlowAdapter(Adapter):
    """What TensorFlow itself writes."""

    name = "tensorflow"
    extra = "keras"
    imports_in_prepare = True
    loading = (
        "tensorflow",
        "tensorflow.lite",
        "onnxtool.conversion.tensorflow.load",
        "onnxtool.conversion.tensorflow.lite",
    )
    exporting = ("tf2onnx.tfonnx", "tf2onnx.tf_loader", "onnxtool.conversion.tensorflow.graph")

    def recognises(self, source: Source, options: ConvertOptions) -> bool:  # noqa: ARG002
        """A folder with saved_model.pb, the file itself, a TensorFlow Lite flatbuffer, or a serialized GraphDef."""
        return _saved_model_folder(source) is not None or _is_lite(source) or _is_graph_def(source)

    def load(self, source: Source, options: ConvertOptions) -> SourceModel:
        """Load and trace.

        Raises:
            MissingExtraError, InputError, UnsafeError, UnsupportedError, UsageError: see `tensorflow_load`.
        """
        import_tensorflow(str(source), options.verbose)
        from onnxtool.conversion.tensorflow import load

        if _is_lite(source):
            from onnxtool.conversion.tensorflow.lite import load_lite

            return load_lite(source, options)
        folder = _saved_model_folder(source)
        if folder is not None:
            return load.load_saved_model(source, folder, options)
        return load.load_frozen_graph(source, options)

    def export(self, model: SourceModel, options: ConvertOptions) -> ir.Model:
        """Freeze the traced function and convert it.

        Raises:
            UnsupportedError: an operator without an ONNX form.
        """
        from onnxtool.conversion.tensorflow import graph
        from onnxtool.conversion.tensorflow.lite import LiteModel, export_lite
        from onnxtool.conversion.tensorflow.model import TensorFlowModel

        if isinstance(model, LiteModel):
            lite = model
            return export_at(
                options, graph.NEWEST_OPSET, model.notes, lambda opset: export_lite(lite, opset, options.verbose)
            )
        assert isinstance(model, TensorFlowModel)
        return graph.export_frozen(graph.freeze(model.trace(), model.trackable, options.verbose), model, options)

    def export_otherwise(
        self, model: SourceModel, options: ConvertOptions, other_side: Mapping[str, np.ndarray] | None = None
    ) -> ir.Model | None:
        """With lists of tensors as sequences: a loop may fill them in another order than the converter thinks."""
        from onnxtool.conversion.tensorflow import graph
        from onnxtool.conversion.tensorflow.model import TensorFlowModel

        if other_side is not None or not isinstance(model, TensorFlowModel):
            return None
        frozen = graph.freeze(model.trace(), model.trackable, options.verbose)
        return graph.export_frozen(frozen, model, options, in_sequences=True) if frozen.has_lists else None


def _saved_model_folder(source: Source) -> Path | None:
    if source.path is None:
        return None
    if source.is_folder:
        return source.path if any(name in source.names() for name in _SAVED_MODEL) else None
    return source.path.parent if source.path.name in _SAVED_MODEL else None


def _is_lite(source: Source) -> bool:
    """A flatbuffer with TensorFlow Lite's identifier."""
    return source.head(8)[4:8] == b"TFL3"


def _is_graph_def(source: Source) -> bool:
    """Protobuf that begins with a node (field 1), which begins with its name (field 1) and then its operator (2)."""
    head = source.head(1024)
    if head[:1] != b"\x0a":
        return False
    _, start = _varint(head, 1)
    if head[start : start + 1] != b"\x0a":
        return False
    length, name = _varint(head, start + 1)
    end = name + length
    return head[name:end].isascii() and head[end : end + 1] == b"\x12" and length > 0


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data):
        byte = data[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            break
    return value, position
