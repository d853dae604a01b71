"""More fitted estimators, boosters and Keras models for `make corpus`: rarely used options, ties, steps, states."""

# ruff: noqa: E501, PLW0108  (a table)
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.corpus.sources.further import Feeds, Further, _fitted

RANDOM = np.random.default_rng(9)


def _normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * RANDOM.standard_normal(shape)).astype(np.float32)


def classical_fitted() -> Iterator[Further]:
    """(name, the estimator, arguments of `convert`, rows)."""
    import catboost
    import lightgbm
    import xgboost
    from sklearn import (
        cluster,
        compose,
        cross_decomposition,
        decomposition,
        discriminant_analysis,
        ensemble,
        feature_selection,
        gaussian_process,
        impute,
        isotonic,
        linear_model,
        mixture,
        multiclass,
        multioutput,
        naive_bayes,
        neighbors,
        neural_network,
        pipeline,
        preprocessing,
        svm,
        tree,
    )  # fmt: skip

    rows = _normal(300, 4).astype(np.float64)
    target, classes = rows[:, 0] ** 2 + rows[:, 1], np.digitize(rows[:, 0], [-0.5, 0.5])
    holed = np.where(RANDOM.random(rows.shape) < 0.2, np.nan, rows)
    counts = np.floor(np.abs(rows) * 3)
    both = np.stack([target, -2 * target], 1)
    labels = np.stack([classes > 0, classes > 1], 1).astype(int)
    usual = [
        {"X": x.astype(np.float32)} for x in (rows, rows * 100, rows * 0, -np.abs(rows) * 50, rows[:1], np.round(rows))
    ]
    near = [{"X": x.astype(np.float32)} for x in (rows, rows[:1], rows * 2)]
    with_holes = [{"X": x.astype(np.float32)} for x in (holed, rows)]
    whole = [{"X": x.astype(np.float32)} for x in (counts, counts[:1], counts * 3)]
    few = {"n_estimators": 5, "verbose": -1, "min_child_samples": 5}
    quiet = {"iterations": 5, "verbose": 0, "allow_writing_files": False}
    base = [("a", linear_model.Ridge()), ("b", tree.DecisionTreeRegressor(max_depth=3))]
    early = {"n_estimators": 60, "early_stopping_rounds": 2, "learning_rate": 0.9}
    fits: dict[str, tuple[Any, np.ndarray, np.ndarray | None, list[Feeds]]] = {
        "sound: stacking": (ensemble.StackingRegressor(base), rows, target, usual[:2]),
        "sound: bins of one hot": (preprocessing.KBinsDiscretizer(4, encode="onehot-dense", quantile_method="linear"), rows, None, usual),
        "bins of equal width": (preprocessing.KBinsDiscretizer(5, encode="ordinal", strategy="uniform"), rows, None, usual),
        "splines": (preprocessing.SplineTransformer(4), rows, None, usual),
        "isotonic regression": (isotonic.IsotonicRegression(out_of_bounds="clip"), rows[:, :1], target, [{"X": rows[:, :1].astype(np.float32)}]),
        "sound: polynomials": (preprocessing.PolynomialFeatures(3, interaction_only=True), rows, None, usual),
        "sound: one against the rest": (multiclass.OneVsRestClassifier(linear_model.LogisticRegression()), rows, classes, near),
        "one against one": (multiclass.OneVsOneClassifier(svm.LinearSVC()), rows, classes, usual),
        "sound: several targets": (multioutput.MultiOutputRegressor(linear_model.Ridge()), rows, both, usual[:2]),
        "several labels": (multioutput.ClassifierChain(linear_model.LogisticRegression()), rows, labels, near),
        "neighbours of one": (neighbors.KNeighborsClassifier(1), np.round(rows), classes, usual),
        "neighbours within a radius": (neighbors.RadiusNeighborsRegressor(2.0), rows, target, near),
        "sound: neighbours averaged": (neighbors.KNeighborsRegressor(5), rows, target, near),
        "neighbours by city blocks": (neighbors.KNeighborsRegressor(5, p=1), rows, target, near),
        "neighbours that fill holes": (impute.KNNImputer(), holed, None, with_holes),
        "sound: an imputer of medians": (impute.SimpleImputer(strategy="median"), holed, None, with_holes),
        "the most frequent value": (impute.SimpleImputer(strategy="most_frequent"), np.round(holed), None, with_holes),
        "sound: k-means": (cluster.KMeans(4, n_init=1, random_state=0), rows, None, near),
        "sound: principal components": (decomposition.PCA(2, whiten=True), rows, None, usual[:2]),
        "truncated components": (decomposition.TruncatedSVD(2), rows, None, usual[:2]),
        "sound: a mixture": (mixture.GaussianMixture(2, random_state=0), rows, None, near),
        "a Gaussian process": (gaussian_process.GaussianProcessRegressor(), rows[:40], target[:40], near),
        "sound: discriminants": (discriminant_analysis.LinearDiscriminantAnalysis(), rows, classes, near),
        "quadratic discriminants": (discriminant_analysis.QuadraticDiscriminantAnalysis(), rows, classes, near),
        "sound: naive Bayes of counts": (naive_bayes.MultinomialNB(), counts, classes, whole),
        "naive Bayes of bits": (naive_bayes.BernoulliNB(binarize=0.3), rows, classes, usual),
        "naive Bayes of categories": (naive_bayes.CategoricalNB(), counts.clip(0, 5), classes, [{"X": counts.clip(0, 5).astype(np.float32)}]),
        "complement naive Bayes": (naive_bayes.ComplementNB(norm=True), counts, classes, whole),
        "sound: a perceptron": (neural_network.MLPClassifier((8,), max_iter=30, random_state=0), rows, classes, near),
        "a perceptron of logistic units": (neural_network.MLPRegressor(hidden_layer_sizes=(8,), activation="logistic", max_iter=30, random_state=0), rows, target, near),
        "sound: quantiles to a normal": (pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.HuberRegressor()), rows, target, usual[:2]),
        "quantiles": (preprocessing.QuantileTransformer(n_quantiles=20), rows, None, usual),
        "sound: powers": (preprocessing.PowerTransformer(), rows, None, near),
        "sound: a binarizer": (preprocessing.Binarizer(threshold=0.25), rows, None, usual),
        "the chosen columns": (feature_selection.SelectKBest(k=2), rows, classes, usual),
        "partial least squares": (cross_decomposition.PLSRegression(2), rows, target, near),
        "an isolation forest": (ensemble.IsolationForest(n_estimators=5, random_state=0), rows, None, usual),
        "sound: AdaBoost": (ensemble.AdaBoostClassifier(n_estimators=5, random_state=0), rows, classes, usual),
        "AdaBoost that predicts numbers": (ensemble.AdaBoostRegressor(n_estimators=5, random_state=0), rows, target, usual),
        "sound: bagging": (ensemble.BaggingClassifier(n_estimators=4, max_features=0.6, random_state=0), rows, classes, usual),
        "sound: extra trees": (ensemble.ExtraTreesRegressor(n_estimators=5, random_state=0), rows, target, usual),
        "sound: gradient boosting with a start": (ensemble.GradientBoostingClassifier(n_estimators=5, init="zero"), rows, classes, usual),
        "gradient boosting from an estimator": (ensemble.GradientBoostingRegressor(n_estimators=5, init=linear_model.Ridge()), rows, target, usual[:2]),
        "histogram boosting of missing values": (ensemble.HistGradientBoostingRegressor(max_iter=5), holed, target, with_holes),
        "histogram boosting of categories": (ensemble.HistGradientBoostingRegressor(max_iter=5, categorical_features=[0]), np.column_stack([counts[:, 0], rows[:, 1:]]), target, [{"X": np.column_stack([counts[:, 0], rows[:, 1:]]).astype(np.float32)}]),
        "columns by their own transformers": (compose.ColumnTransformer([("s", preprocessing.StandardScaler(), [0, 1]), ("b", preprocessing.KBinsDiscretizer(3, encode="ordinal", quantile_method="linear"), [2])], remainder="passthrough"), rows, None, usual),
        "columns that are dropped": (compose.ColumnTransformer([("s", preprocessing.RobustScaler(), [3, 1])], remainder="drop"), rows, None, usual),
        "a target that is transformed": (compose.TransformedTargetRegressor(linear_model.Ridge(), func=np.log1p, inverse_func=np.expm1), rows, np.abs(target), near),
        "categories unseen": (preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False), counts.clip(0, 5), None, whole),
        "rare categories": (preprocessing.OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=20, sparse_output=False), counts, None, whole),
        "ordinals unseen": (preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), counts, None, whole),
        "the mean of the target": (preprocessing.TargetEncoder(), counts, classes > 0, whole),
        "a function of rows": (preprocessing.FunctionTransformer(np.log1p), np.abs(rows), None, [{"X": np.abs(rows).astype(np.float32)}]),
        "sound: quantile regression": (linear_model.QuantileRegressor(quantile=0.7), rows, target, near),
        "sound: a Tweedie regression": (linear_model.TweedieRegressor(power=1.5), rows, np.abs(target), near),
        "a one-class machine": (svm.OneClassSVM(nu=0.1), rows, None, near),
        "a sigmoid kernel": (svm.SVR(kernel="sigmoid", coef0=0.5), rows, target, near),
        "a machine of three classes": (svm.SVC(kernel="poly", degree=2), rows, classes, near),
        "LightGBM, categories": (lightgbm.LGBMRegressor(categorical_feature=[0], **few), np.column_stack([counts[:, 0], rows[:, 1:]]), target, [{"X": np.column_stack([counts[:, 0], rows[:, 1:]]).astype(np.float32)}]),
        "sound: LightGBM, missing values": (lightgbm.LGBMClassifier(**few), holed, classes, with_holes),
        "LightGBM, ranks": (lightgbm.LGBMRegressor(objective="tweedie", **few), rows, np.abs(target), usual),
        "LightGBM, cross-entropy": (lightgbm.LGBMRegressor(objective="cross_entropy", **few), rows, (classes > 0).astype(float), usual),
        "LightGBM, extra trees and paths": (lightgbm.LGBMRegressor(extra_trees=True, path_smooth=2.0, **few), rows, target, usual),
        "sound: XGBoost, missing values": (xgboost.XGBClassifier(n_estimators=5), holed, classes, with_holes),
        "XGBoost, hinge": (xgboost.XGBClassifier(n_estimators=5, objective="binary:hinge"), rows, (classes > 0).astype(int), usual),
        "XGBoost, hard labels": (xgboost.XGBClassifier(n_estimators=5, objective="multi:softmax"), rows, classes, usual),
        "XGBoost, gamma": (xgboost.XGBRegressor(n_estimators=5, objective="reg:gamma"), rows, np.abs(target) + 0.1, usual),
        "XGBoost, absolute errors": (xgboost.XGBRegressor(n_estimators=5, objective="reg:absoluteerror"), rows, target, usual),
        "XGBoost, several quantiles": (xgboost.XGBRegressor(n_estimators=5, objective="reg:quantileerror", quantile_alpha=[0.2, 0.8]), rows, target, usual),
        "XGBoost, linear classes": (xgboost.XGBClassifier(n_estimators=5, booster="gblinear"), rows, classes, usual[:2]),
        "XGBoost, missing=0 beside NaN": (xgboost.XGBRegressor(n_estimators=5, missing=0.0), np.round(rows), target, [{"X": np.round(rows).astype(np.float32)}]),
        "XGBoost, random forest": (xgboost.XGBRFRegressor(n_estimators=5), rows, target, usual),
        "CatBoost, logistic": (catboost.CatBoostClassifier(**quiet), rows, classes > 0, usual),
        "CatBoost, quantile": (catboost.CatBoostRegressor(loss_function="Quantile:alpha=0.8", **quiet), rows, target, usual),
        "CatBoost, no missing values": (catboost.CatBoostRegressor(nan_mode="Forbidden", **quiet), rows, target, usual),
        "CatBoost, several classes": (catboost.CatBoostClassifier(loss_function="MultiClass", **quiet), rows, classes, usual),
    }  # fmt: skip
    for name, (estimator, given, wanted, inputs) in fits.items():
        yield f"fitted: {name}", _fitted(estimator, given, wanted), {}, inputs

    def stopped() -> Any:
        model = xgboost.XGBRegressor(**early)
        return model.fit(rows[:200], target[:200], eval_set=[(rows[200:], target[200:])], verbose=False)

    yield "fitted: XGBoost, stopped early", stopped, {}, usual

    def best_of() -> Any:
        model = lightgbm.LGBMRegressor(n_estimators=60, learning_rate=0.9, verbose=-1)
        stop = [lightgbm.early_stopping(2, verbose=False)]
        return model.fit(rows[:200], target[:200], eval_set=[(rows[200:], target[200:])], callbacks=stop)

    yield "fitted: LightGBM, stopped early", best_of, {}, usual


