"""The Keras adapter: `.keras`, HDF5 models, and weights with a factory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from onnxtool.conversion.adapter import Adapter, SourceModel
from onnxtool.conversion.keras import load
from onnxtool.conversion.keras.model import KerasModel, wrap
from onnxtool.conversion.source import Source
from onnxtool.conversion.tensorflow.environment import import_keras
from onnxtool.options.convert import ConvertOptions

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from onnxtool.conversion.tensorflow.graph import FrozenGraph


class KerasAdapter(Adapter):
    """Keras 3 models (and the Keras 2 files that Keras 3 reads)."""

    name = "keras"
    extra = "keras"
    imports_in_prepare = True
    loading = ("tensorflow", "keras", "h5py", "onnxtool.conversion.keras.trace")
    exporting = ("tf2onnx.tfonnx", "tf2onnx.tf_loader", "onnxtool.conversion.tensorflow.graph")

    def recognises(self, source: Source, options: ConvertOptions) -> bool:  # noqa: ARG002
        """A zip with config.json and metadata.json, or an HDF5 file."""
        return load.is_archive(source) or load.is_hdf5(source)

    def load(self, source: Source, options: ConvertOptions) -> SourceModel:
        """Load and trace the model.

        Raises:
            MissingExtraError, InputError, UnsafeError, UnsupportedError, UsageError: see `keras_load.read_model`.
        """
        keras = import_keras(str(source), options.verbose)
        model, form, notes = load.read_model(source, options, keras)
        wanted = os.environ.get("KERAS_BACKEND", "tensorflow")
        if wanted != "tensorflow":
            notes.append(f"loaded on Keras's TensorFlow backend, not on {wanted}")
        return wrap(model, form, notes, options)

    def export(self, model: SourceModel, options: ConvertOptions) -> ir.Model:
        """Freeze the traced function and convert it.

        Raises:
            UnsupportedError: an operator without an ONNX form.
        """
        from onnxtool.conversion.tensorflow import graph

        return graph.export_frozen(*_frozen(model, options))

    def export_otherwise(
        self, model: SourceModel, options: ConvertOptions, other_side: Mapping[str, np.ndarray] | None = None
    ) -> ir.Model | None:
        """With lists of tensors as sequences: a loop may fill them in another order than the converter thinks."""
        from onnxtool.conversion.tensorflow import graph

        if other_side:
            return None
        given = _frozen(model, options)
        return graph.export_frozen(*given, in_sequences=True) if given[0].has_lists else None


def _frozen(model: SourceModel, options: ConvertOptions) -> tuple[FrozenGraph, SourceModel, ConvertOptions, str]:
    from onnxtool.conversion.tensorflow import graph

    assert isinstance(model, KerasModel)
    traced = model.trace()
    # Keras' own lookups (StringLookup, TextVectorization) keep their words in tables, whose owner has to be asked.
    tables = any(op.type.startswith("LookupTable") for op in traced.graph.get_operations())
    frozen = graph.freeze(traced, model.model if tables else None, verbose=options.verbose)
    return frozen, model, options, str(model.model.name)
