"""Every classifier, regressor, transformer and clusterer of scikit-learn: converted and equal, or a clear reason.

    python benchmarks/convert_matrix_sklearn.py [--only NAME ...]

Each estimator is fitted on small seeded data (two and three classes, positive counts where it asks for them),
saved with skops, and converted by the real pipeline: recognition, export, comparison. Prints one line for each and
the counts. Exit 1 when an estimator crashes the tool or is written though it differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.conversion.convert import convert
from onnxtool.errors import OnnxToolError
from onnxtool.runtime.runner import OnnxRunner

ROWS, FEATURES = 80, 5


def datasets() -> dict[str, tuple[Any, Any]]:
    """Name -> (X, y)."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(ROWS, FEATURES))
    three = np.digitize(x[:, 0] + 0.3 * x[:, 1], [-0.4, 0.4])
    counts = generator.integers(0, 4, size=(ROWS, FEATURES)).astype(float)
    return {
        "two classes": (x, (x[:, 0] > 0).astype(int)),
        "three classes": (x, three),
        "text labels": (x, np.array(["low", "mid", "high"])[three]),
        "numbers": (x, 2 * x[:, 0] - x[:, 1] + 0.1),
        "positive": (np.abs(x) + 0.1, np.abs(x[:, 0]) + 0.5),
        "counts": (counts, (counts[:, 0] > 1).astype(int)),
        "two targets": (x, x[:, :2] * 2),
        "two labels": (x, (x[:, :2] > 0).astype(int)),
        "text": (["good day sunshine", "bad night", "fine day", "awful rainy night"] * 20, [1, 0, 1, 0] * 20),
        "square": (np.cov(x), None),
    }


