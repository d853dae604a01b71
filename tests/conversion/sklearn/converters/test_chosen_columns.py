"""A ColumnTransformer takes the columns that it was told, in their order, wherever it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.compose import make_column_transformer
from sklearn.feature_selection import SequentialFeatureSelector
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from tests.conversion.sklearn.converted_model import run_converted

X = np.random.default_rng(0).normal([0, 10, 20], size=(40, 3))


@pytest.mark.parametrize(
    "parts",
    [
        [("passthrough", [2, 0, 1])],
        [(MinMaxScaler(), [1, 0, 2])],
        [("passthrough", [1, 1, 0])],
        [(StandardScaler(), [-1, 0])],
        [(StandardScaler(), [True, False, True]), ("passthrough", [1])],
        [(StandardScaler(), slice(1, None)), (MinMaxScaler(), slice(0, 1))],
    ],
    ids=["turned", "turned and scaled", "twice", "from the end", "mask", "slices"],
)
@pytest.mark.parametrize("behind", [False, True], ids=["first", "behind another"])
def test_columns_are_those_that_were_chosen(parts: list[Any], behind: bool, tmp_path: Path) -> None:
    chosen = make_column_transformer(*parts)
    model = (make_pipeline(StandardScaler(), chosen) if behind else chosen).fit(X)
    (found,) = run_converted(model, tmp_path, X, prove=True)
    np.testing.assert_allclose(found, model.transform(X), rtol=1e-12)


def test_trees_behind_turned_columns(tmp_path: Path) -> None:
    model = make_pipeline(make_column_transformer(("passthrough", [2, 0, 1])), DecisionTreeRegressor(random_state=0))
    model.fit(X, X[:, 0] ** 2)
    (found,) = run_converted(model, tmp_path, X, prove=True)
    np.testing.assert_array_equal(found.ravel(), model.predict(X).astype(np.float32))


def test_columns_that_were_chosen_one_after_another(tmp_path: Path) -> None:
    target = X[:, 2] - X[:, 0]
    model = SequentialFeatureSelector(Ridge(), n_features_to_select=2, cv=2).fit(X, target)
    (found,) = run_converted(model, tmp_path, X)
    np.testing.assert_array_equal(found, X[:, [0, 2]])
