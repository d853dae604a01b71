"""The scikit-learn adapter: skops files, and (trusted) pickles, joblib and cloudpickle files."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from onnxtool.conversion.adapter import Adapter, SourceModel
from onnxtool.conversion.opset import export_at
from onnxtool.conversion.quiet import import_all
from onnxtool.conversion.sklearn import load
from onnxtool.conversion.source import Source
from onnxtool.errors import MissingExtraError
from onnxtool.options.convert import ConvertOptions

if TYPE_CHECKING:
    import onnx_ir as ir


class SklearnAdapter(Adapter):
    """Fitted estimators, pipelines and what is built to their interface."""

    name = "sklearn"
    extra = "sklearn"
    imports_in_prepare = True
    reads_tables = True
    loading = ("sklearn", "sklearn.pipeline", "sklearn.ensemble", "skops.io", "onnxtool.conversion.sklearn.model")
    exporting = ("skl2onnx", "onnxtool.conversion.sklearn.export")

    def recognises(self, source: Source, options: ConvertOptions) -> bool:  # noqa: ARG002
        """A skops archive, or any pickle that no other adapter has claimed. Nothing is unpickled."""
        return load.is_skops(source) or load.pickle_form(source) is not None

    def prepare(self, source: Source, options: ConvertOptions, *, export: bool) -> None:
        """Import scikit-learn and skops, other packages that a skops file speaks of, and for the export skl2onnx.

        For a pickle nothing: it is trusted, and has the time of what is trusted.
        """
        if not load.is_skops(source):
            return
        super().prepare(source, options, export=export)
        if not export:
            import_all(load.named_packages(source), options.verbose)

    def load(self, source: Source, options: ConvertOptions) -> SourceModel:
        """Load the estimator and read its schema.

        Raises:
            UnsafeError: a pickle without trust, whether scikit-learn is installed or not.
            MissingExtraError, InputError, UsageError: see `sklearn_load.read_estimator`.
        """
        load.refuse_untrusted(source, options)
        if find_spec("sklearn") is None:
            raise MissingExtraError(str(source), "scikit-learn", self.extra)
        from onnxtool.conversion.sklearn.model import SklearnModel

        estimator, form, notes = load.read_estimator(source, options)
        return SklearnModel.prepare(source, estimator, form, notes, options)

    def export(self, model: SourceModel, options: ConvertOptions) -> ir.Model:
        """Convert with skl2onnx.

        Raises:
            UnsupportedError: a step without a converter.
        """
        from onnxtool.conversion.sklearn.export import NEWEST_OPSET, export, scales_before_trees
        from onnxtool.conversion.sklearn.model import SklearnModel

        assert isinstance(model, SklearnModel)
        if options.sample is None and scales_before_trees(model.estimator):
            model.notes.append(
                "the file decides as the source does on rows in float64; rows in float32 are scaled in float32 before "
                "the trees: for these, give some with --sample"
            )
        return export_at(
            options,
            NEWEST_OPSET,
            model.notes,
            lambda opset: export(model, opset, zipmap=options.zipmap, verbose=options.verbose),
        )
