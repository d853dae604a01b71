"""What transformers make of columns, written down as ONNX nodes from their own attributes.

Source: scikit-learn 1.9, `transform` of each class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.patches.exact_columns import scaler_steps
from onnxtool.conversion.sklearn.traced_trees import TableTraceWriter, TracedTable, TracedTree
from onnxtool.errors import UnsupportedError

_FEW_EPS = 10 * float(np.finfo(np.float64).eps)  # what scikit-learn takes for zero where it divides


def transformed(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    """The columns that a transformer makes.

    Raises:
        UnsupportedError: it has no form here.
    """
    if step is None or isinstance(step, str):  # "passthrough"
        return table
    kind, package = type(step).__name__, type(step).__module__.partition(".")[0]
    if kind == "Pipeline":
        for _, inner in step.steps:
            table = transformed(write, inner, table)
        return table
    if package == "sklearn" and hasattr(step, "get_support"):
        return write.select(table, step.get_support(indices=True))
    if package != "sklearn" or kind not in _TRANSFORMED:
        raise UnsupportedError(f"{kind} has no exact form here")
    return _TRANSFORMED[kind](write, step, table)


# Side by side


def _by_columns(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    places = step._transformer_to_input_indices
    parts = [(inner, table, places[name]) for name, inner, _ in step.transformers_ if len(places[name])]
    return _weighted_parts(write, step, parts)


def _union(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    return _weighted_parts(write, step, [(inner, table, range(table.width)) for _, inner in step.transformer_list])


def _weighted_parts(write: TableTraceWriter, step: Estimator, parts: list[Any]) -> TracedTable:
    if step.transformer_weights:
        raise UnsupportedError(f"{type(step).__name__} with weights has no exact form here")
    return write.side_by_side(
        [transformed(write, inner, write.select(t, places)) for inner, t, places in parts if inner != "drop"]
    )


# Numbers


def _scaled(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    low, high = None, None
    if getattr(step, "clip", False):
        low, high = getattr(step, "feature_range", (-1.0, 1.0))
    for name, numbers in scaler_steps(step):
        if name in ("Mul", "Div") and not (numbers > 0).all():
            raise UnsupportedError(f"{type(step).__name__} by numbers below zero has no exact form here")
        act = {"Sub": np.subtract, "Add": np.add, "Mul": np.multiply, "Div": np.divide}[name]
        steps = [lambda x, act=act, n=n: act(x, n) for n in numbers]
        table = table.after(write.add(name, write.matrix(table), numbers), steps)
    if low is not None and high is not None:
        name = write.add("Max", write.add("Min", write.matrix(table), float(high)), float(low))
        table = table.after(name, [lambda x: np.clip(x, low, high)] * table.width)
    return table


def _projected(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    axes = np.ascontiguousarray(np.asarray(step.components_, np.float64).T)
    name = write.add("MatMul", write.matrix(table), axes)
    if getattr(step, "mean_", None) is not None:
        name = write.add("Sub", name, np.reshape(step.mean_, (1, -1)) @ axes)  # a number of the source's own code
    if getattr(step, "whiten", False):
        name = write.add("Div", name, np.maximum(np.sqrt(step.explained_variance_), np.finfo(np.float64).eps))
    return write.computed(name, axes.shape[1])


def _imputed(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    """Gaps are filled with one value for each column; a column of numbers then rises but for its gaps."""
    filling, gap = np.asarray(step.statistics_), step.missing_values
    if any(write.is_text(c) for c in table.columns):
        return _imputed_texts(write, step, table)
    if not (isinstance(gap, float) and np.isnan(gap)) or filling.dtype.kind != "f" or np.isnan(filling).any():
        raise UnsupportedError("SimpleImputer of other gaps, or that drops columns, has no exact form here")
    gaps = write.add("IsNaN", write.matrix(table))
    name = write.add("Where", gaps, filling, write.matrix(table))
    filled = table.after(name, [lambda x, n=n: np.where(np.isnan(x), n, x) for n in filling])
    indicator = getattr(step, "indicator_", None)
    if indicator is None or not len(indicator.features_):
        return filled
    seen = write.add("Gather", gaps, np.asarray(indicator.features_, np.int64), axis=1)
    return write.side_by_side(
        [filled, write.computed(write.add("Cast", seen, to=TensorProto.DOUBLE), len(indicator.features_), exact=True)]
    )


def _imputed_texts(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    """A text that is missing is the empty one."""
    if getattr(step, "indicator_", None) is not None or not all(isinstance(t, str) for t in step.statistics_):
        raise UnsupportedError("SimpleImputer of texts that counts gaps or drops columns has no exact form here")
    parts = []
    for place, filling in enumerate(step.statistics_):
        own = write.column(table, place)
        gap = write.add("Equal", own, np.array("", object))
        parts.append(write.computed(write.add("Where", gap, np.array(filling, object), own), 1, "string"))
    return write.side_by_side(parts)


def _normalized(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    value = write.matrix(table)
    if step.norm == "l2":
        norm = write.add("Sqrt", write.add("ReduceSum", write.add("Mul", value, value), np.array([1]), keepdims=1))
    else:
        operator = {"l1": "ReduceSum", "max": "ReduceMax"}[step.norm]
        norm = write.add(operator, write.add("Abs", value), np.array([1]), keepdims=1)
    norm = write.add("Where", write.add("Less", norm, _FEW_EPS), 1.0, norm)
    return write.computed(write.add("Div", value, norm), table.width)


def _products(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    """PolynomialFeatures: each column a product of columns."""
    value, found = write.matrix(table), []
    table = TracedTable(value, table.columns)
    size = write.add("Shape", write.column(table, 0))
    one = write.add("ConstantOfShape", size, value=numpy_helper.from_array(np.array([1.0])))
    for powers in step.powers_.tolist():
        factors = [write.column(table, place) for place, power in enumerate(powers) for _ in range(power)]
        product = factors[0] if factors else one
        for factor in factors[1:]:
            product = write.add("Mul", product, factor)
        found.append(product)
    return write.computed(write.add("Concat", *found, axis=1), len(found))


def _passed(write: TableTraceWriter, table: TracedTable, places: Any, thresholds: Any, *, equal: bool) -> str:
    """[rows, places]: whether a column's number is above a threshold, or at least it; as 0.0 or 1.0."""
    thresholds = np.asarray(thresholds, np.float64)
    write.refuse_rounded(table.columns)
    if not any(c.steps for c in table.columns):
        seen = write.add("Gather", write.matrix(table), np.asarray(places, np.int64), axis=1)
        above = write.add("GreaterOrEqual" if equal else "Greater", seen, thresholds)
        return write.add("Cast", above, to=TensorProto.DOUBLE)
    trees = [
        TracedTree([p, 0, 0], [t, 0.0, 0.0], equal, [False] * 3, [1, -1, -1], [2, -1, -1], [0.0, 0.0, 1.0], target)
        for target, (p, t) in enumerate(zip(places, thresholds, strict=True))
    ]
    return write.trees(table, trees, len(trees))