def keras_model(shape: tuple[int | None, ...], body: Callable[[Any], Any], dtype: str = "float32") -> Callable[[], Any]:
    """What makes a functional model whose input is x."""

    def make() -> Any:
        import keras

        keras.utils.set_random_seed(0)
        given = keras.Input(shape, name="x", dtype=dtype)
        return keras.Model(given, body(given))

    return make


def keras_fitted() -> Iterator[Further]:
    """Functional models whose input is x."""
    import tensorflow as tf
    from keras import layers, ops

    class Counter(layers.Layer):
        """Counts its calls."""

        def build(self, _: Any) -> None:
            self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

        def call(self, x: Any) -> Any:
            self.count.assign(self.count + 1)
            return x * self.count

    class Halving(layers.Layer):
        """Halves until it is small enough."""

        def call(self, x: Any) -> Any:
            return tf.while_loop(lambda y: tf.reduce_max(tf.abs(y)) > 10.0, lambda y: (y / 2.0,), [x])[0]

    class Branch(layers.Layer):
        """One of two products."""

        def call(self, x: Any) -> Any:
            return tf.cond(tf.reduce_mean(x) > 40.0, lambda: x * 3.0, lambda: x)

    class Frozen(layers.Layer):
        """A branch of Python on a number of numpy."""

        def call(self, x: Any) -> Any:
            size = x.shape[0]
            return x * 2 if size is not None and size > 3 else x

    sequences = [{"x": _normal(2, n, 8)} for n in (7, 16, 97, 195)]
    holed = _normal(3, 12, 8)
    holed[0, 5:], holed[1, :3], holed[2] = 0, 0, 0
    sequences.append({"x": holed})
    rows = [
        {"x": x}
        for x in (
            _normal(4, 8),
            _normal(1, 8),
            _normal(7, 8, scale=1e3),
            _normal(4, 8) + 60,
            np.round(_normal(9, 8)),
            np.zeros((2, 8), np.float32),
        )
    ]
    pictures = [{"x": _normal(2, h, w, 3)} for h, w in ((16, 16), (17, 23), (64, 48), (33, 20))]
    ids = [{"x": RANDOM.integers(0, 50, (2, n)).astype(np.int32)} for n in (5, 12, 60)] + [
        {"x": np.array([[4, 7, 0, 0], [0, 0, 0, 0]], np.int32)}
    ]
    of_sequences: dict[str, Callable[[Any], Any]] = {
        "sound: a bidirectional GRU": lambda x: layers.Bidirectional(layers.GRU(4, return_sequences=True))(x),
        "a GRU without reset after": lambda x: layers.GRU(4, reset_after=False)(x),
        "sound: masking before attention": lambda x: layers.MultiHeadAttention(2, 4)(
            layers.Masking()(x), layers.Masking()(x)
        ),
        "masking before a mean": lambda x: layers.GlobalAveragePooling1D()(layers.Masking()(x)),
        "sound: masking before a bidirectional LSTM": lambda x: layers.Bidirectional(layers.LSTM(4))(
            layers.Masking()(x)
        ),
        "sound: causal convolution": lambda x: layers.Conv1D(4, 3, padding="causal", dilation_rate=2)(x),
        "sound: separable convolution": lambda x: layers.SeparableConv1D(4, 3, padding="same")(x),
        "an LSTM that goes backwards": lambda x: layers.LSTM(4, go_backwards=True, return_sequences=True)(x),
        "sound: cumulative sums": lambda x: ops.cumsum(x, axis=1),
        "positions by hand": lambda x: (
            x + ops.cast(ops.arange(ops.shape(x)[1], dtype="int32"), "float32")[None, :, None]
        ),
        "group attention": lambda x: layers.GroupQueryAttention(4, 4, 2)(x, x, use_causal_mask=True),
    }
    of_rows: dict[str, Callable[[Any], Any]] = {
        "a counter": lambda x: Counter()(x),
        "halving until small": lambda x: Halving()(x),
        "sound: tf.cond on a mean": lambda x: Branch()(x),
        "a Python branch on the batch": lambda x: Frozen()(x),
        "sound: argmax": lambda x: ops.argmax(x, axis=-1),
        "argmax of rounded numbers": lambda x: ops.argmax(ops.round(x), axis=-1),
        "the largest three": lambda x: ops.top_k(x, 3)[0],
        "sorted": lambda x: ops.sort(x, axis=-1),
        "a sum by segment": lambda x: ops.segment_sum(x, ops.cast(x[:, 0] > 0, "int32"), 2),
        "sound: unit norms": lambda x: layers.UnitNormalization()(x),
        "sound: a group normalization": lambda x: layers.GroupNormalization(2)(x),
        "noise and dropout": lambda x: layers.GaussianNoise(0.5)(layers.Dropout(0.5)(x)),
        "discretized": lambda x: layers.Discretization([-1.0, 0.0, 2.5])(x),
        "normalized": lambda x: layers.Normalization(mean=2.0, variance=9.0)(x),
        "rounded to even": lambda x: ops.round(x * 2) / 2,
        "floor of remainders": lambda x: ops.mod(x, 3.0) + ops.floor(x),
        "NaN mended": lambda x: ops.nan_to_num(ops.log(x), nan=-5.0),
        "quantiles": lambda x: ops.quantile(x, 0.3, axis=-1),
        "a histogram by scatter": lambda x: ops.scatter(
            ops.cast(ops.reshape(ops.clip(x, 0, 9), (-1, 1)), "int32"), ops.reshape(x, (-1,)), (10,)
        ),
    }
    of_pictures: dict[str, Callable[[Any], Any]] = {
        "sound: depthwise": lambda x: layers.DepthwiseConv2D(3, strides=2, padding="same")(x),
        "sound: transposed": lambda x: layers.Conv2DTranspose(4, 3, strides=2, padding="same")(x),
        "sound: pools of odd sizes": lambda x: layers.AveragePooling2D(3, 2, padding="same")(x),
        "sound: nearest": lambda x: layers.UpSampling2D(2, interpolation="nearest")(x),
        "bilinear": lambda x: layers.UpSampling2D(3, interpolation="bilinear")(x),
        "resized with antialiasing": lambda x: ops.image.resize(x, (9, 7), antialias=True),
        "cropped to its ratio": lambda x: layers.Resizing(20, 24, crop_to_aspect_ratio=True)(x),
        "cropped at the center, small": lambda x: layers.CenterCrop(10, 12)(x),
        "random flips": lambda x: layers.RandomFlip()(x),
        "adaptive": lambda x: (
            layers.AdaptiveAveragePooling2D(4)(x) if hasattr(layers, "AdaptiveAveragePooling2D") else x
        ),
    }
    of_ids: dict[str, Callable[[Any], Any]] = {
        "sound: an embedding with a mask": lambda x: layers.LSTM(4)(layers.Embedding(50, 8, mask_zero=True)(x)),
        "hashed": lambda x: layers.Embedding(7, 4)(layers.Hashing(7)(x)),
        "one hot": lambda x: layers.CategoryEncoding(50, "multi_hot")(x),
        "looked up": lambda x: layers.Embedding(6, 4)(layers.IntegerLookup(vocabulary=[3, 7, 11, 20])(x)),
    }
    for shape, bodies, inputs, dtype in (
        ((None, 8), of_sequences, sequences, "float32"),
        ((8,), of_rows, rows, "float32"),
        ((None, None, 3), of_pictures, pictures, "float32"),
        ((None,), of_ids, ids, "int32"),
    ):
        for name, body in bodies.items():
            yield f"Keras fitted: {name}", keras_model(shape, body, dtype), {}, inputs
