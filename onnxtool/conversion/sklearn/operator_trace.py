"""What a fitted estimator computes, written down as ONNX nodes from its own attributes.

This is the source's side of a certificate: no exporter takes part. Scalers and linear models stand as their formulas in
doubles, trees with their thresholds in the numbers of the input (`traced_trees`).

Source: scikit-learn 1.8, `predict`, `predict_proba` and `transform` of each class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from onnxtool.conversion.boosting.operator_trace import boosted
from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.members import logistic_of
from onnxtool.conversion.sklearn.schema import column_names
from onnxtool.conversion.sklearn.traced_columns import transformed
from onnxtool.conversion.sklearn.traced_trees import (
    TableTraceWriter,
    TracedColumn,
    TracedTable,
    TracedTree,
    chosen_labels,
    classified,
    decided_label,
    most_likely,
    to_float32,
    widened,
)
from onnxtool.errors import UnsupportedError
from onnxtool.model import io
from onnxtool.model.spec import TensorSpec, row_width

if TYPE_CHECKING:
    import onnx_ir as ir

_OPSET, _ML_OPSET = 19, 3
_TYPES = ("float32", "float64", "int64", "int32", "bool", "string")


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
    for spec in inputs:
        if len(spec.shape or ()) != 2 or row_width(spec) is None or str(spec.dtype) not in _TYPES:
            raise UnsupportedError(f"an input of {spec.dtype} {spec.shape} has no exact form here")
    write = TableTraceWriter(inputs)
    results = given(write, estimator, _table(write, estimator, inputs, columns))
    if len(results) != len(outputs):
        raise UnsupportedError(f"{type(estimator).__name__} gives other outputs than its exact form")
    for name, output in zip(results, outputs, strict=True):
        write.nodes.append(helper.make_node("Identity", [name], [output.name]))
    fed = [helper.make_tensor_value_info(s.name, _type_of(s.dtype), ["rows", row_width(s)]) for s in inputs]
    number = TensorProto.DOUBLE if write.double else TensorProto.FLOAT
    kinds = [number if o.dtype == np.float32 else _type_of(o.dtype) for o in outputs]
    named = [helper.make_tensor_value_info(o.name, kind, None) for o, kind in zip(outputs, kinds, strict=True)]
    graph = helper.make_graph(write.nodes, "trace", fed, named, write.constants)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    return io.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def _type_of(dtype: np.dtype[Any] | str) -> int:
    return TensorProto.STRING if isinstance(dtype, str) else int(helper.np_dtype_to_tensor_dtype(dtype))


def _table(
    write: TableTraceWriter, estimator: Estimator, inputs: Sequence[TensorSpec], columns: Sequence[str]
) -> TracedTable:
    """What the estimator is given: a matrix, or a frame, of which no input is a column that it drops."""
    if not columns:
        (spec,) = inputs
        return write.given(spec.name)
    own = dict(zip(columns, (write.given(s.name).columns[0] for s in inputs), strict=True))
    return TracedTable("", tuple(own.get(name, TracedColumn("", 0)) for name in column_names(estimator)))


def given(write: TableTraceWriter, estimator: Estimator, table: TracedTable) -> list[str]:
    """The outputs of an estimator: label and scores, a prediction, or what it makes of its columns."""
    kind, package = type(estimator).__name__, type(estimator).__module__.partition(".")[0]
    if kind == "Pipeline":
        *before, (_, last) = estimator.steps
        for _, step in before:
            table = transformed(write, step, table)
        return given(write, last, table)
    if kind in ("GridSearchCV", "RandomizedSearchCV"):
        return given(write, estimator.best_estimator_, table)
    if package in ("xgboost", "lightgbm"):
        return boosted(write, estimator, table)
    if package == "sklearn" and kind in _PREDICTED:
        return _PREDICTED[kind](write, estimator, table)
    return [write.matrix(transformed(write, estimator, table))]


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


def _adaboost(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    """Each tree votes with its weight for a class, and with a share of it against all others."""
    classes, members = np.asarray(model.classes_), model.estimators_
    if any(type(member).__name__ != "DecisionTreeClassifier" for member in members):
        raise UnsupportedError("AdaBoostClassifier of other estimators than trees has no exact form here")
    count, trees = len(classes), []
    for member, weight in zip(members, model.estimator_weights_[: len(members)], strict=True):
        chosen = classes == member.classes_[member.tree_.value[:, 0].argmax(axis=1)][:, None]
        votes = np.where(chosen, weight, -weight / (count - 1))
        trees.append(_tree_of(member.tree_, votes if count > 2 else votes[:, 1:]))
    sums = widened(write, write.trees(table, trees, count if count > 2 else 1, to_float32))
    sums = write.add("Div", sums, float(model.estimator_weights_.sum()))
    if count > 2:
        return [most_likely(write, sums, classes), write.add("Softmax", write.add("Div", sums, count - 1.0), axis=1)]
    pair = write.add("Concat", write.add("Neg", sums), sums, axis=1)
    return [decided_label(write, write.add("Greater", sums, 0.0), classes), write.add("Softmax", pair, axis=1)]


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
    found = write.add("MatMul", write.matrix(table), np.ascontiguousarray(weights.T))
    bias = np.asarray(model.intercept_, np.float64).ravel()
    return (write.add("Add", found, bias) if bias.any() else found), len(weights)


def _linear(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    return [_scores(write, model, table)[0]]


def _linear_classifier(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    scores, count = _scores(write, model, table)
    kind = type(model).__name__
    pair = _both(write, scores, chances=False) if count == 1 else scores
    label = most_likely(write, pair, model.classes_)
    if not hasattr(model, "predict_proba"):
        return [label, pair]
    if getattr(model, "multi_class", "deprecated") not in ("auto", "deprecated") or (
        kind == "SGDClassifier" and model.loss != "log_loss"
    ):
        raise UnsupportedError(f"the chances of {kind} have no exact form here")
    if count == 1:
        return [label, _both(write, logistic_of(write, scores))]
    if kind == "SGDClassifier" or getattr(model, "solver", "") == "liblinear":
        return [label, _shares(write, logistic_of(write, scores), count if kind == "SGDClassifier" else 0)]
    return [label, write.add("Softmax", pair, axis=1)]


def _both(write: TableTraceWriter, second: str, *, chances: bool = True) -> str:
    """The chances, or else the scores, of two classes from the second's."""
    first = write.add("Sub", 1.0, second) if chances else write.add("Neg", second)
    return write.add("Concat", first, second, axis=1)


