"""What a fitted estimator computes, written down as ONNX nodes from its own attributes.

This is the source's side of a certificate: no exporter takes part. Scalers and linear models stand as their formulas in
doubles, trees with their thresholds in the numbers of the input (`traced_trees`).

Source: scikit-learn 1.8, `predict`, `predict_proba` and `transform` of each class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from onnxtool.conversion.boosting.operator_trace import boosted
from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.members import logistic_of
from onnxtool.conversion.sklearn.patches.exact_columns import scaler_steps
from onnxtool.conversion.sklearn.traced_trees import (
    TableTraceWriter,
    TracedColumn,
    TracedTable,
    TracedTree,
    classified,
    most_likely,
    to_float32,
    widened,
)
from onnxtool.errors import UnsupportedError
from onnxtool.model import io
from onnxtool.model.spec import TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

_OPSET, _ML_OPSET = 18, 3


def operator_trace(
    estimator: Estimator, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], columns: Sequence[str]
) -> ir.Model:
    """The formulas of an estimator, for any number of rows.

    Args:
        estimator: fitted.
        inputs, outputs: of its ONNX form.
        columns: their names, where each is an input of its own.

    Raises:
        UnsupportedError: a step without a form here.
    """
    if columns or len(inputs) != 1:
        raise UnsupportedError("columns by name have no exact form here")
    (spec,) = inputs
    width = (spec.shape or ())[-1] if len(spec.shape or ()) == 2 else None
    if not isinstance(spec.dtype, np.dtype) or spec.dtype.kind != "f" or not isinstance(width, int):
        raise UnsupportedError(f"an input of {spec.dtype} {spec.shape} has no exact form here")
    write = TableTraceWriter({spec.name: spec.dtype}, {spec.name: width})
    table = TracedTable(spec.name, tuple(TracedColumn(spec.name, i) for i in range(width)))
    results = given(write, estimator, table)
    if len(results) != len(outputs):
        raise UnsupportedError(f"{type(estimator).__name__} gives other outputs than its exact form")
    for name, output in zip(results, outputs, strict=True):
        write.nodes.append(helper.make_node("Identity", [name], [output.name]))
    fed = [helper.make_tensor_value_info(spec.name, helper.np_dtype_to_tensor_dtype(spec.dtype), ["rows", width])]
    number = TensorProto.DOUBLE if write.double else TensorProto.FLOAT
    kinds = [
        number if o.dtype == np.float32 else TensorProto.STRING if o.dtype == "string" else TensorProto.INT64
        for o in outputs
    ]
    named = [helper.make_tensor_value_info(o.name, kind, None) for o, kind in zip(outputs, kinds, strict=True)]
    graph = helper.make_graph(write.nodes, "trace", fed, named, write.constants)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    return io.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def given(write: TableTraceWriter, estimator: Estimator, table: TracedTable) -> list[str]:
    """The outputs of an estimator: label and scores, a prediction, or what it makes of its columns."""
    kind, package = type(estimator).__name__, type(estimator).__module__.partition(".")[0]
    if kind == "Pipeline":
        *before, (_, last) = estimator.steps
        for _, step in before:
            if step is not None and step != "passthrough":
                table = transformed(write, step, table)
        return given(write, last, table)
    if package in ("xgboost", "lightgbm"):
        return boosted(write, estimator, table)
    if package == "sklearn" and kind in _PREDICTED:
        return _PREDICTED[kind](write, estimator, table)
    return [transformed(write, estimator, table).name]


def transformed(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    """The columns that a transformer makes.

    Raises:
        UnsupportedError: it has no form here.
    """
    kind, package = type(step).__name__, type(step).__module__.partition(".")[0]
    if kind == "Pipeline":
        for _, inner in step.steps:
            if inner is not None and inner != "passthrough":
                table = transformed(write, inner, table)
        return table
    if package != "sklearn" or kind not in _TRANSFORMED:
        raise UnsupportedError(f"{kind} has no exact form here")
    return _TRANSFORMED[kind](write, step, table)


# Transformers


def _scaled(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    low, high = None, None
    if getattr(step, "clip", False):
        low, high = getattr(step, "feature_range", (-1.0, 1.0))
    for name, numbers in scaler_steps(step):
        if name in ("Mul", "Div") and not (numbers > 0).all():
            raise UnsupportedError(f"{type(step).__name__} by numbers below zero has no exact form here")
        act = {"Sub": np.subtract, "Add": np.add, "Mul": np.multiply, "Div": np.divide}[name]
        steps = [lambda x, act=act, n=n: act(x, n) for n in numbers]
        table = table.after(write.add(name, table.name, numbers), steps)
    if low is not None and high is not None:
        name = write.add("Max", write.add("Min", table.name, float(high)), float(low))
        table = table.after(name, [lambda x: np.clip(x, low, high)] * table.width)
    return table


def _projected(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    axes = np.ascontiguousarray(np.asarray(step.components_, np.float64).T)
    if getattr(step, "whiten", False):
        raise UnsupportedError("PCA(whiten=True) has no exact form here")
    name = write.add("MatMul", table.name, axes)
    if getattr(step, "mean_", None) is not None:
        name = write.add("Sub", name, np.reshape(step.mean_, (1, -1)) @ axes)  # a number of the source's own code
    return table.after(name, None, axes.shape[1])


def _imputed(write: TableTraceWriter, step: Estimator, table: TracedTable) -> TracedTable:
    """Gaps are filled with one number for each column; a column then rises but for its gaps."""
    filling = np.asarray(step.statistics_)
    gap = step.missing_values
    if not (isinstance(gap, float) and np.isnan(gap)) or filling.dtype.kind != "f" or np.isnan(filling).any():
        raise UnsupportedError("SimpleImputer of other gaps, or that drops columns, has no exact form here")
    if getattr(step, "indicator_", None) is not None:
        raise UnsupportedError("SimpleImputer(add_indicator=True) has no exact form here")
    name = write.add("Where", write.add("IsNaN", table.name), filling, table.name)
    return table.after(name, [lambda x, n=n: np.where(np.isnan(x), n, x) for n in filling])


_TRANSFORMED: dict[str, Callable[[TableTraceWriter, Any, TracedTable], TracedTable]] = {
    **dict.fromkeys(("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"), _scaled),
    "SimpleImputer": _imputed,
    **dict.fromkeys(("PCA", "TruncatedSVD"), _projected),
}


# Trees


def _tree_of(tree: Any, values: Any, target: int = -1) -> TracedTree:
    """Of scikit-learn's `tree_`."""
    missing = np.asarray(tree.missing_go_to_left, bool)
    return TracedTree(
        tree.feature, tree.threshold, False, missing, tree.children_left, tree.children_right, values, target
    )


