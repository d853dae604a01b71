"""Registering converters of our own with skl2onnx, beside those that it has."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Converter = Callable[[Any, Any, Any], None]
_CLASSIFIER = {
    "zipmap": [True, False, "columns"],
    "nocl": [True, False],
    "output_class_labels": [True, False],
    "raw_scores": [True, False],
}


def number_type(given: Any) -> Any:
    """The type of numbers that come out of an input's: doubles of doubles, else floats."""
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType

    return DoubleTensorType if isinstance(given, DoubleTensorType) else FloatTensorType


def register_transformer(kind: type, convert: Converter, width: Callable[[Any], int]) -> None:
    """Of an estimator without a converter, which gives a matrix of numbers.

    Args:
        kind: of estimator.
        convert: skl2onnx's kind of function.
        width: how many columns a fitted one gives.
    """
    from skl2onnx import update_registered_converter

    def shapes(operator: Any) -> None:
        given = operator.inputs[0].type
        operator.outputs[0].type = number_type(given)([given.shape[0], width(operator.raw_operator)])

    update_registered_converter(kind, f"Onnxtool{kind.__name__}", shapes, convert, overwrite=True)


def register_classifier(kind: type, convert: Converter) -> None:
    """Of a classifier without a converter, or with a wrong one: it gives labels and scores."""
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes

    alias, shapes = f"Onnxtool{kind.__name__}", calculate_linear_classifier_output_shapes
    update_registered_converter(kind, alias, shapes, convert, overwrite=True, options=_CLASSIFIER)


def extend(kind: type, convert: Callable[[Converter, Any, Any, Any], None], wider: Any = None) -> None:
    """Let a converter of our own decide whether skl2onnx's is used.

    Args:
        kind: of estimator.
        convert: takes skl2onnx's converter first, and then what that takes.
        wider: given a fitted estimator, how many columns it gives; None where skl2onnx knows.
    """
    from skl2onnx import update_registered_converter
    from skl2onnx._supported_operators import _get_sklearn_operator_name
    from skl2onnx.common._registration import get_converter, get_shape_calculator

    alias = _get_sklearn_operator_name(kind)
    registered, known = get_converter(alias), get_shape_calculator(alias)

    def shapes(operator: Any) -> None:
        known(operator)
        if wider is not None:
            first = operator.inputs[0].type.shape
            operator.outputs[0].type.shape = [first[0] if first else None, wider(operator.raw_operator)]

    def converted(scope: Any, operator: Any, container: Any) -> None:
        convert(registered._fct, scope, operator, container)

    options = registered.get_allowed_options()
    update_registered_converter(kind, alias, shapes, converted, overwrite=True, options=options)


@contextmanager
def standing_in(operator: Any, estimator: Any, outputs: Any = None) -> Iterator[Any]:
    """An operator with a changed estimator, and other outputs, while a converter looks at it."""
    before = operator.raw_operator, operator.outputs
    operator.raw_operator = estimator
    if outputs is not None:
        operator.outputs = outputs
    try:
        yield operator
    finally:
        operator.raw_operator, operator.outputs = before


def changed(estimator: Any, **attributes: Any) -> Any:
    """A copy with other attributes."""
    found = copy.copy(estimator)
    for name, value in attributes.items():
        setattr(found, name, value)
    return found
