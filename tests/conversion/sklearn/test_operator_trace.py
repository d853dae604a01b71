"""Certificates of estimators: the file held against formulas and trees read from the estimator itself."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

pytest.importorskip("sklearn")
import pandas as pd
from sklearn import (
    calibration,
    cluster,
    compose,
    datasets,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    impute,
    linear_model,
    multiclass,
    multioutput,
    naive_bayes,
    neural_network,
    preprocessing,
    svm,
    tree,
)
from sklearn.pipeline import make_pipeline, make_union

from onnxtool.conversion.convert import convert, open_source
from onnxtool.conversion.sklearn.traced_trees import TracedColumn, decided, to_float32
from onnxtool.equality.certificate.sources import certify_source
from onnxtool.errors import UnsupportedError
from onnxtool.report.certificate import CertificateReport

DIABETES = datasets.load_diabetes(return_X_y=True)
IRIS = datasets.load_iris(return_X_y=True)
CANCER = datasets.load_breast_cancer(return_X_y=True)
SCALE = preprocessing.StandardScaler


@cache
def boosters() -> dict[str, tuple[Any, Any]]:
    xgboost, lightgbm = pytest.importorskip("xgboost"), pytest.importorskip("lightgbm")
    few = {"n_estimators": 3, "max_depth": 3}
    return {
        "xgboost": (make_pipeline(SCALE(), xgboost.XGBRegressor(**few)), DIABETES),
        "xgboost of two": (xgboost.XGBClassifier(**few), CANCER),
        "xgboost of three": (xgboost.XGBClassifier(**few), IRIS),
        "lightgbm": (make_pipeline(SCALE(), lightgbm.LGBMRegressor(**few, verbose=-1)), DIABETES),
        "lightgbm of two": (lightgbm.LGBMClassifier(**few, verbose=-1), CANCER),
        "lightgbm of three": (lightgbm.LGBMClassifier(**few, verbose=-1), IRIS),
    }


FEW = (DIABETES[0][:60], DIABETES[1][:60])
FITTED: dict[str, tuple[Any, Any]] = {
    "ridge": (make_pipeline(SCALE(), linear_model.Ridge()), DIABETES),
    "lasso": (make_pipeline(preprocessing.RobustScaler(), linear_model.Lasso()), DIABETES),
    "logistic of two": (make_pipeline(SCALE(), linear_model.LogisticRegression()), CANCER),
    "logistic of three": (make_pipeline(preprocessing.MinMaxScaler(), linear_model.LogisticRegression()), IRIS),
    "linear svm": (make_pipeline(preprocessing.MaxAbsScaler(), svm.LinearSVC()), IRIS),
    "perceptron": (make_pipeline(SCALE(), neural_network.MLPClassifier((4,), max_iter=5000, solver="lbfgs")), IRIS),
    "scaler": (preprocessing.MinMaxScaler(clip=True), IRIS),
    "tree": (tree.DecisionTreeClassifier(max_depth=3), IRIS),
    "forest": (make_pipeline(SCALE(), ensemble.RandomForestRegressor(3, max_depth=3)), DIABETES),
    "forest of two": (
        make_pipeline(preprocessing.MinMaxScaler(), ensemble.RandomForestClassifier(3, max_depth=3)),
        CANCER,
    ),
    "random trees": (make_pipeline(SCALE(), ensemble.ExtraTreesClassifier(3, max_depth=3)), IRIS),
    "boosting": (make_pipeline(SCALE(), ensemble.GradientBoostingRegressor(n_estimators=3)), DIABETES),
    "boosting of three": (ensemble.GradientBoostingClassifier(n_estimators=2), IRIS),
    "votes of two": (ensemble.AdaBoostClassifier(n_estimators=4), CANCER),
    "votes of three": (ensemble.AdaBoostClassifier(tree.DecisionTreeClassifier(max_depth=2), n_estimators=4), IRIS),
    "histograms of two": (make_pipeline(SCALE(), ensemble.HistGradientBoostingClassifier(max_iter=3)), CANCER),
    **{
        f"support by {kernel}": (make_pipeline(SCALE(), svm.SVR(kernel=kernel, gamma=0.02, coef0=0.1)), FEW)
        for kernel in ("linear", "poly", "sigmoid")
    },
    "support classes": (make_pipeline(SCALE(), svm.SVC()), IRIS),
    "support classes in pairs": (make_pipeline(SCALE(), svm.NuSVC(decision_function_shape="ovo")), IRIS),
    "support classes without ties": (make_pipeline(SCALE(), svm.SVC(kernel="linear", break_ties=True)), IRIS),
    "support classes of two": (make_pipeline(SCALE(), svm.SVC(kernel="poly")), CANCER),
    "support outliers": (make_pipeline(SCALE(), svm.OneClassSVM(nu=0.2)), IRIS),
    "bayes of counts": (naive_bayes.MultinomialNB(), IRIS),
    "bayes of others": (make_pipeline(preprocessing.MinMaxScaler(), naive_bayes.ComplementNB()), IRIS),
    "bayes of truths": (make_pipeline(SCALE(), naive_bayes.BernoulliNB(binarize=0.2)), IRIS),
    "filled": (make_pipeline(impute.SimpleImputer(), SCALE(), linear_model.Ridge()), DIABETES),
    "filled trees": (
        make_pipeline(impute.SimpleImputer(), SCALE(), ensemble.ExtraTreesRegressor(3, max_depth=6)),
        DIABETES,
    ),
    "histograms": (make_pipeline(SCALE(), ensemble.HistGradientBoostingRegressor(max_iter=3)), DIABETES),
}


RNG = np.random.default_rng(5)
PEOPLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, 80),
        "income": np.where(RNG.random(80) < 0.2, np.nan, RNG.lognormal(10, 1, 80)),
        "city": RNG.choice(["Oslo", "Paris", "Rome"], 80),
        "grade": RNG.choice(["high", "low", "mid"], 80),
        "rooms": RNG.integers(1, 6, 80),
    }
)
NAMED = (PEOPLE, np.where(PEOPLE.age + RNG.normal(0, 9, 80) > 50, "yes", "no"))
NUMBERS, TEXTS = ["age", "income", "rooms"], ["city", "grade"]
FILL = make_pipeline(SCALE(), impute.SimpleImputer(strategy="median", add_indicator=True))
ONE_HOT, ORDINAL = preprocessing.OneHotEncoder, preprocessing.OrdinalEncoder
UNKNOWN = {"handle_unknown": "use_encoded_value", "unknown_value": -1}
MEMBERS = [
    ("bayes", naive_bayes.GaussianNB()),
    ("quadratic", discriminant_analysis.QuadraticDiscriminantAnalysis()),
    ("linear", discriminant_analysis.LinearDiscriminantAnalysis()),
    ("steps", linear_model.SGDClassifier(loss="log_loss", random_state=0)),
]


def of_people(encoder: Any, last: Any, remainder: Any = "drop") -> tuple[Any, Any]:
    parts = [("texts", encoder, TEXTS)] if remainder != "drop" else [("n", FILL, NUMBERS), ("t", encoder, TEXTS)]
    return make_pipeline(compose.ColumnTransformer(parts, remainder=remainder), last), NAMED


NAMED_OR_JOINED: dict[str, tuple[Any, Any]] = {
    "one-hot": of_people(ONE_HOT(handle_unknown="ignore"), linear_model.LogisticRegression(max_iter=500)),
    "one-hot trees": of_people(ONE_HOT(drop="first"), ensemble.RandomForestClassifier(2, max_depth=4, random_state=0)),
    "numbered trees": of_people(ORDINAL(**UNKNOWN), ensemble.HistGradientBoostingClassifier(max_iter=3)),
    "the rest passes": of_people(
        ONE_HOT(),
        make_pipeline(impute.SimpleImputer(), ensemble.GradientBoostingClassifier(n_estimators=2)),
        "passthrough",
    ),
    "joined": (
        make_pipeline(
            make_union(decomposition.PCA(2, whiten=True), preprocessing.KBinsDiscretizer(3, encode="onehot-dense")),
            feature_selection.VarianceThreshold(0.01),
            preprocessing.Normalizer(),
            neural_network.MLPClassifier((3,), max_iter=3000, solver="lbfgs", random_state=0),
        ),
        (CANCER[0][:, :4], CANCER[1]),
    ),
    "votes": (ensemble.VotingClassifier(MEMBERS, voting="soft", weights=[1, 2, 1, 3]), IRIS),
    "stack": (
        ensemble.StackingRegressor(
            [
                ("support", make_pipeline(preprocessing.PolynomialFeatures(2), svm.SVR())),
                ("links", linear_model.PoissonRegressor()),
                ("bag", ensemble.BaggingRegressor(linear_model.Ridge(), 2, max_features=0.5, random_state=0)),
            ],
            compose.TransformedTargetRegressor(linear_model.Ridge(), func=np.log1p, inverse_func=np.expm1),
            cv=2,
        ),
        FEW,
    ),
    "targets": (
        multioutput.MultiOutputRegressor(
            ensemble.VotingRegressor([("a", linear_model.Ridge()), ("b", linear_model.Lasso())])
        ),
        (DIABETES[0], np.column_stack([DIABETES[1], DIABETES[1] ** 2])),
    ),
    "calibrated": (calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=2), IRIS),
    "one against another": (
        make_pipeline(SCALE(), multiclass.OneVsRestClassifier(linear_model.LogisticRegression())),
        CANCER,
    ),
    "one against rest": (multiclass.OneVsRestClassifier(linear_model.LogisticRegression()), IRIS),
    "clusters": (
        make_pipeline(preprocessing.Binarizer(threshold=3.0), cluster.KMeans(2, n_init=1, random_state=0)),
        IRIS,
    ),
}
FITTED |= NAMED_OR_JOINED


def certified(estimator: Any, model: onnx.ModelProto) -> CertificateReport:
    source = open_source(estimator)
    feeds = {
        s.name: np.zeros((2, estimator.n_features_in_ if len(source.inputs) == 1 else 1))
        if isinstance(s.dtype, np.dtype)
        else np.array([["Rome"], ["mid"]], object)
        for s in source.inputs
    }
    return certify_source(source, ir.from_proto(model), [feeds])


@cache
def written(name: str) -> tuple[Any, bytes]:
    """A fitted estimator and its file; many tests ask of one."""
    estimator, data = FITTED.get(name) or boosters()[name]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "m.onnx"
        assert convert(estimator.fit(*data), output, effort="quick").ok
        return estimator, output.read_bytes()


def converted(name: str) -> tuple[Any, onnx.ModelProto]:
    """The model is the caller's own."""
    estimator, model = written(name)
    return estimator, onnx.ModelProto.FromString(model)


