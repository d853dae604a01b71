"""Each kind of scikit-learn's estimators alone: nodes of its file, and its latency beside the library's own.

    python benchmarks/table_steps.py [--rows 1500] [--columns 12] [--only NAME ...]

Data are random rows, of small integers for encoders and with gaps for imputers. File and library run in turns, one
thread each; the least time of each counts. Prints nodes, both times for one row and for all rows, and file / library.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from sklearn import (
    calibration,
    discriminant_analysis,
    ensemble,
    gaussian_process,
    impute,
    kernel_approximation,
    linear_model,
    mixture,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    svm,
)
from sklearn.cluster import KMeans

from onnxtool.conversion.convert import convert

ENCODERS: dict[str, Callable[[], Any]] = {
    "OneHotEncoder": lambda: preprocessing.OneHotEncoder(sparse_output=False),
    "OrdinalEncoder": preprocessing.OrdinalEncoder,
    "TargetEncoder": preprocessing.TargetEncoder,
    "CategoricalNB": naive_bayes.CategoricalNB,
}
IMPUTERS: dict[str, Callable[[], Any]] = {
    "SimpleImputer": lambda: impute.SimpleImputer(add_indicator=True),
    "KNNImputer": impute.KNNImputer,
}
OTHERS: dict[str, Callable[[], Any]] = {
    "KBinsDiscretizer": lambda: preprocessing.KBinsDiscretizer(encode="onehot-dense"),
    "PowerTransformer": preprocessing.PowerTransformer,
    "QuantileTransformer": preprocessing.QuantileTransformer,
    "QuantileTransformer, normal": lambda: preprocessing.QuantileTransformer(output_distribution="normal"),
    "SplineTransformer": preprocessing.SplineTransformer,
    "PolynomialFeatures": preprocessing.PolynomialFeatures,
    "Nystroem": lambda: kernel_approximation.Nystroem(n_components=50),
    "RandomForestClassifier": lambda: ensemble.RandomForestClassifier(50),
    "GradientBoostingClassifier": lambda: ensemble.GradientBoostingClassifier(n_estimators=30),
    "HistGradientBoostingClassifier": lambda: ensemble.HistGradientBoostingClassifier(max_iter=30),
    "AdaBoostClassifier": lambda: ensemble.AdaBoostClassifier(n_estimators=30),
    "IsolationForest": lambda: ensemble.IsolationForest(n_estimators=50),
    "SVC": svm.SVC,
    "KNeighborsClassifier": neighbors.KNeighborsClassifier,
    "LocalOutlierFactor": lambda: neighbors.LocalOutlierFactor(novelty=True),
    "GaussianProcessRegressor": gaussian_process.GaussianProcessRegressor,
    "GaussianNB": naive_bayes.GaussianNB,
    "GaussianMixture": lambda: mixture.GaussianMixture(3),
    "QuadraticDiscriminantAnalysis": discriminant_analysis.QuadraticDiscriminantAnalysis,
    "KMeans": lambda: KMeans(8, n_init=1),
    "MLPClassifier": lambda: neural_network.MLPClassifier(max_iter=30),
    "CalibratedClassifierCV, isotonic": lambda: calibration.CalibratedClassifierCV(svm.LinearSVC(), method="isotonic"),
    "Ridge": linear_model.Ridge,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--columns", type=int, default=12)
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    generator = np.random.default_rng(0)
    numbers = generator.normal(size=(arguments.rows, arguments.columns))
    gaps = np.where(generator.random(numbers.shape) < 0.05, np.nan, numbers)
    codes = generator.integers(0, 9, numbers.shape).astype(float)
    labels = (numbers[:, 0] + numbers[:, 1] > numbers[:, 2]).astype(int) + (numbers[:, 3] > 1)
    print(
        f"| estimator | nodes | 1 row, file / library, ms | {arguments.rows:,} rows | ratios |\n|---|---|---|---|---|"
    )
    for kinds, rows in ((ENCODERS, codes), (IMPUTERS, gaps), (OTHERS, numbers)):
        for name, make in kinds.items():
            if not arguments.only or any(word in name for word in arguments.only):
                print(_measured(name, make().fit(rows, labels), rows), flush=True)
    return 0


def _measured(name: str, model: Any, rows: np.ndarray) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.onnx"
        convert(model, path, effort="quick", verify_result=False)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(path, options)
        nodes = len(onnx.load(path).graph.node)
    (given,) = session.get_inputs()
    kind = {"tensor(double)": np.float64, "tensor(float)": np.float32, "tensor(int64)": np.int64}[given.type]
    own = next(getattr(model, n) for n in ("predict_proba", "predict", "transform") if hasattr(model, n))
    cells, ratios = [], []
    for part, turns in ((rows[:1], 100), (rows, 5)):
        feeds = {given.name: part.astype(kind)}
        file, library = _least(turns, (lambda f=feeds: session.run(None, f), lambda p=part: own(p)))
        cells.append(f"{1e3 * file:.3f} / {1e3 * library:.3f}")
        ratios.append(f"{file / library:.2f}")
    return f"| {name} | {nodes} | {' | '.join(cells)} | {', '.join(ratios)} |"


def _least(turns: int, works: tuple[Callable[[], Any], ...]) -> list[float]:
    """Seconds, the least of each, in turns."""
    least = [float("inf")] * len(works)
    for _ in range(turns):
        for place, work in enumerate(works):
            start = time.perf_counter()
            work()
            least[place] = min(least[place], time.perf_counter() - start)
    return least


if __name__ == "__main__":
    sys.exit(main())
