"""Estimators for `make corpus` fitted on tables: thresholds between numbers of float32, exact values, gaps, rare
options of boosters, objectives whose predictions are labels, pipelines of several steps."""

# ruff: noqa: E501  (a table)
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.corpus.sources.frozen import Further

RANDOM = np.random.default_rng(31)


def _fitted(estimator: Any, rows: np.ndarray, target: np.ndarray | None) -> Callable[[], Any]:
    def make() -> Any:
        from sklearn.base import clone

        try:
            made = clone(estimator)
        except Exception:  # boosters that cannot be cloned
            made = estimator
        return made.fit(rows) if target is None else made.fit(rows, target)

    return make


def classical_tables() -> Iterator[Further]:
    """(name, source, settings, inputs)."""
    import catboost
    import lightgbm
    import xgboost
    from sklearn import (
        cluster,
        compose,
        decomposition,
        ensemble,
        feature_selection,
        impute,
        kernel_approximation,
        linear_model,
        neighbors,
        pipeline,
        preprocessing,
        svm,
        tree,
    )
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401

    rows = RANDOM.standard_normal((300, 4))
    target = rows[:, 0] * 3 + np.sin(rows[:, 1]) + 0.1 * RANDOM.standard_normal(300)
    classes = np.digitize(target, (-2.0, 2.0))
    both = np.column_stack([target, rows[:, 2] - target])
    labels = (both > 0).astype(int)
    holed = rows.copy()
    holed[RANDOM.random(rows.shape) < 0.15] = np.nan
    money = np.round(rows * 1000 + 5000, 2)
    times = 1.6e9 + np.round(rows * 1e6)
    steps = np.round(rows * 4) / 4
    usual = [{"X": x.astype(np.float32)} for x in (rows, rows[:1], rows * 3, steps, np.zeros((2, 4)), rows[:7] + 10)]
    with_gaps = [{"X": holed.astype(np.float32)}, {"X": np.full((2, 4), np.nan, np.float32)}, *usual[:3]]
    of_money = [{"X": money.astype(np.float32)}, {"X": (money + 0.01).astype(np.float32)}]
    few = {"n_estimators": 5, "verbose": -1, "min_child_samples": 5}
    small = {"n_estimators": 5, "max_depth": 3}
    quiet = {"iterations": 5, "depth": 3, "verbose": 0, "allow_writing_files": False}
    two = (classes > 0).astype(int)
    make = pipeline.make_pipeline
    fits: dict[str, tuple[Any, np.ndarray, np.ndarray | None, list[dict[str, np.ndarray]]]] = {
        "sound: splines of degree 3": (preprocessing.SplineTransformer(5), rows, None, usual[:4]),
        "sound: splines that go on in a line": (preprocessing.SplineTransformer(4, degree=2, extrapolation="linear"), rows, None, usual[:4]),
        "sound: splines that repeat": (preprocessing.SplineTransformer(6, extrapolation="periodic"), rows, None, usual[:4]),
        "sound: splines that end at zero": (preprocessing.SplineTransformer(6, degree=1, extrapolation="continue", include_bias=False), rows, None, usual[:4]),
        "sound: splines before a regression": (make(preprocessing.SplineTransformer(5, knots="quantile"), linear_model.Ridge(0.1)), rows, target, usual[:4]),
        "gaps filled by regressions": (impute.IterativeImputer(random_state=0), holed, None, with_gaps),
        "a sketch of polynomials": (kernel_approximation.PolynomialCountSketch(n_components=8, random_state=0), rows, None, usual[:2]),
        "sound: XGBoost, hard labels": (xgboost.XGBClassifier(objective="multi:softmax", **small), rows, classes, usual),
        "sound: XGBoost, hinge": (xgboost.XGBClassifier(objective="binary:hinge", **small), rows, two, usual),
        "sound: XGBoost, several labels": (xgboost.XGBClassifier(**small), rows, labels, usual),
        "sound: XGBoost, several targets by trees of several outputs": (xgboost.XGBRegressor(multi_strategy="multi_output_tree", tree_method="hist", **small), rows, both, usual),
        "sound: XGBoost, raw margins": (xgboost.XGBClassifier(objective="binary:logitraw", **small), rows, two, usual),
        "sound: XGBoost, squared logs": (xgboost.XGBRegressor(objective="reg:squaredlogerror", **small), rows, np.abs(target), usual),
        "sound: XGBoost, pseudo-Huber": (xgboost.XGBRegressor(objective="reg:pseudohubererror", **small), rows, target, usual),
        "sound: XGBoost, Tweedie": (xgboost.XGBRegressor(objective="reg:tweedie", tweedie_variance_power=1.3, **small), rows, np.abs(target), usual),
        "sound: XGBoost, counts": (xgboost.XGBRegressor(objective="count:poisson", max_delta_step=0.5, **small), rows, np.round(np.abs(target)), usual),
        "sound: XGBoost, ranks": (xgboost.XGBRFClassifier(n_estimators=4, subsample=0.7), rows, classes, usual),
        "sound: XGBoost, gaps": (xgboost.XGBClassifier(**small), holed, classes, with_gaps),
        "XGBoost, a start of its own": (xgboost.XGBRegressor(base_score=1e6, **small), rows, target, usual),
        "sound: LightGBM, huber": (lightgbm.LGBMRegressor(objective="huber", **few), rows, target, usual),
        "sound: LightGBM, fair": (lightgbm.LGBMRegressor(objective="fair", **few), rows, target, usual),
        "sound: LightGBM, gamma": (lightgbm.LGBMRegressor(objective="gamma", **few), rows, np.abs(target) + 0.1, usual),
        "sound: LightGBM, classes at random": (lightgbm.LGBMClassifier(boosting_type="rf", bagging_freq=1, bagging_fraction=0.6, **few), rows, classes, usual),
        "LightGBM, gaps as zero": (lightgbm.LGBMClassifier(zero_as_missing=True, **few), steps, classes, [*usual, *with_gaps]),
        "LightGBM, linear trees": (lightgbm.LGBMRegressor(linear_tree=True, **few), rows, target, usual),
        "sound: LightGBM, unbalanced": (lightgbm.LGBMClassifier(is_unbalance=True, **few), rows, two, usual),
        "sound: LightGBM, exact values": (lightgbm.LGBMRegressor(max_bin=8, **few), steps, target, usual),
        "LightGBM, money": (lightgbm.LGBMRegressor(**few), money, target, of_money),
        "sound: CatBoost, several labels": (catboost.CatBoostClassifier(loss_function="MultiLogloss", **quiet), rows, labels, usual),
        "CatBoost, a threshold of its own": (catboost.CatBoostClassifier(loss_function="Logloss", **quiet), rows, two, usual),
        "CatBoost, uncertainty": (catboost.CatBoostRegressor(loss_function="RMSEWithUncertainty", **quiet), rows, target, usual),
        "sound: CatBoost, expectiles": (catboost.CatBoostRegressor(loss_function="Expectile:alpha=0.3", **quiet), rows, target, usual),
        "CatBoost, log-cosh": (catboost.CatBoostRegressor(loss_function="LogCosh", **quiet), rows, target, usual),
        "sound: CatBoost, crossed": (catboost.CatBoostClassifier(loss_function="CrossEntropy", **quiet), rows, two, usual),
        "sound: CatBoost, least gaps": (catboost.CatBoostRegressor(nan_mode="Min", **quiet), holed, target, with_gaps),
        "times in seconds": (tree.DecisionTreeRegressor(max_depth=4), times, target, [{"X": times.astype(np.float32)}]),
        "sound: a tree at its own numbers": (tree.DecisionTreeClassifier(max_depth=4), steps, classes, usual),
        "a tree with gaps": (tree.DecisionTreeRegressor(max_depth=4), holed, target, with_gaps),
        "sound: absolute errors": (ensemble.HistGradientBoostingRegressor(loss="absolute_error", max_iter=5), rows, target, usual),
        "sound: quantile boosting": (ensemble.GradientBoostingRegressor(loss="quantile", alpha=0.8, n_estimators=5, random_state=0), rows, target, usual),
        "sound: histograms of three classes": (ensemble.HistGradientBoostingClassifier(max_iter=4, l2_regularization=1.0), holed, classes, with_gaps),
        "sound: several steps": (make(impute.SimpleImputer(strategy="median", add_indicator=True), preprocessing.RobustScaler(), decomposition.PCA(3), linear_model.LogisticRegression()), holed, classes, with_gaps[:1]),
        "sound: scaled to at most one": (make(preprocessing.MaxAbsScaler(), preprocessing.PolynomialFeatures(2), linear_model.Lasso(0.01)), rows, target, usual[:2]),
        "a scaler of a constant column": (preprocessing.StandardScaler(), np.column_stack([rows[:, :3], np.ones(300)]), None, usual),
        "sound: ranges clipped": (preprocessing.MinMaxScaler(clip=True), rows, None, usual),
        "rows of norm one": (preprocessing.Normalizer("max"), rows, None, usual),
        "sound: bins before trees": (make(preprocessing.KBinsDiscretizer(5, encode="ordinal", quantile_method="linear"), tree.DecisionTreeClassifier(max_depth=3)), rows, classes, usual),
        "sound: only what matters": (make(feature_selection.SelectFromModel(linear_model.Lasso(0.2)), linear_model.Ridge()), rows, target, usual[:2]),
        "features of little variance": (feature_selection.VarianceThreshold(0.5), rows, None, usual),
        "sound: columns by kind": (compose.ColumnTransformer([("n", make(impute.SimpleImputer(), preprocessing.StandardScaler()), [0, 1]), ("o", preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False), [2])], remainder="passthrough"), np.column_stack([holed[:, :2], np.round(rows[:, 2]), rows[:, 3]]), None, [{"X": np.column_stack([holed[:, :2], np.round(rows[:, 2]), rows[:, 3]]).astype(np.float32)}]),
        "categories of fractions": (preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), np.round(rows, 1), None, [{"X": np.round(rows, 1).astype(np.float32)}]),
        "sound: a machine of kernels": (svm.NuSVR(nu=0.4), rows, target, usual[:1]),
        "a machine with probabilities": (svm.SVC(probability=True, random_state=0), rows, two, usual[:1]),
        "sound: distances to centers": (make(cluster.MiniBatchKMeans(3, random_state=0, n_init=1), linear_model.Ridge()), rows, target, usual[:1]),
        "neighbours at equal distances": (neighbors.KNeighborsRegressor(3, weights="distance"), steps, target, usual[:4]),
        "sound: passive and aggressive": (linear_model.SGDClassifier(loss="modified_huber", random_state=0), rows, two, usual[:1]),
        "outlying rows": (neighbors.LocalOutlierFactor(novelty=True), rows, None, usual[:1]),
        "sound: isolated rows": (ensemble.IsolationForest(n_estimators=5, contamination=0.1, random_state=0), rows, None, usual),
        "sound: RANSAC": (linear_model.RANSACRegressor(random_state=0), rows, target, usual[:1]),
    }  # fmt: skip
    for name, (estimator, given, wanted, inputs) in fits.items():
        yield f"tables: {name}", _fitted(estimator, given, wanted), {}, inputs

    def thresholded() -> Any:
        model = catboost.CatBoostClassifier(loss_function="Logloss", **quiet).fit(rows, two)
        model.set_probability_threshold(0.8)
        return model

    yield "tables: CatBoost, a threshold of 0.8", thresholded, {}, usual