@pytest.mark.parametrize("name", FITTED)
def test_files_of_estimators_are_certified(name: str) -> None:
    report = certified(*converted(name))
    assert report.verdict == "certified", report.reason


@pytest.mark.parametrize(
    "name", [f"{package}{of}" for package in ("xgboost", "lightgbm") for of in ("", " of two", " of three")]
)
def test_files_of_boosters_are_certified(name: str) -> None:
    report = certified(*converted(name))
    assert report.verdict == "certified", report.reason


def trees_of(model: onnx.ModelProto) -> tuple[onnx.NodeProto, dict[str, onnx.AttributeProto]]:
    node = next(n for n in model.graph.node if n.op_type.startswith("TreeEnsemble"))
    return node, {a.name: a for a in node.attribute}


def first_split(given: dict[str, onnx.AttributeProto]) -> int:
    return next(i for i, mode in enumerate(given["nodes_modes"].strings) if mode != b"LEAF")


def next_number(attribute: onnx.AttributeProto, place: int) -> None:
    numbers = numpy_helper.to_array(attribute.t).copy()
    numbers[place] = np.nextafter(numbers[place], np.inf)
    attribute.t.CopyFrom(numpy_helper.from_array(numbers, attribute.t.name))


def another_threshold(given: dict[str, onnx.AttributeProto]) -> None:
    next_number(given["nodes_values_as_tensor"], first_split(given))


