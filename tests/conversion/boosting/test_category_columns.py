"""LightGBM on frames with columns of categories: the ONNX file takes the categories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.model_selection import GridSearchCV

from onnxtool.conversion.boosting.category_columns import category_columns
from tests.conversion.sklearn.converted_model import run_converted

lightgbm = pytest.importorskip("lightgbm")
RANDOM = np.random.default_rng(0)
TOWNS = RANDOM.choice(["Rome", "Oslo", "Bern"], 300)
ZONES = RANDOM.choice([7, 3, 20], 300)
FRAME = pandas.DataFrame({"size": RANDOM.normal(size=300), "town": pandas.Categorical(TOWNS), "far": TOWNS == "Oslo"})
FRAME["zone"] = pandas.Categorical(ZONES)
TARGET = (FRAME["size"] + 2.0 * (TOWNS == "Bern") - (ZONES == 3) > 0.5).to_numpy().astype(int)


@pytest.mark.parametrize("searched", [False, True])
def test_categories_are_looked_up_and_new_or_missing_ones_are_missing_values(searched: bool, tmp_path: Path) -> None:
    model: Any = lightgbm.LGBMClassifier(n_estimators=15, verbose=-1)
    model = GridSearchCV(model, {"num_leaves": [7]}, cv=2) if searched else model
    frame = FRAME.copy()
    frame.loc[:40, "town"] = np.nan
    model.fit(frame, TARGET)
    frame["town"] = frame["town"].cat.add_categories("Lima")
    frame.loc[30:60, "town"] = "Lima"
    texts = frame["town"].astype(object).fillna("").to_numpy()
    columns = (frame["size"].to_numpy(), texts, frame["far"].to_numpy(float), ZONES)
    label, chances = run_converted(model, tmp_path, *(c.reshape(-1, 1) for c in columns), prove=True)
    np.testing.assert_allclose(chances, model.predict_proba(frame), atol=1e-6)
    assert label.tolist() == model.predict(frame).tolist()


@pytest.mark.parametrize(
    "towns",
    [
        pandas.Categorical(TOWNS, ordered=True),
        pandas.Categorical(ZONES, categories=[20, 3, 7]),
        pandas.Categorical(ZONES + 0.5),
    ],
    ids=["ordered", "not sorted", "fractions"],
)
def test_other_categories_stay_numbers(towns: Any) -> None:
    frame = FRAME[["size"]].assign(town=towns)
    assert category_columns(lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(frame, TARGET)) == {}
    assert category_columns(lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(FRAME, TARGET)) == {
        "town": ["Bern", "Oslo", "Rome"],
        "zone": [3, 7, 20],
    }
