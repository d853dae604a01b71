"""Small changes to a copy of an estimator that skl2onnx needs, none of which changes what it computes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from onnxtool.conversion.boosting.catboost_categories import asks_for_categories
from onnxtool.conversion.boosting.category_columns import numbered_categories
from onnxtool.conversion.frameworks import Estimator, copy_with
from onnxtool.conversion.sklearn.schema import numbers_of, steps_of
from onnxtool.errors import UnsupportedError

# Usual patterns of words -> the same without what the runtime's kind of pattern (RE2) reads otherwise. skl2onnx 1.20
# takes words of one letter for words where the first of them does not: of "cat a dog" it makes no neighbours.
_WORDS = {r"(?u)\b\w\w+\b": r"\w\w+", r"(?u)\b\w+\b": r"\w+"}


_TREES = ("DecisionTreeClassifier", "ExtraTreeClassifier", "RandomForestClassifier", "ExtraTreesClassifier")
CLUSTERS = ("KMeans", "MiniBatchKMeans", "BisectingKMeans", "Birch")
_TWO_GAPS = (
    "a column of text has both the empty text and missing values, for which ONNX has the empty text alone. Replace one "
    "of them before fitting."
)
_GAP_NOTE = "missing text is given to the ONNX file as the empty string, since it has no NaN for text"


def gap_of(estimator: Estimator) -> Any:
    """What stands for missing text in the table that an estimator is given: what its encoders know, else NaN.

    Returns:
        NaN or None; "" where that is a category of its own.
    """
    known = [c for step in steps_of(estimator) for c in _texts_of(step)]
    if any(isinstance(c, str) and c == "" for c in known):
        return ""
    return None if any(c is None for c in known) else np.nan


def _texts_of(step: Estimator) -> list[Any]:
    """The categories of columns with text."""
    columns = [list(c) for c in getattr(step, "categories_", None) or () if np.asarray(c).dtype.kind in "OUS"]
    return [value for c in columns if any(isinstance(v, str) for v in c) for value in c]


def _missing_category(step: Estimator) -> bool:
    known = _texts_of(step)
    return any(not isinstance(c, str) for c in known) and "" not in known


def _object_numbers(step: Estimator) -> bool:
    """Numbers or truth values among the categories, as objects."""
    categories = getattr(step, "categories_", None) or ()
    return any(numbers_of(c) is not c for c in categories)


def _without_gap(categories: Any) -> Any:
    values = list(categories)
    if not any(isinstance(v, str) for v in values):
        return categories
    return np.array(["" if v is None or v != v else v for v in values], dtype=object)


def convertible(estimator: Estimator) -> tuple[Any, list[str]]:
    """A copy that skl2onnx 1.20 accepts, or the estimator itself when nothing needs a change.

    Returns:
        (estimator, things to say aloud).
    """
    estimator = plain(estimator)
    changes = (
        _text_imputer,
        _number_imputer,
        _listed_weights,
        _unicode_pattern,
        _missing_category,
        _object_numbers,
        _sparse_bins,
        _idle_members,
    )
    if not any(change(step) for step in steps_of(estimator) for change in changes):
        return estimator, []
    estimator = copy.deepcopy(estimator)
    notes = []
    for step in steps_of(estimator):
        if _text_imputer(step):
            step.missing_values = ""
            notes = [_GAP_NOTE]
        if _number_imputer(step):
            step.statistics_ = step.statistics_.astype(np.float64)
        if _missing_category(step):
            step.categories_ = [_without_gap(c) for c in step.categories_]
            notes = [_GAP_NOTE]
        if _object_numbers(step):
            step.categories_ = [numbers_of(c) for c in step.categories_]
        if _unicode_pattern(step):
            step.token_pattern = plain_pattern(step.token_pattern)
        if _sparse_bins(step):
            step.encode = "onehot-dense"  # the same numbers
        if name := _idle_members(step):
            setattr(step, name, _working_members(step, name))
        if _listed_weights(step):
            step.weights = np.asarray(step.weights, dtype=np.float64)  # skl2onnx 1.20 asks a list for its sum()
    return estimator, notes


def refuse_hopeless(estimator: Estimator, float32_matrix: bool) -> None:
    """Refuse what skl2onnx writes a wrong or an invalid graph for.

    Args:
        estimator: fitted, as of `plain`.
        float32_matrix: whether the ONNX form takes one matrix of float32.

    Raises:
        UnsupportedError: says which step, and what to do.
    """
    for step in steps_of(estimator):
        name = type(step).__name__
        if getattr(step, "strip_accents", None):
            raise UnsupportedError(
                f"{name}(strip_accents={step.strip_accents!r}): no operator of ONNX takes accents off letters. Take "
                "them off the texts before (unicodedata.normalize), and fit with strip_accents=None."
            )
        if _selects_nothing(step) or (step is estimator and name == "MissingIndicator" and not len(step.features_)):
            raise UnsupportedError(f"{name}: it selects no column at all, so there is nothing to convert.")
        if _splits_categories(step):
            raise UnsupportedError(category_advice(step))
        if step is not estimator and numbered_categories(step):
            raise UnsupportedError(
                f"{name}: behind or inside other steps, its categories have no ONNX form here. Encode them before "
                "(OrdinalEncoder), and fit it on numbers."
            )
        for column in getattr(step, "categories_", None) or ():
            if any(isinstance(v, str) and v == "" for v in column) and any(v is None or v != v for v in column):
                raise UnsupportedError(f"{name}: {_TWO_GAPS}")
        if _text_imputer(step) and gap_of(estimator) == "":
            raise UnsupportedError(f"{name}: {_TWO_GAPS}")
        classes = getattr(step, "classes_", None)
        if name == "KNeighborsClassifier" and isinstance(classes, list) and len({len(c) for c in classes}) > 1:
            raise UnsupportedError(
                f"{name}: its targets have different numbers of classes, which no one output can hold. Fit one for "
                "each, in a MultiOutputClassifier."
            )
        categories = getattr(step, "categories_", None)
        numbers = [np.asarray(c) for c in categories or () if np.asarray(c).dtype == np.float64]
        lost = sum(int((c != c.astype(np.float32)).sum()) for c in (n[np.isfinite(n)] for n in numbers))
        if lost and float32_matrix:
            raise UnsupportedError(
                f"{name}: {lost} of its categories are numbers that float32 cannot hold, so no row would match them. "
                "Fit it on text, on integers, or on numbers rounded to float32."
            )


def category_advice(estimator: Estimator) -> str:
    """What to do about columns of categories that a booster was fitted on; "" where it was fitted on numbers alone."""
    for step in steps_of(estimator):
        name = type(step).__name__
        if asks_for_categories(step) and (step is estimator or hasattr(estimator, "feature_names_in_")):
            return (
                f"{name}: it holds hashes of its categories and not the categories. Give a table that has all of them, "
                "the one it was fitted on: --sample train.csv, or sample=frame in Python."
            )
        if _splits_categories(step):
            return (
                f"{name}: it splits on categories, which have no ONNX form here. Encode them before (OneHotEncoder), "
                "and fit it on numbers."
            )
        if numbered_categories(step):
            return (
                f"{name} numbers the categories in the order of the table that it was fitted on, and the ONNX file "
                "takes these numbers: give frame[column].cat.set_categories(those of the fit).cat.codes."
            )
    return ""


def _splits_categories(step: Estimator) -> bool:
    """Boosters of CatBoost that have learned from categories, and of scikit-learn inside other estimators."""
    return asks_for_categories(step) or (
        getattr(step, "_preprocessor", None) is not None and hasattr(step, "_predictors")
    )


def _selects_nothing(step: Estimator) -> bool:
    try:
        return hasattr(step, "get_support") and not np.any(step.get_support())
    except Exception:  # a template inside another estimator, not fitted itself
        return False


def plain(estimator: Estimator) -> Any:
    """What an estimator that wraps or resembles another comes down to at prediction."""
    name = type(estimator).__name__
    best = getattr(estimator, "best_estimator_", None)
    if best is not None:
        return plain(best)
    if name in ("RFE", "RFECV") and hasattr(estimator, "estimator_"):
        from sklearn.pipeline import Pipeline

        return Pipeline([("select", estimator), ("predict", estimator.estimator_)])
    if name in ("SelfTrainingClassifier", "FrozenEstimator"):
        return plain(getattr(estimator, "estimator_" if name.startswith("Self") else "estimator"))
    if name in ("MeanShift", "AffinityPropagation"):
        return _as_means(estimator)
    classes = vars(estimator).get("classes_")
    if isinstance(classes, np.ndarray) and len(classes) == 1 and hasattr(estimator, "predict_proba"):
        return _always(estimator, classes)
    if name == "LinearDiscriminantAnalysis":
        return estimator  # a projection as a step alone
    if name in ("CCA", "PLSCanonical"):
        return _as_regression(estimator)
    if name == "BaggingClassifier":
        return _as_forest(estimator)
    if name == "AdaBoostClassifier" and np.asarray(estimator.classes_).dtype == bool:
        return copy_with(estimator, classes_=estimator.classes_.astype(np.int64))
    if name in _TREES and isinstance(getattr(estimator, "classes_", None), list):
        return _by_target(estimator)
    if name.startswith("MultiOutput"):
        several: Any = copy.copy(estimator)
        several.estimators_ = [plain(member) for member in several.estimators_]
        return several
    steps = getattr(estimator, "steps", None)
    if steps:
        last = steps[-1][1]
        parts = [*(_inner_step(step) for _, step in steps[:-1]), plain(last)]
        if any(part is not step for part, (_, step) in zip(parts, steps, strict=True)):
            from sklearn.pipeline import Pipeline

            return Pipeline([(name, part) for part, (name, _) in zip(parts, steps, strict=True)])
        return estimator  # of which the last step is no inner one
    return _projection(estimator)


def _always(estimator: Estimator, classes: np.ndarray) -> Any:
    """What knows one class, as what always gives it: skl2onnx 1.20 gives another, or fails."""
    from sklearn.dummy import DummyClassifier

    return _fitted_as(
        estimator, DummyClassifier(), classes_=classes, class_prior_=np.ones(1), n_classes_=1, n_outputs_=1,
        _strategy="prior", sparse_output_=False,
    )  # fmt: skip


def _inner_step(step: Any) -> Any:
    """A step before others, of which clusters give distances alone."""
    if type(step).__name__ == "FrozenEstimator":
        return _inner_step(step.estimator)
    if type(step).__name__ in CLUSTERS:
        from onnxtool.conversion.sklearn.cluster_distances import ClusterDistances  # a class of scikit-learn's

        return ClusterDistances(step)
    return _projection(step)


def _projection(step: Any) -> Any:
    """A step that takes off a mean and multiplies by a matrix, as the one of these that skl2onnx knows; else itself."""
    for name in ("steps", "transformer_list", "transformers_"):
        entries = [tuple(entry) for entry in getattr(step, name, None) or ()]
        made = [tuple(_inner_step(p) if hasattr(p, "fit") else p for p in entry) for entry in entries]
        if any(a is not b for own, other in zip(entries, made, strict=True) for a, b in zip(own, other, strict=True)):
            step = copy.copy(step)
            setattr(step, name, made)
    found = _matrix_of(step)
    if found is None:
        return step
    from sklearn.decomposition import PCA

    matrix, mean = found
    own_mean = np.broadcast_to(np.asarray(mean, np.float64), (step.n_features_in_,)).copy()
    known = PCA(len(matrix))
    return _fitted_as(
        step,
        known,
        components_=matrix,
        n_components_=len(matrix),
        mean_=own_mean,
        explained_variance_=np.ones(len(matrix)),
    )


def _fitted_as(step: Any, known: Any, **attributes: Any) -> Any:
    """An estimator with what another has learned, for the same columns."""
    names = ("n_features_in_", "feature_names_in_")
    kept = {name: getattr(step, name) for name in names if hasattr(step, name)}
    return copy_with(known, **kept, **attributes)


def _matrix_of(step: Any) -> tuple[np.ndarray, Any] | None:
    """(matrix [columns, features], mean) of a step that gives (x - mean) matrix^T; None of all others.

    Source: scikit-learn, `transform` of each; of SparsePCA it is a ridge regression of the rows on the components.
    """
    name = type(step).__name__
    if name == "LinearDiscriminantAnalysis":
        return step.scalings_[:, : step._max_components].T, getattr(step, "xbar_", 0.0)
    if name == "FactorAnalysis":
        weighted = step.components_ / step.noise_variance_
        inverse = np.linalg.inv(np.eye(len(weighted)) + weighted @ step.components_.T)
        return (weighted.T @ inverse).T, step.mean_
    if name == "FastICA":
        return step.components_, step.mean_ if step.whiten else 0.0
    if name in ("SparsePCA", "MiniBatchSparsePCA"):
        parts = step.components_
        return np.linalg.solve(parts @ parts.T + step.ridge_alpha * np.eye(len(parts)), parts), step.mean_
    if name == "SparseRandomProjection":
        parts = step.components_
        return np.asarray(parts.toarray() if hasattr(parts, "toarray") else parts), 0.0
    if name == "FeatureAgglomeration" and step.pooling_func is np.mean:
        members = np.unique(step.labels_)[:, None] == step.labels_[None]
        return members / members.sum(axis=1, keepdims=True), 0.0
    if name in ("CCA", "PLSCanonical"):
        return (step.x_rotations_ / step._x_std[:, None]).T, step._x_mean
    return None


def _as_forest(bagging: Estimator) -> Any:
    """Trees that all see all columns and classes are a forest, whose chances the file adds in doubles, as scikit-learn
    does: where two classes have equally many votes, the last digit picks the label.
    """
    from sklearn.ensemble import RandomForestClassifier

    classes, columns = np.asarray(bagging.classes_), np.arange(bagging.n_features_in_)
    for member, seen in zip(bagging.estimators_, bagging.estimators_features_, strict=True):
        whole = np.array_equal(seen, columns) and len(getattr(member, "classes_", ())) == len(classes)
        if type(member).__name__ not in ("DecisionTreeClassifier", "ExtraTreeClassifier") or not whole:
            return bagging
    forest, members = RandomForestClassifier(len(bagging.estimators_)), bagging.estimators_
    return _fitted_as(bagging, forest, estimators_=members, classes_=classes, n_classes_=len(classes), n_outputs_=1)


def _by_target(several: Estimator) -> Any:
    """Trees of several labels, as a classifier for each, of which the leaves have that label's chances alone. skl2onnx
    1.20 gives other chances.
    """
    from sklearn.multioutput import MultiOutputClassifier
    from sklearn.tree import DecisionTreeClassifier
    from sklearn.tree._tree import Tree

    def of_target(model: Any, place: int) -> Any:
        own: Any = copy.copy(model)
        own.classes_, own.n_classes_, own.n_outputs_ = model.classes_[place], model.n_classes_[place], 1
        if hasattr(model, "estimators_"):
            own.estimators_ = [of_target(member, place) for member in model.estimators_]
            return own
        count = int(own.n_classes_)
        state = model.tree_.__getstate__()
        values = np.ascontiguousarray(state["values"][:, place : place + 1, :count])
        own.tree_ = Tree(model.n_features_in_, np.array([count], np.intp), 1)
        own.tree_.__setstate__({**state, "values": values})
        return own

    members = [plain(of_target(several, place)) for place in range(several.n_outputs_)]
    each = MultiOutputClassifier(DecisionTreeClassifier())
    return _fitted_as(several, each, estimators_=members, classes_=several.classes_)


def _as_means(clusters: Estimator) -> Any:
    """Rows belong to the nearest of the centres; where there are none, all are as they are there (-1)."""
    from sklearn.cluster import KMeans

    centres = np.asarray(clusters.cluster_centers_, np.float64)
    if not len(centres):
        return clusters
    return _fitted_as(clusters, KMeans(len(centres)), cluster_centers_=centres)


def _as_regression(squares: Estimator) -> Any:
    """Partial least squares predict by one matrix."""
    from sklearn.linear_model import LinearRegression

    start = squares.intercept_ - squares._x_mean @ squares.coef_.T
    return _fitted_as(squares, LinearRegression(), coef_=squares.coef_, intercept_=start)


def _text_imputer(step: Estimator) -> bool:
    """Fills gaps in text and takes NaN for the gap; ONNX has no NaN for strings."""
    if type(step).__name__ != "SimpleImputer" or isinstance(step.missing_values, str):
        return False
    return any(isinstance(s, str) for s in np.asarray(getattr(step, "statistics_", ()), dtype=object).ravel())


def _number_imputer(step: Estimator) -> bool:
    """Fills gaps with a number of the user's, which scikit-learn keeps as an object."""
    filling = np.asarray(getattr(step, "statistics_", ()))
    return filling.dtype == object and all(isinstance(value, (int, float, np.number)) for value in filling.ravel())


