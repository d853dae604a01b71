"""CatBoost on columns of categories: the file looks up what each category, and each combination, has learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import VotingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import onnxtool
from onnxtool.errors import InputError, UnsupportedError
from onnxtool.runtime.runner import OnnxRunner
from tests.conversion.sklearn.converted_model import run_converted

catboost = pytest.importorskip("catboost")

RANDOM = np.random.default_rng(0)
FRAME = pandas.DataFrame(
    {
        "size": RANDOM.normal(size=240).round(2),
        "town": RANDOM.choice(["Rome", "Zürich", "Bern", " x", "42"], 240),
        "zone": RANDOM.choice([7, -3, 20, 5], 240),
        "new": RANDOM.random(240) < 0.5,
    }
)
TEXTS = ["town", "zone", "new"]
TARGET = FRAME["size"] * (FRAME["zone"] == 7) + 2.0 * (FRAME["town"] == "Bern") * FRAME["new"]
QUIET = {"iterations": 25, "verbose": 0, "allow_writing_files": False, "random_seed": 0, "thread_count": 1}
# With categories that nothing was learned from, and numbers on both sides of the borders.
OTHERS = FRAME.sample(frac=1, random_state=1).reset_index(drop=True)
OTHERS.loc[::5, "town"] = "Lima"
OTHERS.loc[::7, "zone"] = 2**40
OTHERS.loc[::3, "size"] = np.nan


def columns(frame: pandas.DataFrame) -> list[np.ndarray]:
    kinds = (np.float64, object, np.int64, np.int64)
    return [frame[name].to_numpy().astype(kind)[:, None] for name, kind in zip(frame.columns, kinds, strict=True)]


@pytest.mark.parametrize(
    "options",
    [
        {"max_ctr_complexity": 3},
        {"max_ctr_complexity": 3, "nan_mode": "Max"},
        {"grow_policy": "Lossguide", "simple_ctr": ["Borders:TargetBorderCount=3", "Counter:Prior=0.3"]},
        {"simple_ctr": "Buckets", "combinations_ctr": "BinarizedTargetMeanValue"},
        {"one_hot_max_size": 10},
    ],
    ids=",".join,
)
def test_categories_and_their_combinations_are_looked_up(options: dict[str, Any], tmp_path: Path) -> None:
    holed = FRAME.assign(size=FRAME["size"].where(FRAME.index % 4 > 0))
    model = catboost.CatBoostRegressor(**QUIET, **options).fit(holed, TARGET, cat_features=TEXTS)
    (found,) = run_converted(model, tmp_path, *columns(OTHERS), prove="nan_mode" in options, sample=holed)
    np.testing.assert_allclose(found[:, 0], model.predict(OTHERS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("suffix", ["cbm", "json"])
def test_a_native_file_takes_its_categories_from_a_table(suffix: str, tmp_path: Path) -> None:
    names = np.array(["low", "mid", "high"])[np.digitize(TARGET, [-0.1, 0.5])]
    model = catboost.CatBoostClassifier(**QUIET).fit(FRAME, names, cat_features=TEXTS)
    pool = catboost.Pool(FRAME, cat_features=TEXTS)
    model.save_model(str(tmp_path / f"m.{suffix}"), format=suffix, pool=pool)
    FRAME.to_csv(tmp_path / "train.csv", index=False)
    report = onnxtool.convert(
        tmp_path / f"m.{suffix}", tmp_path / "m.onnx", sample=tmp_path / "train.csv", verify_result=False
    )
    assert report.ok
    runner = OnnxRunner.open(tmp_path / "m.onnx")
    assert [str(s.dtype) for s in runner.inputs] == ["float64", "string", "int64", "int64"]
    label, chances = runner.run(dict(zip(OTHERS.columns, columns(OTHERS), strict=True))).values()
    np.testing.assert_allclose(chances, model.predict_proba(OTHERS), atol=1e-6)
    assert label.tolist() == model.predict(OTHERS).tolist()


def test_a_table_without_all_categories_is_refused_and_so_is_none(tmp_path: Path) -> None:
    model = catboost.CatBoostRegressor(**QUIET).fit(FRAME, TARGET, cat_features=TEXTS)
    with pytest.raises(UnsupportedError, match="sample lacks categories of column 'town'"):
        onnxtool.convert(model, tmp_path / "m.onnx", sample=FRAME[FRAME["town"] != "Bern"])
    with pytest.raises(UnsupportedError, match=r"hashes of its categories.*--sample"):
        onnxtool.convert(model, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="'town' has fractions or gaps"):
        onnxtool.convert(model, tmp_path / "m.onnx", sample=FRAME.assign(town=0.5))
    with pytest.raises(InputError, match="no column 'town'"):
        onnxtool.convert(model, tmp_path / "m.onnx", sample=FRAME.drop(columns="town"))


def test_categories_among_votes_are_looked_up(tmp_path: Path) -> None:
    boosted = catboost.CatBoostRegressor(**QUIET, cat_features=("town", "zone", "new"))  # a list cannot be cloned
    numbers = make_pipeline(make_column_transformer((SimpleImputer(), ["size"])), Ridge())
    model = VotingRegressor([("a", boosted), ("b", numbers)]).fit(FRAME, TARGET)
    (found,) = run_converted(model, tmp_path, *columns(OTHERS), sample=FRAME)
    np.testing.assert_allclose(found[:, 0], model.predict(OTHERS), rtol=1e-5, atol=1e-5)
    with pytest.raises(UnsupportedError, match="--sample"):
        onnxtool.convert(model, tmp_path / "out.onnx")
