"""Pipelines drawn at random from scikit-learn's transformers and estimators: exact on all held-out rows, or refused.

    python benchmarks/table_pipelines.py [--random 60] [--seed 0] [--only NAME ...] [--latency] [--float32]

Data are scikit-learn's own tables, half of the drawn pipelines on frames with categories, integers, booleans, dates as
days, texts and missing values: twelve tables in all.
Each fitted pipeline is converted by the tool without an option; the file then runs in ONNX Runtime on the rows that
were held out and on the training rows, and what it gives is held against `predict` and `predict_proba` by NumPy. Prints
one line for each and the counts; with --effort normal, how many are certified, too. Exit 1 when a written file gives
another answer. With --float32 all numbers are float32, in which the source computes, and the training rows are the
sample. --latency runs the file beside skl2onnx's for the same pipeline, at 1 and 10,000 rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pandas as pd
from sklearn import (
    datasets,
    decomposition,
    ensemble,
    feature_selection,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    svm,
    tree,
)
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from onnxtool.conversion.convert import convert
from onnxtool.conversion.sklearn.tied_neighbours import tied_rows
from onnxtool.errors import OnnxToolError

# How far a sum of leaves or of products may be off, relative to the largest: they are added in float32. What a source
# in float32 gives is off by more itself.
SUMS = {np.float64: 2e-6, np.float32: 1e-4}
LABELLED = ("breast_cancer", "digits", "iris", "wine")


@dataclass
class Case:
    """A pipeline to fit, and its table."""

    name: str
    make: Callable[[], Any]
    table: str
    framed: bool


def table_of(name: str, framed: bool, floats: type) -> tuple[Any, np.ndarray]:
    """(X, y): rows of floats, or a frame with a column of categories, one of integers and gaps in two others."""
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    y = y[:, 0] if name == "linnerud" else y
    x = x.astype(floats)
    if not framed:
        return x, y
    frame = pd.DataFrame(x[:, :8], columns=[f"c{i}" for i in range(min(8, x.shape[1]))])
    generator = np.random.default_rng(0)
    for column in frame.columns[:2]:
        frame.loc[generator.random(len(frame)) < 0.1, column] = np.nan
    frame["kind"] = np.array(["low", "middle", "high"])[np.digitize(x[:, -1], np.quantile(x[:, -1], [0.3, 0.6]))]
    frame["count"] = generator.integers(0, 9, len(frame))
    frame["flag"] = generator.random(len(frame)) < 0.5
    frame["days"] = generator.integers(0, 4000, len(frame))
    words = np.array(["late", "great", "bad", "café", "refund", "love", "the", "42"])
    frame["note"] = [" ".join(generator.choice(words, generator.integers(1, 7))) for _ in range(len(frame))]
    return frame, y


def boosters() -> dict[str, tuple[Any, Any]]:
    """Name -> (regressor, classifier), of the libraries that are installed."""
    import catboost
    import lightgbm
    import xgboost

    quiet = {"verbose": 0, "allow_writing_files": False}
    return {
        "XGB": (lambda: xgboost.XGBRegressor(n_estimators=60), lambda: xgboost.XGBClassifier(n_estimators=30)),
        "LGBM": (
            lambda: lightgbm.LGBMRegressor(n_estimators=60, verbose=-1),
            lambda: lightgbm.LGBMClassifier(n_estimators=30, verbose=-1),
        ),
        "CatBoost": (
            lambda: catboost.CatBoostRegressor(iterations=60, **quiet),
            lambda: catboost.CatBoostClassifier(iterations=30, **quiet),
        ),
    }


def estimators(labelled: bool) -> dict[str, Callable[[], Any]]:
    """Name -> how to make one, of regressors or classifiers."""
    pairs: dict[str, tuple[Any, Any]] = {
        "Forest": (
            lambda: ensemble.RandomForestRegressor(30, random_state=0),
            lambda: ensemble.RandomForestClassifier(30, random_state=0),
        ),
        "ExtraTrees": (
            lambda: ensemble.ExtraTreesRegressor(30, random_state=0),
            lambda: ensemble.ExtraTreesClassifier(30, random_state=0),
        ),
        "Tree": (tree.DecisionTreeRegressor, tree.DecisionTreeClassifier),
        "Boosting": (ensemble.GradientBoostingRegressor, lambda: ensemble.GradientBoostingClassifier(n_estimators=20)),
        "HistBoosting": (
            lambda: ensemble.HistGradientBoostingRegressor(max_iter=60),
            lambda: ensemble.HistGradientBoostingClassifier(max_iter=20),
        ),
        "AdaBoost": (ensemble.AdaBoostRegressor, ensemble.AdaBoostClassifier),
        "Bagging": (ensemble.BaggingRegressor, ensemble.BaggingClassifier),
        "Linear": (linear_model.Ridge, lambda: linear_model.LogisticRegression(max_iter=500)),
        "Lasso": (linear_model.LassoCV, lambda: linear_model.SGDClassifier(loss="modified_huber")),
        "SVM": (svm.SVR, lambda: svm.SVC(probability=True)),
        "Neighbours": (neighbors.KNeighborsRegressor, neighbors.KNeighborsClassifier),
        "MLP": (
            lambda: neural_network.MLPRegressor(max_iter=100, random_state=0),
            lambda: neural_network.MLPClassifier(max_iter=100, random_state=0),
        ),
        "Bayes": (linear_model.BayesianRidge, naive_bayes.GaussianNB),
        "Vote": (
            lambda: ensemble.VotingRegressor(
                [("a", tree.DecisionTreeRegressor()), ("b", neighbors.KNeighborsRegressor())]
            ),
            lambda: ensemble.VotingClassifier(
                [("a", tree.DecisionTreeClassifier()), ("b", neighbors.KNeighborsClassifier())], voting="soft"
            ),
        ),
        "Stack": (
            lambda: ensemble.StackingRegressor(
                [("a", ensemble.RandomForestRegressor(10)), ("b", linear_model.Ridge())]
            ),
            lambda: ensemble.StackingClassifier(
                [("a", ensemble.RandomForestClassifier(10)), ("b", naive_bayes.GaussianNB())]
            ),
        ),
        **boosters(),
    }
    return {name: pair[labelled] for name, pair in pairs.items()}


TRANSFORMERS: dict[str, Callable[[], Any]] = {
    "Standard": preprocessing.StandardScaler,
    "MinMax": preprocessing.MinMaxScaler,
    "MinMaxClip": lambda: preprocessing.MinMaxScaler(clip=True),
    "MaxAbs": preprocessing.MaxAbsScaler,
    "Robust": preprocessing.RobustScaler,
    "Quantile": lambda: preprocessing.QuantileTransformer(n_quantiles=50),
    "QuantileNormal": lambda: preprocessing.QuantileTransformer(n_quantiles=50, output_distribution="normal"),
    "Power": preprocessing.PowerTransformer,
    "Spline": preprocessing.SplineTransformer,
    "Bins": preprocessing.KBinsDiscretizer,
    "BinsOrdinal": lambda: preprocessing.KBinsDiscretizer(encode="ordinal", strategy="uniform"),
    "Binarizer": lambda: preprocessing.Binarizer(threshold=0.1),
    "Normalizer": preprocessing.Normalizer,
    "Polynomial": lambda: preprocessing.PolynomialFeatures(2, interaction_only=True),
    "PCA": lambda: decomposition.PCA(3),
    "SVD": lambda: decomposition.TruncatedSVD(3),
    "Select": lambda: feature_selection.SelectKBest(k=3),
    "Variance": lambda: feature_selection.VarianceThreshold(1e-6),
    "Imputer": impute.SimpleImputer,
    "ImputerMedian": lambda: impute.SimpleImputer(strategy="median"),
}


def framed(numbers: Any, columns: list[str]) -> ColumnTransformer:
    """A pipeline's usual head: numbers filled and changed, categories one-hot."""
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(impute.SimpleImputer(strategy="median"), numbers), columns),
            ("texts", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["kind"]),
            ("counts", preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), ["count"]),
            ("flags", "passthrough", ["flag", "days"]),
            ("notes", TfidfVectorizer(), "note"),
        ],
        sparse_threshold=0,
    )


