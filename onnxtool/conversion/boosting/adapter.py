"""The adapter for boosted trees in their native files: XGBoost, LightGBM, CatBoost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.conversion.adapter import Adapter, SourceModel
from onnxtool.conversion.opset import export_at
from onnxtool.conversion.quiet import import_all
from onnxtool.conversion.sklearn.adapter import SklearnAdapter
from onnxtool.conversion.source import Source
from onnxtool.options.convert import ConvertOptions

if TYPE_CHECKING:
    import onnx_ir as ir


class BoostingAdapter(Adapter):
    """XGBoost .json and .ubj, LightGBM .txt, CatBoost .cbm and .json."""

    name = "boosting"
    extra = "boosting"
    imports_in_prepare = True
    reads_tables = True
    exporting = ("skl2onnx", "onnxtool.conversion.boosting.export")

    def recognises(self, source: Source, options: ConvertOptions) -> bool:  # noqa: ARG002
        """By magic bytes or JSON keys."""
        from onnxtool.conversion.boosting.load import form_of

        return form_of(source) is not None

    def prepare(self, source: Source, options: ConvertOptions, *, export: bool) -> None:
        """Import the file's own package, and for the export skl2onnx."""
        from onnxtool.conversion.boosting.load import form_of

        super().prepare(source, options, export=export)
        if source.model is None and not export:
            package = (form_of(source) or "").partition(" ")[0].lower()
            import_all((package, "onnxtool.conversion.sklearn.model"), options.verbose)

    def load(self, source: Source, options: ConvertOptions) -> SourceModel:
        """Load the trees.

        Raises:
            MissingExtraError, InputError, UnsupportedError: see `boosting_load.load`.
        """
        from onnxtool.conversion.boosting import load

        if source.model is not None:
            return load.load_booster(source, options)
        form = load.form_of(source)
        assert form is not None
        return load.load(source, form, options)

    def export(self, model: SourceModel, options: ConvertOptions) -> ir.Model:
        """Write the trees by the package's own JSON form or dump.

        Raises:
            UnsupportedError: an objective without an ONNX form.
        """
        from onnxtool.conversion.boosting import export as boosting_export
        from onnxtool.conversion.sklearn.model import SklearnModel

        assert isinstance(model, SklearnModel)
        if model.columns:  # of categories, which a step in front looks up
            return SklearnAdapter().export(model, options)
        return export_at(
            options,
            boosting_export.NEWEST_OPSET,
            model.notes,
            lambda opset: boosting_export.export(model, opset, zipmap=options.zipmap, verbose=options.verbose),
        )