def _shares(write: TableTraceWriter, parts: str, uniform: int = 0) -> str:
    """What each column has of their sum; where that is zero, zero or one of so many equal parts."""
    total = write.add("ReduceSum", parts, np.array([1]), keepdims=1)
    none = write.add("Equal", total, 0.0)
    found = write.add("Div", parts, write.add("Where", none, 1.0, total))
    return write.add("Where", none, write.add("Div", 1.0, float(uniform)), found) if uniform else found


def _exponential_family(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    link = type(model._base_loss.link).__name__
    if link not in ("LogLink", "IdentityLink"):
        raise UnsupportedError(f"{type(model).__name__} with {link} has no exact form here")
    found = _scores(write, model, table)[0]
    return [write.add("Exp", found) if link == "LogLink" else found]


def _perceptron(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    value, kinds = write.matrix(table), {"relu": "Relu", "logistic": "Sigmoid", "tanh": "Tanh", "identity": ""}
    layers = list(zip(model.coefs_, model.intercepts_, strict=True))
    for number, (weights, bias) in enumerate(layers):
        value = write.add("Add", write.add("MatMul", value, np.asarray(weights)), np.asarray(bias))
        if number < len(layers) - 1 and kinds[model.activation]:
            value = write.add(kinds[model.activation], value)
    if not hasattr(model, "classes_"):
        if model.out_activation_ != "identity":
            raise UnsupportedError(f"an MLPRegressor with {model.out_activation_} has no exact form here")
        return [value]
    if model.out_activation_ == "softmax":
        chances = write.add("Softmax", value, axis=1)
        return [most_likely(write, chances, model.classes_), chances]
    if np.ndim(model.classes_[0]) or model.n_outputs_ != 1:
        raise UnsupportedError("an MLPClassifier of several labels has no exact form here")
    second = logistic_of(write, value)
    return [decided_label(write, write.add("Greater", second, 0.5), model.classes_), _both(write, second)]


# Likelihoods and distances


def _gaussian(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    x = write.add("Unsqueeze", write.matrix(table), np.array([1]))
    apart = write.add("Sub", x, model.theta_[None])
    parts = write.add("Div", write.add("Mul", apart, apart), model.var_[None])
    squares = write.add("Mul", write.add("ReduceSum", parts, np.array([2]), keepdims=0), 0.5)
    begin = -0.5 * np.sum(np.log(2.0 * np.pi * model.var_), 1)
    return _likeliest(write, model, write.add("Add", np.log(model.class_prior_), write.add("Sub", begin, squares)))


def _naive_bayes(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    """Of counts or truth values: logarithms of likelihoods are weighted sums of them."""
    kind, weights, begin = type(model).__name__, model.feature_log_prob_, model.class_log_prior_
    x = write.matrix(table)
    if kind == "BernoulliNB":
        if model.binarize is not None:
            x = write.add("Cast", write.add("Greater", x, float(model.binarize)), to=TensorProto.DOUBLE)
        absent = np.log(1 - np.exp(weights))
        weights, begin = weights - absent, begin + absent.sum(axis=1)
    joint = write.add("MatMul", x, np.ascontiguousarray(weights.T))
    return _likeliest(write, model, joint if kind == "ComplementNB" else write.add("Add", joint, begin))


def _likeliest(write: TableTraceWriter, model: Estimator, joint: str) -> list[str]:
    """The label and the chances of joint logarithms [rows, classes]."""
    total = write.add("ReduceLogSumExp", joint, np.array([1]), keepdims=1)
    return [most_likely(write, joint, model.classes_), write.add("Exp", write.add("Sub", joint, total))]


def _discriminant(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    if not hasattr(model, "rotations_"):
        raise UnsupportedError("QuadraticDiscriminantAnalysis by its covariance has no exact form here")
    norms = []
    for rotation, scaling, mean in zip(model.rotations_, model.scalings_, model.means_, strict=True):
        turned = write.add("MatMul", write.add("Sub", write.matrix(table), mean), rotation * scaling**-0.5)
        norms.append(write.add("ReduceSum", write.add("Mul", turned, turned), np.array([1]), keepdims=1))
    spread = np.asarray([np.sum(np.log(s)) for s in model.scalings_])
    halves = write.add("Mul", write.add("Concat", *norms, axis=1), 0.5)
    scores = write.add("Sub", -0.5 * spread + np.log(model.priors_), halves)
    pair = write.add("Softmax", scores, axis=1)
    return [most_likely(write, scores, model.classes_), pair]


def _clusters(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    x, centres = write.matrix(table), np.asarray(model.cluster_centers_, np.float64)
    shares = write.add("Add", write.add("MatMul", x, -2 * centres.T), (centres**2).sum(1))
    label = write.add("ArgMin", shares, axis=1, keepdims=0)
    squares = write.add("Add", write.add("ReduceSumSquare", x, np.array([1]), keepdims=1), shares)
    return [chosen_labels(write, np.arange(len(centres)), label), write.add("Sqrt", write.add("Max", squares, 0.0))]


def _kernels(write: TableTraceWriter, model: Estimator, table: TracedTable) -> str:
    """Of rows and support vectors, [rows, vectors]."""
    if model.kernel not in ("rbf", "linear", "poly", "sigmoid") or getattr(model, "_sparse", False):
        raise UnsupportedError(f"{type(model).__name__}(kernel={model.kernel!r}) has no exact form here")
    x = write.matrix(table)
    if model.kernel == "rbf":
        apart = write.add("Sub", write.add("Unsqueeze", x, np.array([1])), model.support_vectors_[None])
        squares = write.add("ReduceSum", write.add("Mul", apart, apart), np.array([2]), keepdims=0)
        return write.add("Exp", write.add("Mul", squares, -float(model._gamma)))
    products = write.add("MatMul", x, np.ascontiguousarray(model.support_vectors_.T))
    if model.kernel == "linear":
        return products
    scaled = write.add("Add", write.add("Mul", products, float(model._gamma)), float(model.coef0))
    return write.add("Tanh", scaled) if model.kernel == "sigmoid" else write.add("Pow", scaled, float(model.degree))


def _support_vectors(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    weights = np.ascontiguousarray(model.dual_coef_.T)
    found = write.add("Add", write.add("MatMul", _kernels(write, model, table), weights), np.asarray(model.intercept_))
    if type(model).__name__ != "OneClassSVM":
        return [found]
    return [decided_label(write, write.add("Greater", found, 0.0), np.array([-1, 1])), found]


def _support_classes(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    """Each two classes have a decision, above zero for the first; the class with most of them is the label."""
    if hasattr(model, "predict_proba"):
        raise UnsupportedError(f"the chances of {type(model).__name__} have no exact form here")
    count, own = len(model.classes_), np.repeat(np.arange(len(model.classes_)), model.n_support_)
    pairs = list(combinations(range(count), 2))
    weights = np.zeros((len(own), len(pairs)))
    for place, (low, high) in enumerate(pairs):
        weights[own == low, place] = model._dual_coef_[high - 1, own == low]
        weights[own == high, place] = model._dual_coef_[low, own == high]
    kernels = _kernels(write, model, table)
    decided = write.add("Add", write.add("MatMul", kernels, weights), np.asarray(model._intercept_))
    first, second = (np.eye(count)[list(side)] for side in zip(*pairs, strict=True))
    won = write.add("Cast", write.add("Greater", decided, 0.0), to=TensorProto.DOUBLE)
    lost = write.add("MatMul", write.add("Sub", 1.0, won), second)
    votes = write.add("Add", write.add("MatMul", won, first), lost)
    if count == 2:
        scores = write.add("Concat", decided, write.add("Neg", decided), axis=1)
    elif model.decision_function_shape == "ovo":
        scores = decided
    else:
        scores = _votes_and_confidence(write, decided, first, second)
    label = most_likely(write, scores if model.break_ties and count > 2 else votes, model.classes_)
    return [label, scores]


def _votes_and_confidence(write: TableTraceWriter, decided: str, first: np.ndarray, second: np.ndarray) -> str:
    """As `sklearn.utils.multiclass._ovr_decision_function`: votes, and less than a third for the sums of decisions."""
    below = write.add("Cast", write.add("Less", decided, 0.0), to=TensorProto.DOUBLE)
    kept = write.add("MatMul", write.add("Sub", 1.0, below), first)
    votes = write.add("Add", kept, write.add("MatMul", below, second))
    sums = write.add("MatMul", decided, first - second)
    most = write.add("Mul", write.add("Add", write.add("Abs", sums), 1.0), 3.0)
    return write.add("Add", votes, write.add("Div", sums, most))


# Members


def _mean(write: TableTraceWriter, parts: Sequence[str], weights: Any = None) -> str:
    """The weighted mean of tensors of one shape."""
    total = parts[0] if weights is None else ""
    for i, part in enumerate(parts):
        if weights is not None:
            part = write.add("Mul", part, float(weights[i]))  # noqa: PLW2901
        total = part if i == 0 else write.add("Add", total, part)
    return write.add("Div", total, float(len(parts)) if weights is None else float(np.sum(weights)))


def _voting(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    found = [given(write, member, table) for member in model.estimators_]
    weights = model._weights_not_none
    if not hasattr(model, "classes_"):
        return [_mean(write, [single for (single,) in found], weights)]
    if model.voting != "soft":
        raise UnsupportedError("VotingClassifier(voting='hard') has no exact form here")
    chances = _mean(write, [scores for _, scores in found], weights)
    return [most_likely(write, chances, model.classes_), chances]


def _bagging(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    members = zip(model.estimators_, model.estimators_features_, strict=True)
    found = [given(write, member, write.select(table, places)) for member, places in members]
    if not hasattr(model, "classes_"):
        return [_mean(write, [single for (single,) in found])]
    if any(len(m.classes_) != len(model.classes_) or not hasattr(m, "predict_proba") for m in model.estimators_):
        raise UnsupportedError("BaggingClassifier of members with other classes has no exact form here")
    chances = _mean(write, [scores for _, scores in found])
    trees = all(hasattr(m, "tree_") for m in model.estimators_)
    total = write.add("Mul", chances, float(len(found))) if trees else chances
    return [most_likely(write, total, model.classes_), chances]


def _stacked(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    two, parts = len(getattr(model, "classes_", ())) == 2, []
    for member, method in zip(model.estimators_, model.stack_method_, strict=True):
        found = given(write, member, table)
        if method == "predict" and len(found) > 1:
            raise UnsupportedError("StackingClassifier of labels has no exact form here")
        width = len(member.classes_) if len(found) > 1 else 1
        scores = found[-1]
        if method != "predict" and two:
            scores, width = write.add("Gather", scores, np.array([1]), axis=1), 1
        parts.append(write.computed(scores, width))
    seen = write.side_by_side([*parts, table] if model.passthrough else parts)
    label, *rest = given(write, model.final_estimator_, seen)
    return [chosen_labels(write, model.classes_, label), *rest] if hasattr(model, "classes_") else [label]


def _several_targets(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    found = [given(write, member, table) for member in model.estimators_]
    if any(len(f) > 1 for f in found):
        raise UnsupportedError(f"{type(model).__name__} has no exact form here")
    return [write.add("Concat", *(f for (f,) in found), axis=1)]


def _transformed_target(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    (found,) = given(write, model.regressor_, table)
    inverse = getattr(model.transformer_, "inverse_func", None)
    name = inverse.__name__ if type(inverse) is np.ufunc else ""
    if name == "expm1":
        return [write.add("Sub", write.add("Exp", found), 1.0)]
    if name == "exp":
        return [write.add("Exp", found)]
    raise UnsupportedError(f"TransformedTargetRegressor({name}) has no exact form here")


def _one_against_rest(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    if model.multilabel_:
        raise UnsupportedError("OneVsRestClassifier of several labels has no exact form here")
    decided, seconds = [], []
    for member in model.estimators_:
        if type(member).__name__ != "LogisticRegression":
            raise UnsupportedError(f"OneVsRestClassifier of {type(member).__name__} has no exact form here")
        scores, _ = _scores(write, member, table)
        decided.append(scores)
        seconds.append(logistic_of(write, scores))
    if len(decided) == 1:
        above = write.add("Greater", decided[0], 0.0)
        return [decided_label(write, above, model.classes_), _both(write, seconds[0])]
    label = most_likely(write, write.add("Concat", *decided, axis=1), model.classes_)
    return [label, _shares(write, write.add("Concat", *seconds, axis=1))]


def _calibrated(write: TableTraceWriter, model: Estimator, table: TracedTable) -> list[str]:
    found, count = [], len(model.classes_)
    for each in model.calibrated_classifiers_:
        if (
            each.method != "sigmoid"
            or len(each.estimator.classes_) != count
            or hasattr(each.estimator, "predict_proba")
        ):
            raise UnsupportedError("CalibratedClassifierCV of such members has no exact form here")
        scores = given(write, each.estimator, table)[1]
        chances = []
        for place, own in enumerate(each.calibrators, start=1 if count == 2 else 0):
            score = write.add("Gather", scores, np.array([place]), axis=1)
            line = write.add("Add", write.add("Mul", score, float(own.a_)), float(own.b_))
            chances.append(logistic_of(write, write.add("Neg", line)))
        found.append(
            _both(write, chances[0]) if count == 2 else _shares(write, write.add("Concat", *chances, axis=1), count)
        )
    mean = _mean(write, found)
    return [most_likely(write, mean, model.classes_), mean]


_PREDICTED: dict[str, Callable[[TableTraceWriter, Any, TracedTable], list[str]]] = {
    **dict.fromkeys(
        [
            f"{a}{b}"
            for a in ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees")
            for b in ("Classifier", "Regressor")
        ],
        _forest,
    ),
    "AdaBoostClassifier": _adaboost,
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
            *("Perceptron", "PassiveAggressiveClassifier", "SGDClassifier", "LinearDiscriminantAnalysis"),
        ),
        _linear_classifier,
    ),
    **dict.fromkeys(("MLPClassifier", "MLPRegressor"), _perceptron),
    **dict.fromkeys(("PoissonRegressor", "GammaRegressor", "TweedieRegressor"), _exponential_family),
    "GaussianNB": _gaussian,
    **dict.fromkeys(("MultinomialNB", "BernoulliNB", "ComplementNB"), _naive_bayes),
    "QuadraticDiscriminantAnalysis": _discriminant,
    **dict.fromkeys(("KMeans", "MiniBatchKMeans"), _clusters),
    **dict.fromkeys(("SVR", "NuSVR", "OneClassSVM"), _support_vectors),
    **dict.fromkeys(("SVC", "NuSVC"), _support_classes),
    **dict.fromkeys(("VotingClassifier", "VotingRegressor"), _voting),
    **dict.fromkeys(("BaggingClassifier", "BaggingRegressor"), _bagging),
    **dict.fromkeys(("StackingClassifier", "StackingRegressor"), _stacked),
    "MultiOutputRegressor": _several_targets,
    "TransformedTargetRegressor": _transformed_target,
    "OneVsRestClassifier": _one_against_rest,
    "CalibratedClassifierCV": _calibrated,
}