def another_leaf(given: dict[str, onnx.AttributeProto]) -> None:
    next_number(given["class_weights_as_tensor" if "class_ids" in given else "target_weights_as_tensor"], 1)


def another_comparison(given: dict[str, onnx.AttributeProto]) -> None:
    place = first_split(given)
    turned = {b"BRANCH_LEQ": b"BRANCH_LT", b"BRANCH_LT": b"BRANCH_LEQ"}
    given["nodes_modes"].strings[place] = turned[given["nodes_modes"].strings[place]]


def another_feature(given: dict[str, onnx.AttributeProto]) -> None:
    place = first_split(given)
    given["nodes_featureids"].ints[place] = (given["nodes_featureids"].ints[place] + 1) % 3


def swapped_branches(given: dict[str, onnx.AttributeProto]) -> None:
    place, ways = first_split(given), (given["nodes_truenodeids"].ints, given["nodes_falsenodeids"].ints)
    ways[0][place], ways[1][place] = ways[1][place], ways[0][place]


def another_way_of_missing(given: dict[str, onnx.AttributeProto]) -> None:
    place = first_split(given)
    missing = given["nodes_missing_value_tracks_true"].ints
    missing[place] = 1 - missing[place]


MUTANTS = (
    another_threshold,
    another_leaf,
    another_comparison,
    another_feature,
    swapped_branches,
    another_way_of_missing,
)


