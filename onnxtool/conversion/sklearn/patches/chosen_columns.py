"""Columns that are chosen: all of them in another order, behind another step, or the first alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from onnxtool.conversion.patches import Patch, replaced
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, transformer
from onnxtool.conversion.sklearn.schema import column_names

_KINDS = (
    "GenericUnivariateSelect", "RFE", "RFECV", "SelectFdr", "SelectFpr", "SelectFromModel", "SelectFwe", "SelectKBest",
    "SelectPercentile", "SequentialFeatureSelector", "VarianceThreshold",
)  # fmt: skip


def _convert(write: NodeWriter) -> None:
    write.give(write.add("Gather", write.joined(), write.step.get_support(indices=True), axis=1))


def _by_place(plain: Callable[..., Any]) -> Callable[..., Any]:
    """skl2onnx's way to take a ColumnTransformer apart, with its columns by name or number, as it found them itself."""

    def parse(scope: Any, model: Any, inputs: Sequence[Any], *more: Any, **options: Any) -> Any:
        names, given = column_names(model), {variable.raw_name for variable in inputs}
        by_name = hasattr(model, "feature_names_in_")
        entries = []
        for name, step, _ in model.transformers_:
            places = [int(place) for place in model._transformer_to_input_indices[name]]
            named = (by_name and len(inputs) > 1) or bool(given.intersection(names))
            entries.append((name, step, [names[place] for place in places] if named else places))
        model = copy.copy(model)
        model.transformers_ = entries
        return plain(scope, model, inputs, *more, **options)

    return parse


def _located(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Where columns stand: of one matrix, as many as it has, in that alone."""

    def locate(places: Any, inputs: Sequence[Any], multiple: bool) -> Any:
        if len(inputs) == 1 and multiple and all(isinstance(place, int) for place in places):
            return {0: list(places)} if places else {}
        return plain(places, inputs, multiple)

    return locate


def _extracted(plain: Callable[..., Any]) -> Callable[..., Any]:
    def extract(scope: Any, inputs: Sequence[Any], places: Sequence[int]) -> Any:
        if list(places) == list(range(len(places))):
            return plain(scope, inputs, places)
        made = scope.declare_local_operator("SklearnArrayFeatureExtractor")
        made.inputs, made.column_indices = inputs, places
        made.outputs.append(scope.declare_local_variable("extracted_feature_columns", inputs[0].type))
        return made.outputs

    return extract


@contextmanager
def _applied() -> Iterator[None]:
    from sklearn.compose import ColumnTransformer

    parsing = import_module("skl2onnx._parse")
    parsers = parsing.sklearn_parsers_map
    before = parsers[ColumnTransformer]
    parsers[ColumnTransformer] = _by_place(before)
    try:
        with (
            replaced(parsing, "get_column_indices", _located(parsing.get_column_indices)),
            replaced(parsing, "_fetch_input_slice", _extracted(parsing._fetch_input_slice)),
        ):
            yield
    finally:
        parsers[ColumnTransformer] = before


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 takes the number of the first column, 0, for no column at all, and lacks one of them",
    *(
        transformer(f"sklearn.feature_selection:{k}", _convert, lambda step: int(step.get_support().sum()))
        for k in _KINDS
    ),
)
ORDER = Patch(
    "skl2onnx",
    "1.21",
    "skl2onnx 1.20 takes as many columns as there are for all in their order, and none behind another step",
    _applied,
)
