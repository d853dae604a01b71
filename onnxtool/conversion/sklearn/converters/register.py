"""Converters of our own in the place of skl2onnx's, or beside them, for the time of one export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from onnxtool.conversion.patches import LibraryPatch
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter

Converter = Callable[[NodeWriter], None]
# Likewise, given skl2onnx's own converter of what the writer has at hand.
Extension = Callable[[NodeWriter, Callable[[], None]], None]
_CLASSIFIER = {
    "zipmap": [True, False, "columns"],
    "nocl": [True, False],
    "output_class_labels": [True, False],
    "raw_scores": [True, False],
}
# Where skl2onnx keeps what it knows.
_TABLES = (
    ("skl2onnx.common._registration", "_converter_pool"),
    ("skl2onnx.common._registration", "_shape_calculator_pool"),
    ("skl2onnx._supported_operators", "sklearn_operator_name_map"),
    ("skl2onnx._parse", "sklearn_parsers_map"),
)


@dataclass(frozen=True)
class Registration:
    """A converter of ours for one kind of estimator.

    Attributes:
        kind: "sklearn.impute:KNNImputer".
        register: tells skl2onnx, given the class.
    """

    kind: str
    register: Callable[[type], None]

    @property
    def name(self) -> str:
        """Of the class."""
        return self.kind.partition(":")[2]


@dataclass(frozen=True)
class ConverterPatch(LibraryPatch):
    """A correction of skl2onnx for some kinds of estimators.

    Attributes:
        kinds: names of their classes.
    """

    kinds: tuple[str, ...] = ()


def converter_patch(below: str, upstream: str, *registrations: Registration) -> ConverterPatch:
    """Converters in the place of skl2onnx's below a version; of "", where it has none itself."""

    def apply() -> AbstractContextManager[None]:
        return _registered(registrations, only_missing=not below)

    return ConverterPatch("skl2onnx", below, upstream, apply, tuple(r.name for r in registrations))


@contextmanager
def _registered(registrations: tuple[Registration, ...], *, only_missing: bool) -> Iterator[None]:
    """Inside the block skl2onnx has these converters; behind it, those that it had."""
    tables = [getattr(import_module(module), name) for module, name in _TABLES]
    before = [dict(table) for table in tables]
    try:
        for registration in registrations:
            module, _, name = registration.kind.partition(":")
            kind = getattr(import_module(module), name)
            if not (only_missing and kind in before[2]):
                registration.register(kind)
        yield
    finally:
        for table, kept in zip(tables, before, strict=True):
            table.clear()
            table.update(kept)


def number_type(given: Any) -> Any:
    """The type of numbers that come out of an input's: doubles of doubles, else floats."""
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType

    return DoubleTensorType if isinstance(given, DoubleTensorType) else FloatTensorType


def typed_as_rows(operator: Any, known: Callable[[Any], None]) -> None:
    """Doubles of doubles, in the shapes that skl2onnx knows; 1.20 declares floats in some cases."""
    known(operator)
    operator.outputs[0].type = number_type(operator.inputs[0].type)(operator.outputs[0].type.shape)


def transformer(kind: str, convert: Converter, width: Callable[[Any], int]) -> Registration:
    """For an estimator that gives a matrix of numbers.

    Args:
        kind: "module:Class".
        convert: writes the nodes.
        width: how many columns a fitted one gives.
    """

    def shapes(operator: Any) -> None:
        given = operator.inputs[0].type
        operator.outputs[0].type = number_type(given)([(given.shape or [None])[0], width(operator.raw_operator)])

    def register(cls: type) -> None:
        from skl2onnx._parse import sklearn_parsers_map

        sklearn_parsers_map.pop(cls, None)  # what 1.20 makes of RandomTreesEmbedding ends the graph
        _register(cls, f"Onnxtool{cls.__name__}", shapes, convert)

    return Registration(kind, register)


def classifier(kind: str, convert: Converter) -> Registration:
    """For an estimator that gives labels and scores."""

    def register(cls: type) -> None:
        from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes as shapes

        _register(cls, f"Onnxtool{cls.__name__}", shapes, convert, _CLASSIFIER)

    return Registration(kind, register)


def labels_and_scores(kind: str, convert: Converter, width: Callable[[Any], int]) -> Registration:
    """For one that gives int64 labels without classes, and scores in so many columns: of clusters and outliers."""

    def shapes(operator: Any) -> None:
        from skl2onnx.common.data_types import Int64TensorType

        rows = operator.inputs[0].type.shape[0]
        operator.outputs[0].type = Int64TensorType([rows])
        operator.outputs[1].type = number_type(operator.inputs[0].type)([rows, width(operator.raw_operator)])

    return Registration(kind, lambda cls: _register(cls, f"Onnxtool{cls.__name__}", shapes, convert))


def extension(
    kind: str,
    convert: Extension,
    width: Callable[[Any], int] | None = None,
    shapes: Callable[[Any, Callable[[Any], None]], None] | None = None,
) -> Registration:
    """For one of which skl2onnx's own converter is right in some cases, or for a part.

    Args:
        kind: "module:Class".
        convert: decides whether skl2onnx's is used.
        width: given a fitted estimator, how many columns it gives; None where skl2onnx knows.
        shapes: gives an operator's outputs their types, by skl2onnx's own way where that helps; None for that alone.
    """

    def register(cls: type) -> None:
        from skl2onnx._supported_operators import _get_sklearn_operator_name
        from skl2onnx.common._registration import get_converter, get_shape_calculator

        alias = _get_sklearn_operator_name(cls)
        registered, known = get_converter(alias), get_shape_calculator(alias)

        def calculated(operator: Any) -> None:
            if shapes is not None:
                shapes(operator, known)
            else:
                known(operator)
            if width is not None:
                first = operator.inputs[0].type.shape
                operator.outputs[0].type.shape = [first[0] if first else None, width(operator.raw_operator)]

        def converted(write: NodeWriter) -> None:
            convert(write, lambda: registered._fct(write.scope, write.operator, write.container))

        _register(cls, alias, calculated, converted, registered.get_allowed_options())

    return Registration(kind, register)


def _register(
    cls: type, alias: str, shapes: Callable[[Any], None], convert: Converter, options: dict[str, Any] | None = None
) -> None:
    from skl2onnx import update_registered_converter
    from skl2onnx._parse import sklearn_parsers_map

    def converted(scope: Any, operator: Any, container: Any) -> None:
        convert(NodeWriter(scope, operator, container))

    parser = sklearn_parsers_map.get(cls)
    update_registered_converter(cls, alias, shapes, converted, overwrite=True, parser=parser, options=options)