@pytest.mark.parametrize("mutate", MUTANTS)
@pytest.mark.parametrize("name", ["tree", "forest", "forest of two", "boosting", "histograms"])
def test_no_changed_tree_is_certified(name: str, mutate: Callable[[dict[str, onnx.AttributeProto]], None]) -> None:
    estimator, model = converted(name)
    mutate(trees_of(model)[1])
    assert certified(estimator, model).verdict != "certified"


@pytest.mark.parametrize("mutate", MUTANTS)
@pytest.mark.parametrize("name", ["xgboost", "lightgbm of two"])
def test_no_changed_tree_of_a_booster_is_certified(
    name: str, mutate: Callable[[dict[str, onnx.AttributeProto]], None]
) -> None:
    estimator, model = converted(name)
    mutate(trees_of(model)[1])
    assert certified(estimator, model).verdict != "certified"


@pytest.mark.parametrize("name", ["ridge", "logistic of two", "linear svm", "perceptron", "scaler"])
def test_no_weight_in_another_last_bit_is_certified(name: str) -> None:
    estimator, model = converted(name)
    weights = [w for w in model.graph.initializer if w.data_type == onnx.TensorProto.DOUBLE]
    for weight in weights:
        before, numbers = onnx.TensorProto.FromString(weight.SerializeToString()), numpy_helper.to_array(weight).copy()
        numbers.reshape(-1)[0] = np.nextafter(numbers.reshape(-1)[0], np.inf)
        weight.CopyFrom(numpy_helper.from_array(numbers, weight.name))
        assert certified(estimator, model).verdict != "certified", weight.name
        weight.CopyFrom(before)


def changed_everywhere(model: onnx.ModelProto) -> dict[str, onnx.ModelProto]:
    """Copies of which each has another number or text in one constant or in one list of categories."""
    found = {}
    for i, weight in enumerate(model.graph.initializer):
        numbers = numpy_helper.to_array(weight).copy()
        if weight.data_type == onnx.TensorProto.DOUBLE and numbers.size:
            numbers.reshape(-1)[-1] = np.nextafter(numbers.reshape(-1)[-1], np.inf)
            other = onnx.ModelProto.FromString(model.SerializeToString())
            other.graph.initializer[i].CopyFrom(numpy_helper.from_array(numbers, weight.name))
            found[weight.name] = other
    for i, node in enumerate(model.graph.node):
        for k, attribute in enumerate(node.attribute):
            if attribute.name in ("cats_strings", "keys_strings"):
                other = onnx.ModelProto.FromString(model.SerializeToString())
                texts = other.graph.node[i].attribute[k].strings
                texts[0], texts[1] = texts[1], texts[0]
                found[f"{node.name}.{attribute.name}"] = other
    return found