def _sparse_bins(step: Estimator) -> bool:
    return type(step).__name__ == "KBinsDiscretizer" and step.encode == "onehot"


def _idle_members(step: Estimator) -> str:
    """The attribute with members that do nothing: steps of a pipeline, parts of a union; "" where there are none."""
    names = (n for n in ("steps", "transformer_list") if hasattr(step, n))
    return next((n for n in names if len(_working_members(step, n)) < len(getattr(step, n))), "")


def _working_members(step: Estimator, name: str) -> list[tuple[str, Any]]:
    """Members without those that do nothing; what passes a union is one of its parts."""
    idle = ("passthrough", None) if name == "steps" else ("drop",)
    return [(n, member) for n, member in getattr(step, name) if hasattr(member, "fit") or member not in idle]


def _unicode_pattern(step: Estimator) -> bool:
    return getattr(step, "token_pattern", None) in _WORDS


def plain_pattern(pattern: str) -> str:
    """A pattern of words without what the runtime reads otherwise."""
    return _WORDS.get(pattern, pattern)


def _listed_weights(step: Estimator) -> bool:
    return type(step).__name__.startswith("Voting") and isinstance(getattr(step, "weights", None), (list, tuple))


def chosen_options(estimator: Estimator) -> list[str]:
    """What steps were made with that is not their default and a word or a switch: "MaxAbsScaler(clip=True)"."""
    found = []
    for step in steps_of(estimator):
        try:
            given, usual = step.get_params(deep=False), type(step)().get_params(deep=False)
        except Exception:  # a step that cannot be made without arguments
            continue
        kept = [f"{n}={v!r}" for n, v in given.items() if isinstance(v, (str, bool)) and v != usual.get(n)]
        if kept:
            found.append(f"{type(step).__name__}({', '.join(kept)})")
        if "token_pattern" in given and given.get("analyzer") == "word":
            found.append(f"{type(step).__name__}'s token_pattern (ONNX may cut signs otherwise)")
        if type(step).__name__ == "OrdinalEncoder" and _missing_category(step):
            found.append("OrdinalEncoder's encoded_missing_value")
        if getattr(step, "lowercase", False) and any("ς" in word for word in getattr(step, "vocabulary_", ())):
            found.append(f"{type(step).__name__}(lowercase=True) (of a Σ that ends a word ONNX makes σ and not ς)")
    return list(dict.fromkeys(found))
