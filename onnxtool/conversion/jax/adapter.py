"""The JAX adapter: modules of Flax and Equinox, and plain functions, as a factory or a Python program gives them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from onnxtool.conversion.adapter import Adapter, SourceModel
from onnxtool.conversion.source import Source
from onnxtool.errors import MissingExtraError
from onnxtool.options.convert import ConvertOptions

if TYPE_CHECKING:
    import onnx_ir as ir


class JaxAdapter(Adapter):
    """What JAX computes; jax2onnx exports it."""

    name = "jax"
    extra = "jax"
    imports_in_prepare = True
    loading = ("jax", "onnxtool.conversion.jax.load")
    exporting = ("jax2onnx", "onnxtool.conversion.jax.export")

    def recognises(self, source: Source, options: ConvertOptions) -> bool:  # noqa: ARG002
        """No file: JAX has no form of a whole model on disk. What a factory gives is known by its class."""
        return False

    def load(self, source: Source, options: ConvertOptions) -> SourceModel:
        """Make a function of the module, switched to inference, and work out its inputs and outputs.

        Raises:
            MissingExtraError: JAX or jax2onnx is not installed.
            InputError, UsageError: as `load_function` and `JaxModel.prepare`.
        """
        for package in ("jax", "jax2onnx"):
            if find_spec(package) is None:
                raise MissingExtraError(str(source), package, self.extra)
        from onnxtool.conversion.jax.load import load_function
        from onnxtool.conversion.jax.model import JaxModel

        return JaxModel.prepare(load_function(source.model, options.seed), options)

    def export(self, model: SourceModel, options: ConvertOptions) -> ir.Model:
        """Trace the function with its dynamic dims as symbols, and convert the trace.

        Raises:
            UnsupportedError: an operator without an ONNX form, or code that decides by a dynamic size.
        """
        from onnxtool.conversion.jax.export import export
        from onnxtool.conversion.jax.model import JaxModel

        assert isinstance(model, JaxModel)
        return export(model, options)