@pytest.mark.parametrize("name", ["one-hot", "numbered trees", "joined", "votes", "stack", "clusters"])
def test_nothing_that_names_or_joins_columns_is_certified_once_it_is_changed(name: str) -> None:
    estimator, model = converted(name)
    for what, other in changed_everywhere(model).items():
        assert certified(estimator, other).verdict != "certified", what


def test_an_encoder_that_refuses_what_the_source_takes_is_not_certified() -> None:
    estimator, model = converted("one-hot")
    encoder = next(n for n in model.graph.node if n.op_type == "OneHotEncoder")
    next(a for a in encoder.attribute if a.name == "zeros").i = 0
    assert certified(estimator, model).verdict != "certified"


def test_a_column_that_another_is_read_for_is_not_certified() -> None:
    estimator, model = converted("one-hot trees")
    trees, _ = trees_of(model)
    concat = next(n for n in model.graph.node if n.output[0] == trees.input[0])
    places = [list(concat.input).index(name) for name in ("age", "rooms")]
    concat.input[places[0]], concat.input[places[1]] = "rooms", "age"
    assert certified(estimator, model).verdict != "certified"


def test_a_leaf_that_is_a_product_of_its_mean_is_not_certified() -> None:
    """x / 3 * 3 may be the next number beside x: then that is no expression of the leaf."""
    estimator, model = converted("forest of two")
    leaves = trees_of(model)[1]["class_weights_as_tensor"]
    numbers = numpy_helper.to_array(leaves.t)
    others = numbers / 3 * 3
    if (others == numbers).all():  # by chance
        others = np.nextafter(numbers, 2.0)
    leaves.t.CopyFrom(numpy_helper.from_array(others, leaves.t.name))
    assert certified(estimator, model).verdict != "certified"


def test_trees_behind_a_scaler_in_float32_are_not_certified() -> None:
    """It rounds before it compares; the source does not."""
    estimator, model = converted("forest")
    node, _ = trees_of(model)
    node.input[0] = "narrow"
    model.graph.node.insert(0, helper.make_node("Cast", ["X"], ["narrow"], to=onnx.TensorProto.FLOAT))
    assert certified(estimator, model).verdict != "certified"


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(decomposition.PCA(2), tree.DecisionTreeClassifier(max_depth=2)),
        make_pipeline(preprocessing.Normalizer(), ensemble.HistGradientBoostingClassifier(max_iter=2)),
        make_pipeline(decomposition.PCA(2), SCALE(), preprocessing.Binarizer(), linear_model.RidgeClassifier()),
        ensemble.StackingClassifier([("a", naive_bayes.GaussianNB())], tree.DecisionTreeClassifier(max_depth=2), cv=2),
    ],
)
def test_no_threshold_on_a_number_that_is_computed_is_certified(model: Any) -> None:
    """Its last digit may decide, and the file may add in another order than the source."""
    source = open_source(model.fit(*IRIS))
    with pytest.raises(UnsupportedError, match="numbers that are computed"):
        source.operator_trace({"X": IRIS[0][:2]})  # type: ignore[attr-defined]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pulled_back_thresholds_are_the_last_number_that_passes(strict: bool, dtype: str) -> None:
    generator = np.random.default_rng(0)
    thresholds = np.concatenate([generator.normal(size=50) * 10.0 ** generator.integers(-8, 8, 50), [0.0, 1e-45]])
    column = TracedColumn("x", 0, (lambda x: x - 0.3, lambda x: x / 7.7, to_float32))
    kind = np.dtype(dtype)
    found = decided(column, thresholds, strict, kind)
    above = np.nextafter(found.astype(kind), kind.type(np.inf)).astype(np.float64)
    passes = np.less if strict else np.less_equal
    assert passes(column.value(found), thresholds).all()
    assert not passes(column.value(above), thresholds).any()


def test_a_threshold_that_nothing_passes_is_none() -> None:
    column = TracedColumn("x", 0, (lambda x: np.clip(x, 0.0, 1.0),))
    assert np.isnan(decided(column, np.array([-0.5]), False, np.dtype("float64"))).all()
    assert decided(column, np.array([2.0]), False, np.dtype("float64")) == np.inf