def named() -> Iterator[Case]:
    """Those that were found wrong by a user."""
    regress, classify = estimators(labelled=False), estimators(labelled=True)
    for transformer, estimator, table in (
        ("Standard", "XGB", "diabetes"), ("MinMax", "Forest", "diabetes"), ("Standard", "HistBoosting", "diabetes"),
        ("Standard", "XGB", "breast_cancer"), ("Quantile", "ExtraTrees", "diabetes"), ("Quantile", "MLP", "iris"),
        ("Standard", "XGB", "digits"), ("PCA", "HistBoosting", "diabetes"), ("Binarizer", "Bayes", "iris"),
        ("Spline", "Linear", "diabetes"), ("Power", "Forest", "wine"), ("Standard", "Neighbours", "iris"),
    ):  # fmt: skip
        make = (classify if table in LABELLED else regress)[estimator]
        yield Case(
            f"{transformer}+{estimator}/{table}",
            lambda t=transformer, m=make: make_pipeline(TRANSFORMERS[t](), m()),  # type: ignore[misc]
            table,
            framed=False,
        )
    head = [f"c{i}" for i in range(8)]
    for table in ("diabetes", "breast_cancer"):
        make = (classify if table in LABELLED else regress)["XGB"]
        yield Case(
            f"frame:Imputer+Standard+OneHot+XGB/{table}",
            lambda m=make: make_pipeline(framed(preprocessing.StandardScaler(), head), m()),  # type: ignore[misc]
            table,
            framed=True,
        )


