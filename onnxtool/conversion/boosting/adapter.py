"""The adapter for boosted trees in their native files: XGBoost, LightGBM, CatBoost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.conversion.adapter import Adapter, SourceModel
from onnxtool.conversion.opset import newest_runtime_opset, raise_opset, target_opset
from onnxtool.conversion.quiet import import_all
from onnxtool.conversion.source import Source
from onnxtool.options.convert import ConvertOptions

if TYPE_CHECKING:
    import onnx_ir as ir

_EXPORTING = ("onnxmltools", "skl2onnx", "onnxtool.conversion.boosting.export")


class BoostingAdapter(Adapter):
    """XGBoost .json and .ubj, LightGBM .txt, CatBoost .cbm and .json."""

    name = "boosting"
    extra = "boosting"
    imports_in_prepare = True

    def recognises(self, source: Source, options: ConvertOptions) -> bool:  # noqa: ARG002
        """By magic bytes or JSON keys."""
        from onnxtool.conversion.boosting.load import form_of

        return form_of(source) is not None

    def prepare(self, source: Source, options: ConvertOptions, *, export: bool) -> None:
        """Import the file's own package, and for the export onnxmltools."""
        from onnxtool.conversion.boosting.load import form_of

        if source.model is not None:
            import_all(_EXPORTING if export else (), options.verbose)
            return
        package = (form_of(source) or "").partition(" ")[0].lower()
        import_all(_EXPORTING if export else (package, "onnxtool.conversion.sklearn.model"), options.verbose)

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
        """Convert with onnxmltools, or with CatBoost's own writer.

        Raises:
            UnsupportedError: an objective without an ONNX form.
        """
        from onnxtool.conversion.boosting import export as boosting_export
        from onnxtool.conversion.sklearn.model import SklearnModel

        assert isinstance(model, SklearnModel)
        if options.float64:
            model.notes.append("--float64 changes nothing here: native files of boosted trees convert to float32 only")
        wanted = target_opset(options, newest_runtime_opset())
        opset = min(wanted, boosting_export.NEWEST_OPSET)
        exported = boosting_export.export(model, opset, zipmap=options.zipmap, verbose=options.verbose)
        return raise_opset(exported, wanted, model.notes if options.opset else None)
