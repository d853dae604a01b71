"""XGBoost behind a step that gives a sparse matrix, as encoders do: it takes what is not stored there for missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.model import SklearnModel
from onnxtool.conversion.sklearn.schema import last_step
from onnxtool.runtime.feeds import random_feeds


def missing_zeros(rows: np.ndarray) -> np.ndarray:
    """A matrix with NaN in the place of zeros, float64."""
    return np.where(rows == 0, np.nan, rows)


def with_missing_zeros(estimator: Estimator, model: SklearnModel) -> Any:
    """A pipeline that says aloud what an XGBoost at its end does with zeros, where it is given a sparse matrix.

    Args:
        estimator: as skl2onnx is to be given it.
        model: whose steps are asked what they give.

    Returns:
        A pipeline with one step more; any other estimator as it is.
    """
    steps, booster = list(getattr(estimator, "steps", ())), last_step(estimator)
    if len(steps) < 2 or steps[-1][1] is not booster or not type(booster).__module__.startswith("xgboost."):
        return estimator
    from scipy.sparse import issparse
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer

    try:
        rows = model.table(random_feeds(model.inputs, batch=2, domains=model.feeds_hint))
        sparse = issparse(model.estimator[:-1].transform(rows))  # type: ignore[index]
    except Exception:  # it may forbid such rows; the comparison will say what is wrong
        sparse = False
    if not sparse:
        return estimator
    width = np.zeros((1, booster.n_features_in_))
    return Pipeline([*steps[:-1], ("missing_zeros", FunctionTransformer(missing_zeros).fit(width)), steps[-1]])