def drawn(count: int, seed: int) -> Iterator[Case]:
    """Random ones: one or two transformers and an estimator; every other one on a frame."""
    generator = np.random.default_rng(seed)
    for number in range(count):
        table = str(generator.choice(["diabetes", "linnerud", *LABELLED]))
        known = estimators(table in LABELLED)
        steps = [str(s) for s in generator.choice(list(TRANSFORMERS), int(generator.integers(1, 3)), replace=False)]
        last = str(generator.choice(list(known)))
        frame = bool(number % 2)

        def make(steps: Any = steps, last: str = last, frame: bool = frame, known: Any = known, t: str = table) -> Any:
            changed = make_pipeline(*(TRANSFORMERS[s]() for s in steps))
            columns = [f"c{i}" for i in range({"iris": 4, "linnerud": 3}.get(t, 8))]
            return make_pipeline(framed(changed, columns) if frame else changed, known[last]())

        yield Case(f"{number}:{'frame:' if frame else ''}{'+'.join([*steps, last])}/{table}", make, table, frame)


def feeds_of(session: ort.InferenceSession, rows: Any) -> dict[str, np.ndarray]:
    """The rows as they stand, in the types that the file asks for."""
    kinds = {"tensor(double)": np.float64, "tensor(float)": np.float32, "tensor(int64)": np.int64,
             "tensor(bool)": bool, "tensor(string)": object}  # fmt: skip
    if not isinstance(rows, pd.DataFrame):
        (given,) = session.get_inputs()
        return {given.name: np.asarray(rows).astype(kinds[given.type])}
    given = session.get_inputs()
    return {
        i.name: rows[i.name].to_numpy().astype(kinds[i.type]).reshape(-1, *(1,) * (len(i.shape) - 1)) for i in given
    }


def wrong_rows(model: Any, session: ort.InferenceSession, rows: Any, most: float) -> tuple[int, int, float]:
    """How many rows differ, how many more where scikit-learn itself picks one of equally near neighbours, and by how
    much at most, relative to the largest number of all.
    """
    found: list[Any] = session.run(None, feeds_of(session, rows))
    expected = [model.predict(rows)]
    if hasattr(model, "predict_proba"):
        expected.append(model.predict_proba(rows))
    off, worst = np.zeros(len(rows), bool), 0.0
    for result, wanted in zip(found, expected, strict=False):
        right = np.asarray(wanted)
        given = np.asarray(result).reshape(right.shape)
        if right.dtype.kind in "OUSbi":
            off |= (right.astype(str) != given.astype(str)).reshape(len(rows), -1).any(1)
            continue
        apart = np.abs(given - right).reshape(len(rows), -1) / np.abs(right).max()
        off |= ~(apart <= most).all(1)
        worst = max(worst, float(apart.max()))
    tied = tied_rows(model, lambda: model.predict(rows), len(rows)) if off.any() else off
    return int((off & ~tied).sum()), int((off & tied).sum()), worst


