"""XGBoost takes the zeros of a sparse matrix for missing, and so does its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import issparse
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, StandardScaler

from tests.conversion.sklearn.converted_model import run_converted

xgboost = pytest.importorskip("xgboost")
pandas = pytest.importorskip("pandas")

RANDOM = np.random.default_rng(0)
FRAME = pandas.DataFrame(
    {
        "city": RANDOM.choice(list("abcdefghijkl"), 300),
        "shop": RANDOM.choice(list("mnopqrstuv"), 300),
        "size": RANDOM.normal(size=300),
        "count": RANDOM.integers(0, 3, 300).astype(float),
    }
)
Y = RANDOM.normal(size=300) + 2 * (FRAME["city"] == "a") + FRAME["size"] - FRAME["count"]
TEXTS, NUMBERS = ["city", "shop"], ["size", "count"]


def booster() -> Any:
    return xgboost.XGBRegressor(n_estimators=8, max_depth=3, n_jobs=1)


@pytest.mark.parametrize("numbers", ["passthrough", StandardScaler()], ids=str)
def test_a_frame_with_categories(numbers: Any, tmp_path: Path) -> None:
    head = ColumnTransformer([("texts", OneHotEncoder(handle_unknown="ignore"), TEXTS), ("rest", numbers, NUMBERS)])
    model = make_pipeline(head, booster()).fit(FRAME, Y)
    assert issparse(model[0].transform(FRAME))
    columns = [FRAME[[name]].to_numpy() for name in FRAME]
    (found,) = run_converted(model, tmp_path, *columns, prove=True)
    np.testing.assert_allclose(found[:, 0], model.predict(FRAME), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("encode", ["onehot", "onehot-dense"])
def test_zeros_of_a_dense_matrix_are_numbers(encode: str, tmp_path: Path) -> None:
    bins = KBinsDiscretizer(5, encode=encode, quantile_method="averaged_inverted_cdf")
    rows = FRAME[["size"]].to_numpy()
    model = make_pipeline(bins, booster()).fit(rows, Y)
    (found,) = run_converted(model, tmp_path, rows)
    np.testing.assert_allclose(found[:, 0], model.predict(rows), rtol=1e-5, atol=1e-6)
