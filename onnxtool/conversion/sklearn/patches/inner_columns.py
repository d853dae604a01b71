"""Estimators around pipelines that take columns by name: as many inputs as there are columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from onnxtool.conversion.patches import Patch, replaced


def _inferring(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """skl2onnx's way to give outputs their types, with one matrix in the place of the columns that members see."""

    def infer_types(self: Any) -> Any:
        columns, estimator = self.inputs, self.raw_operator
        if len(columns) < 2 or not hasattr(estimator, "fit") or hasattr(estimator, "transformers_"):
            return plain(self)
        if not any(hasattr(estimator, name) for name in ("estimator_", "estimators_", "calibrated_classifiers_")):
            return plain(self)
        from skl2onnx.common.data_types import DoubleTensorType

        matrix = self.scope_inst.declare_local_variable("columns", DoubleTensorType([None, len(columns)]))
        matrix.init_status(is_fed=True)
        self.inputs = [matrix]
        try:
            return plain(self)
        finally:
            self.inputs = columns

    return infer_types


@contextmanager
def _applied() -> Iterator[None]:
    operator = import_module("skl2onnx.common._topology").Operator
    with replaced(operator, "infer_types", _inferring(operator.infer_types)):
        yield


PATCH = Patch("skl2onnx", "1.21", "skl2onnx 1.20 lets pipelines alone take several columns", _applied)