def judge(case: Case, folder: Path, options: dict[str, Any], latency: bool, floats: type) -> tuple[str, str]:
    """("right" | "wrong" | "refused" | "crash" | "unfit", what there is to say)."""
    x, y = table_of(case.table, case.framed, floats)
    train, held, labels, _ = train_test_split(x, y, test_size=0.4, random_state=0)
    if floats is np.float32:
        options = {**options, "sample": train}
    np.random.seed(0)
    try:
        model = case.make().fit(train, labels)
        model.predict(held)
    except Exception as error:
        return "unfit", f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
    output = folder / "out.onnx"
    try:
        report = convert(model, output, **options)
    except OnnxToolError as error:
        return "refused", " ".join(str(error).split())[:300]
    except Exception as error:
        return "crash", f"{type(error).__name__}: {error}"[:300]
    if not report.ok:
        worst = report.comparison.worst if report.comparison else None
        return "refused", f"not equal: {worst.name} max abs {worst.max_abs:.3g} {worst.note or ''}" if worst else ""
    try:
        session = ort.InferenceSession(output)
    except Exception as error:
        return "crash", " ".join(str(error).split())[:300]
    wrong, ties, worst = 0, 0, 0.0
    for rows in (train, held):
        count, tied, apart = wrong_rows(model, session, rows, SUMS[floats])
        wrong, ties, worst = wrong + count, ties + tied, max(worst, apart)
    said = f"{wrong} of {len(x)} rows, off by {worst:.1e}" + (f"; {report.untested}" if report.untested else "")
    said += f"; {report.comparison.verdict}" if report.comparison else ""
    if report.comparison and report.comparison.certificate and report.comparison.verdict != "certified":
        said += f" ({report.comparison.certificate.reason})"
    said += f"; {ties} rows with another of equally near neighbours" if ties else ""
    if latency:
        said += "; " + latencies(model, session, x)
    return ("wrong" if wrong else "right"), said


def latencies(model: Any, session: ort.InferenceSession, x: Any) -> str:
    """Milliseconds of the file, of skl2onnx's in float32 and of the library itself, at 1 and 10,000 rows."""
    from skl2onnx import to_onnx

    try:
        sample = x if isinstance(x, pd.DataFrame) else x.astype(np.float32)
        other = ort.InferenceSession(to_onnx(model, sample[:1], options={"zipmap": False}).SerializeToString())
    except Exception:
        other = None
    told = []
    for count in (1, 10_000):
        places = np.arange(count) % len(x)
        rows = x.iloc[places] if isinstance(x, pd.DataFrame) else x[places]
        times = [fastest(partial(s.run, None, feeds_of(s, rows))) for s in (session, other) if s]
        times.append(fastest(partial(model.predict, rows)))
        told.append(f"{count} rows " + " / ".join(f"{1000 * t:.3f}" for t in times))
    return "ms of the file / skl2onnx's / predict: " + ", ".join(told)


def fastest(work: Callable[[], Any]) -> float:
    """Seconds of the fastest of several runs."""
    best, until = np.inf, time.perf_counter() + 0.5
    while time.perf_counter() < until:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return float(best)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--latency", action="store_true")
    parser.add_argument("--float32", action="store_const", dest="floats", const=np.float32, default=np.float64)
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--no-verify", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    options = {"effort": arguments.effort, "verify_result": not arguments.no_verify}
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for case in (*named(), *drawn(arguments.random, arguments.seed)):
            if arguments.only and not any(word in case.name for word in arguments.only):
                continue
            verdict, said = judge(case, Path(folder), options, arguments.latency, arguments.floats)
            counts[verdict] += 1
            counts["certified"] += "; certified" in said
            print(f"{verdict:8}{case.name:60} {said}", flush=True)
    print(dict(counts))
    return bool(counts["wrong"] or counts["crash"])


if __name__ == "__main__":
    sys.exit(main())