def _binary(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    places = range(table.width)
    found = _passed(write, table, places, [float(step.threshold)] * table.width, equal=False)
    return write.computed(found, table.width, exact=True)


def _binned(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    """The number of the bin, or a column for each bin."""
    parts = []
    for place, edges in enumerate(step.bin_edges_):
        inner = np.asarray(edges, np.float64)[1:-1]
        if not len(inner):
            raise UnsupportedError("KBinsDiscretizer with a single bin has no exact form here")
        passed = _passed(write, table, [place] * len(inner), inner, equal=True)
        number = write.add("ReduceSum", passed, np.array([1]), keepdims=1)
        if step.encode == "ordinal":
            parts.append(write.computed(number, 1, exact=True))
            continue
        count = int(step.n_bins_[place])
        one = write.add("Equal", number, np.arange(count, dtype=np.float64))
        parts.append(write.computed(write.add("Cast", one, to=TensorProto.DOUBLE), count, exact=True))
    return write.side_by_side(parts)


def _by_function(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    name = None if step.func is None else getattr(step.func, "__name__", "")
    operators = {"exp": "Exp", "log": "Log", "sqrt": "Sqrt", "abs": "Abs", "absolute": "Abs", "tanh": "Tanh"}
    if name is None:
        return table
    if type(step.func) is not np.ufunc or name not in operators or step.kw_args:
        raise UnsupportedError(f"FunctionTransformer({name}) has no exact form here")
    return write.computed(write.add(operators[name], write.matrix(table)), table.width)


# Categories


def _known(step: Estimator) -> Iterator[tuple[Any, bool]]:
    """The categories of each column, and whether they are texts; a missing one is the empty text."""
    if getattr(step, "_infrequent_enabled", False):
        raise UnsupportedError(f"{type(step).__name__} that groups rare categories has no exact form here")
    for values in step.categories_:
        if values.dtype.kind in "OU":
            texts = ["" if v is None or v != v else v for v in values.tolist()]
            if not all(isinstance(t, str) for t in texts) or len(set(texts)) < len(texts):
                raise UnsupportedError("categories of several types have no exact form here")
            yield np.array(texts, object), True
        elif np.isnan(numbers := values.astype(np.float64)).any():
            raise UnsupportedError("missing numbers as a category have no exact form here")
        else:
            yield numbers, False


def _is_each(write: TableTraceWriter, column: str, values: Any) -> str:
    """[rows, values]: whether the column is each value, as 0.0 or 1.0."""
    return write.add("Cast", write.add("Equal", column, values), to=TensorProto.DOUBLE)


def _one_hot(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    parts = []
    for place, (values, texts) in enumerate(_known(step)):
        left_out = None if step.drop_idx_ is None else step.drop_idx_[place]
        kept = np.arange(len(values)) if left_out is None else np.delete(np.arange(len(values)), left_out)
        column = write.column(table, place)
        if texts and step.handle_unknown == "error":
            kind = {"domain": "ai.onnx.ml", "cats_strings": values.tolist(), "zeros": 0}
            each = write.add("Cast", write.add("OneHotEncoder", column, **kind), to=TensorProto.DOUBLE)
            each = write.add("Gather", write.add("Squeeze", each, np.array([1])), kept, axis=1)
        else:
            each = _is_each(write, column, values[kept])
        if len(kept):
            parts.append(write.computed(each, len(kept), exact=True))
    return write.side_by_side(parts)


def _ordinal(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    """The number of the category; one that is not known is -1, where the source would refuse it."""
    unknown = -1 if step.handle_unknown == "error" else step.unknown_value
    parts = []
    for place, (values, texts) in enumerate(_known(step)):
        if not float(unknown).is_integer() or ("" in values.tolist() and step.encoded_missing_value is not None):
            raise UnsupportedError("OrdinalEncoder with gaps has no exact form here")
        column, numbers = write.column(table, place), np.arange(len(values))
        if texts:
            coded = write.add(
                "LabelEncoder",
                column,
                domain="ai.onnx.ml",
                keys_strings=values.tolist(),
                values_int64s=numbers.tolist(),
                default_int64=int(unknown),
            )
            coded = write.add("Cast", coded, to=TensorProto.DOUBLE)
        else:
            shares = (numbers - unknown).astype(np.float64).reshape(-1, 1)
            coded = write.add("Add", write.add("MatMul", _is_each(write, column, values), shares), float(unknown))
        parts.append(write.computed(coded, 1, exact=True))
    return write.side_by_side(parts)


_TRANSFORMED: dict[str, Callable[[TableTraceWriter, Any, TracedTable], TracedTable]] = {
    "ColumnTransformer": _by_columns,
    "FeatureUnion": _union,
    **dict.fromkeys(("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"), _scaled),
    "SimpleImputer": _imputed,
    **dict.fromkeys(("PCA", "TruncatedSVD"), _projected),
    "Normalizer": _normalized,
    "PolynomialFeatures": _products,
    "Binarizer": _binary,
    "KBinsDiscretizer": _binned,
    "FunctionTransformer": _by_function,
    "OneHotEncoder": _one_hot,
    "OrdinalEncoder": _ordinal,
}
