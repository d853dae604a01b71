"""The one module that packages which extend onnxtool import from; what stands here stays.

- A converter for another framework: derive from `Adapter` and `SourceModel`; entry point group "onnxtool.adapters".
- An optimizer pass: `Pass` (or `FinishingPass`), `Level`, `PassContext`; entry point group "onnxtool.passes".
- A range estimator for calibration: `RangeEstimator`; entry point group "onnxtool.range_estimators".
- An operation of `edit`: derive from `Operation` (with `EditContext` and `Proof`); entry point group "onnxtool.edits".
- A format of tables: `DataFormat` (with `TableFile`, `DataTable`, `Rows`); entry point group "onnxtool.data_formats".
- A report format: a function from a `Report` to text; entry point group "onnxtool.report_formats".

`examples/adapter_package` and `examples/custom_pass` are whole packages; docs/architecture.md has the map.
"""

from onnxtool.conversion.adapter import Adapter, LayeredModel, SourceModel
from onnxtool.conversion.source import Source
from onnxtool.editing.context import EditContext
from onnxtool.editing.operation import Operation
from onnxtool.errors import (
    InputError,
    MissingExtraError,
    OnnxToolError,
    ResourceError,
    UnsafeError,
    UnsupportedError,
    UsageError,
    VerdictError,
)
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.optimization.pass_base import FinishingPass, Level, NodeRewrite, Pass
from onnxtool.optimization.pass_context import PassContext
from onnxtool.options.convert import ConvertOptions
from onnxtool.quantization.calibration.range_estimators import Histogram, Range, RangeEstimator
from onnxtool.report.base import Report
from onnxtool.report.edit import Proof
from onnxtool.runtime.data.formats.registry import DataFormat
from onnxtool.runtime.data.formats.table_file import TableFile
from onnxtool.runtime.data.table import DataTable, Rows

__all__ = [
    "Adapter",
    "ConvertOptions",
    "DataFormat",
    "DataTable",
    "Domain",
    "EditContext",
    "FinishingPass",
    "Histogram",
    "InputError",
    "LayeredModel",
    "Level",
    "MissingExtraError",
    "NodeRewrite",
    "OnnxToolError",
    "Operation",
    "Pass",
    "PassContext",
    "Proof",
    "Range",
    "RangeEstimator",
    "Report",
    "ResourceError",
    "Rows",
    "Source",
    "SourceModel",
    "TableFile",
    "TensorSpec",
    "UnsafeError",
    "UnsupportedError",
    "UsageError",
    "VerdictError",
]