def make(name: str, kind: type) -> Any:
    """An instance, with the members that a meta-estimator wants."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    members: dict[str, Any] = {
        "ColumnTransformer": {"transformers": [("pca", PCA(2), [0, 1, 2])], "remainder": "passthrough"},
        "FeatureUnion": {"transformer_list": [("pca", PCA(2)), ("other", PCA(1))]},
        "Pipeline": {"steps": [("pca", PCA(2)), ("linear", LogisticRegression())]},
        "StackingClassifier": {"estimators": [("a", LogisticRegression()), ("b", DecisionTreeClassifier(max_depth=2))]},
        "StackingRegressor": {"estimators": [("a", Ridge()), ("b", DecisionTreeRegressor(max_depth=2))]},
        "VotingClassifier": {"estimators": [("a", LogisticRegression()), ("b", DecisionTreeClassifier(max_depth=2))]},
        "VotingRegressor": {"estimators": [("a", Ridge()), ("b", DecisionTreeRegressor(max_depth=2))]},
        "GridSearchCV": {"estimator": LogisticRegression(), "param_grid": {"C": [1.0]}},
        "RandomizedSearchCV": {"estimator": LogisticRegression(), "param_distributions": {"C": [1.0]}, "n_iter": 1},
        "SparseCoder": {"dictionary": np.eye(FEATURES)},
        "GaussianRandomProjection": {"n_components": 3},
        "SparseRandomProjection": {"n_components": 3},
        "LocalOutlierFactor": {"novelty": True},
        "GenericUnivariateSelect": {"mode": "k_best", "param": 2},
        "SelectPercentile": {"percentile": 50},
        "SelectKBest": {"k": 2},
        "VarianceThreshold": {},
    }
    if name in members:
        return kind(**members[name])
    try:
        return kind()
    except TypeError:
        member = Ridge() if "Regress" in name or name == "TransformedTargetRegressor" else LogisticRegression()
        for keyword in ("estimator", "base_estimator"):
            try:
                return kind(**{keyword: member})
            except TypeError:
                continue
        raise


def fitted(name: str, kind: type) -> Iterator[tuple[str, Any, Any]]:
    """(data set, fitted estimator, X) for each data set of its kind that it takes."""
    from sklearn.base import is_classifier, is_regressor

    sets = datasets()
    model = make(name, kind)
    if is_classifier(model):
        wanted = ["two classes", "three classes", "text labels", "counts", "two labels"]
    elif is_regressor(model):
        wanted = ["numbers", "positive", "two targets"]
    else:
        wanted = ["two classes", "positive", "counts", "text", "square"]
    found = 0
    for title in wanted:
        x, y = sets[title]
        if title == "two labels" and "Multi" not in name and "Chain" not in name and found:
            continue
        if title == "two targets" and found and "Multi" not in name:
            continue
        if title in ("counts", "positive", "text", "square") and found:
            continue
        try:
            yield title, make(name, kind).fit(x, y), x
            found += 1
        except Exception:
            try:
                yield title, make(name, kind).fit(y), x
                found += 1
            except Exception:  # this estimator does not take this kind of data
                continue


def judge(model: Any, folder: Path) -> tuple[str, str]:
    """("equal" | "differs" | "refused" | "crash", reason)."""
    import joblib

    path, output = folder / "model.joblib", folder / "out.onnx"
    joblib.dump(model, path)
    output.unlink(missing_ok=True)
    try:
        report = convert(path, output, trust=True)
    except OnnxToolError as error:
        return "refused", " ".join(str(error).split()).replace(str(path), "").strip(": ")
    except Exception as error:
        return "crash", f"{type(error).__name__}: {error}"
    if not report.ok:
        worst = report.comparison.worst if report.comparison else None
        return "differs", f"not written: {worst.name} max abs {worst.max_abs:.3g} {worst.note or ''}" if worst else ""
    return second_look(model, output)


def second_look(model: Any, output: Path) -> tuple[str, str]:
    """Hold the written file against the estimator once more, on rows that the conversion has not seen."""
    runner = OnnxRunner.open(output)
    specs = runner.inputs
    if len(specs) != 1 or isinstance(specs[0].dtype, str) or specs[0].shape is None or len(specs[0].shape) != 2:
        return "equal", ""
    width = specs[0].shape[1]
    rows = np.abs(np.random.default_rng(9).normal(size=(40, width if isinstance(width, int) else FEATURES)))
    rows = rows.astype(specs[0].dtype)
    got = runner.run({specs[0].name: rows})
    method = next(
        (
            m
            for n, m in (("probabilities", "predict_proba"), ("prediction", "predict"), ("transformed", "transform"))
            if n in got
        ),
        None,
    )
    if method is None or not hasattr(model, method):
        return "equal", ""
    try:
        expected = getattr(model, method)(rows)
    except Exception:
        return "equal", ""
    expected = expected.toarray() if hasattr(expected, "toarray") else np.asarray(expected)
    name = {"predict_proba": "probabilities", "predict": "prediction", "transform": "transformed"}[method]
    close = np.isclose(np.asarray(got[name], float).reshape(expected.shape), expected, rtol=1e-2, atol=1e-3)
    return ("equal", "") if close.mean() > 0.98 else ("silently differs", f"{name}: {1 - close.mean():.0%} of values")


def main() -> int:
    """Run all; print a line for each and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", help="names of estimators")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    from sklearn.utils import all_estimators

    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in all_estimators():
            if arguments.only and name not in arguments.only:
                continue
            try:
                cases = list(fitted(name, kind))
            except Exception as error:
                cases = []
                print(f"{'not fitted':17} {name:32} {type(error).__name__}: {error}", flush=True)
            if not cases:
                counts["not fitted"] += 1
                continue
            for title, model, _ in cases:
                verdict, reason = judge(model, Path(folder))
                counts[verdict] += 1
                print(f"{verdict:17} {name:32} {title:14} {reason[:160]}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return 1 if counts["crash"] or counts["silently differs"] else 0


if __name__ == "__main__":
    sys.exit(main())
