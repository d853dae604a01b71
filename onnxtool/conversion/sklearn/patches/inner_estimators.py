"""Estimators inside others: the options that their converters know, and as many inputs as there are columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
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


def _known(plain: Callable[..., Any]) -> Callable[..., Any]:
    def build(
        model: Any, given: Mapping[Any, Mapping[str, Any]] | None, usual: Any, allowed: Any, fail: bool
    ) -> dict[str, Any] | None:
        if allowed != "passthrough":
            given = {
                key: {n: v for n, v in (o or {}).items() if n in (allowed or ())} for key, o in (given or {}).items()
            }
        found: dict[str, Any] | None = plain(model, given, usual, allowed, fail)
        return found

    return build


@contextmanager
def _applied() -> Iterator[None]:
    topology = import_module("skl2onnx.common._topology")
    with ExitStack() as stack:
        for module in (import_module("skl2onnx.common._container"), topology):
            stack.enter_context(replaced(module, "_build_options", _known(module._build_options)))
        stack.enter_context(replaced(topology.Operator, "infer_types", _inferring(topology.Operator.infer_types)))
        yield


PATCH = Patch(
    "skl2onnx",
    "1.21",
    "skl2onnx 1.20 asks members, and selectors that resemble classifiers, for options that they do not know, and lets "
    "pipelines alone take several columns",
    _applied,
)