def _forest(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    members = getattr(model, "estimators_", None)
    members = [model] if members is None else list(members)
    if model.n_outputs_ != 1 and hasattr(model, "classes_"):
        raise UnsupportedError("trees of several labels have no exact form here")
    classifies = hasattr(model, "classes_")
    trees = []
    for member in members:
        values = member.tree_.value
        trees.append(_tree_of(member.tree_, values[:, 0, :] if classifies else values[:, :, 0]))
    total = write.trees(table, trees, len(model.classes_) if classifies else model.n_outputs_, to_float32)
    wide = widened(write, total)
    if classifies:
        return [most_likely(write, total, model.classes_), write.add("Div", wide, float(len(members)))]
    return [write.add("Mul", wide, write.add("Div", 1.0, float(len(members))))]


def _gradient_boosting(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    count = model.estimators_.shape[1]
    trees = [
        _tree_of(member.tree_, member.tree_.value[:, 0, 0], target)
        for stage in model.estimators_
        for target, member in enumerate(stage)
    ]
    begin = np.asarray(model._raw_predict_init(np.zeros((1, model.n_features_in_), np.float32)), np.float64).ravel()
    if model.init_ != "zero" and not type(model.init_).__name__.startswith("Dummy"):
        raise UnsupportedError("boosting that begins with an estimator has no exact form here")
    sums = widened(write, write.trees(table, trees, count, to_float32))
    sums = write.add("Mul", sums, float(model.learning_rate))
    sums = write.add("Add", sums, begin) if begin.any() else sums
    if not hasattr(model, "classes_"):
        return [sums]
    if model.loss == "exponential":
        raise UnsupportedError("GradientBoostingClassifier(loss='exponential') has no exact form here")
    return classified(write, sums, count, model.classes_, equal=True)


def _histogram_boosting(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    trees = []
    for stage in model._predictors:
        for target, member in enumerate(stage):
            nodes = member.nodes
            if nodes["is_categorical"].any():
                raise UnsupportedError("splits on categories have no exact form here")
            leaf = nodes["is_leaf"] != 0
            low, high = (np.where(leaf, -1, nodes[side].astype(np.int64)) for side in ("left", "right"))
            missing = nodes["missing_go_to_left"] != 0
            features = nodes["feature_idx"].astype(np.int64)
            thresholds = nodes["num_threshold"]
            trees.append(TracedTree(features, thresholds, False, missing, low, high, nodes["value"], target))
    count = model.n_trees_per_iteration_
    begin = np.asarray(model._baseline_prediction, np.float64).ravel()
    sums = widened(write, write.trees(table, trees, count))
    sums = write.add("Add", sums, begin)
    if hasattr(model, "classes_"):
        return classified(write, sums, count, model.classes_, equal=False)
    if model.loss in ("poisson", "gamma"):
        return [write.add("Exp", sums)]
    return [sums]


# Linear models


def _scores(write: TableTraceWriter, model: Estimator, table: TracedTable) -> tuple[str, int]:
    weights = np.asarray(model.coef_, np.float64)
    weights = weights.reshape(1, -1) if weights.ndim == 1 else weights
    found = write.add("MatMul", table.name, np.ascontiguousarray(weights.T))
    bias = np.asarray(model.intercept_, np.float64).ravel()
    return (write.add("Add", found, bias) if bias.any() else found), len(weights)


def _linear(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    return [_scores(write, model, table)[0]]


def _linear_classifier(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    scores, count = _scores(write, model, table)
    kind = type(model).__name__
    pair = write.add("Concat", write.add("Neg", scores), scores, axis=1) if count == 1 else scores
    label = most_likely(write, pair, model.classes_)
    if not hasattr(model, "predict_proba"):
        return [label, pair if count == 1 else scores]
    if kind.startswith("Logistic") and (count == 1 or model.solver != "liblinear"):
        if getattr(model, "multi_class", "deprecated") not in ("auto", "deprecated"):
            raise UnsupportedError(f"{kind}(multi_class={model.multi_class!r}) has no exact form here")
        if count > 1:
            return [label, write.add("Softmax", pair, axis=1)]
        chances = logistic_of(write, scores)
        return [label, write.add("Concat", write.add("Sub", 1.0, chances), chances, axis=1)]
    raise UnsupportedError(f"the chances of {kind} have no exact form here")


def _perceptron(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    value, kinds = table.name, {"relu": "Relu", "logistic": "Sigmoid", "tanh": "Tanh", "identity": ""}
    layers = list(zip(model.coefs_, model.intercepts_, strict=True))
    for number, (weights, bias) in enumerate(layers):
        value = write.add("Add", write.add("MatMul", value, np.asarray(weights)), np.asarray(bias))
        if number < len(layers) - 1 and kinds[model.activation]:
            value = write.add(kinds[model.activation], value)
    if not hasattr(model, "classes_"):
        return [value]
    if model.out_activation_ != "softmax":
        raise UnsupportedError("an MLPClassifier of one score has no exact form here")
    chances = write.add("Softmax", value, axis=1)
    return [most_likely(write, chances, model.classes_), chances]


_PREDICTED: dict[str, Callable[[TableTraceWriter, Any, TracedTable], list[str]]] = {
    **dict.fromkeys(
        [
            f"{a}{b}"
            for a in ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees")
            for b in ("Classifier", "Regressor")
        ],
        _forest,
    ),
    **dict.fromkeys(("GradientBoostingClassifier", "GradientBoostingRegressor"), _gradient_boosting),
    **dict.fromkeys(("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"), _histogram_boosting),
    **dict.fromkeys(
        (
            *(
                "LinearRegression",
                "Ridge",
                "RidgeCV",
                "Lasso",
                "LassoCV",
                "ElasticNet",
                "ElasticNetCV",
                "Lars",
                "LarsCV",
            ),
            *("BayesianRidge", "ARDRegression", "HuberRegressor", "SGDRegressor", "LinearSVR", "TheilSenRegressor"),
            *("LassoLars", "LassoLarsCV", "LassoLarsIC", "OrthogonalMatchingPursuit", "QuantileRegressor"),
            *("PassiveAggressiveRegressor", "MultiTaskLasso", "MultiTaskElasticNet"),
        ),
        _linear,
    ),
    **dict.fromkeys(
        (
            *("LogisticRegression", "LogisticRegressionCV", "LinearSVC", "RidgeClassifier", "RidgeClassifierCV"),
            *("Perceptron", "PassiveAggressiveClassifier", "SGDClassifier"),
        ),
        _linear_classifier,
    ),
    **dict.fromkeys(("MLPClassifier", "MLPRegressor"), _perceptron),
}
