"""Native files of XGBoost, LightGBM and CatBoost, and their estimators inside pipelines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from onnxtool.conversion.boosting.load import is_whole
from onnxtool.conversion.convert import convert, open_source
from onnxtool.conversion.replay import replay
from onnxtool.conversion.tensorflow.environment import quiet
from onnxtool.errors import InputError, UsageError
from onnxtool.options.convert import ConvertOptions
from onnxtool.runtime.runner import OnnxRunner

with quiet():
    import catboost
    import lightgbm
    import xgboost

Arrays = dict[str, np.ndarray]
QUIET: dict[str, dict[str, Any]] = {
    "xgboost": {"n_jobs": 1},
    "lightgbm": {"verbose": -1, "n_jobs": 1},
    "catboost": {"verbose": 0, "allow_writing_files": False, "thread_count": 1},
}
CLASSIFIERS = {
    "xgboost": xgboost.XGBClassifier,
    "lightgbm": lightgbm.LGBMClassifier,
    "catboost": catboost.CatBoostClassifier,
}
REGRESSORS = {
    "xgboost": xgboost.XGBRegressor,
    "lightgbm": lightgbm.LGBMRegressor,
    "catboost": catboost.CatBoostRegressor,
}
FILES = [
    ("xgboost", "model.json"),
    ("xgboost", "model.ubj"),
    ("lightgbm", "model.txt"),
    ("catboost", "model.cbm"),
    ("catboost", "model.json"),
]


@pytest.fixture(scope="module")
def data() -> Arrays:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 5)).astype(np.float32)
    return {
        "x": x,
        "two": (x[:, 0] + x[:, 1] > 0).astype(np.int64),
        "three": np.digitize(x[:, 0], [-0.5, 0.5]),
        "number": x[:, 0] * 3 + x[:, 2],
        "rows": generator.normal(size=(60, 5)).astype(np.float32),
    }


def fit(kind: str, data: Arrays, target: str) -> Any:
    family = REGRESSORS if target == "number" else CLASSIFIERS
    with quiet():
        return family[kind](n_estimators=6, max_depth=3, **QUIET[kind]).fit(data["x"], data[target])


def save(model: Any, path: Path) -> Path:
    if isinstance(model, lightgbm.LGBMModel):
        model.booster_.save_model(path)
    elif "catboost" in type(model).__module__:
        model.save_model(str(path), format=path.suffix[1:])
    else:
        model.save_model(path)
    return path


@pytest.mark.parametrize("target", ["two", "three", "number"])
@pytest.mark.parametrize(("kind", "name"), FILES)
def test_native_files_give_what_their_package_gives(
    data: Arrays, tmp_path: Path, kind: str, name: str, target: str
) -> None:
    model = fit(kind, data, target)
    report = convert(save(model, tmp_path / name), tmp_path / "out.onnx")
    assert report.ok
    assert report.form.lower().startswith(kind)
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"X": data["rows"]})
    with quiet():
        if target == "number":
            expected = np.asarray(model.predict(data["rows"])).reshape(-1, 1)
            np.testing.assert_allclose(found["prediction"], expected, rtol=1e-4, atol=1e-5)
        else:
            chances = model.predict_proba(data["rows"])
            np.testing.assert_allclose(found["probabilities"], chances, rtol=1e-4, atol=1e-5)
            assert found["label"].tolist() == np.asarray(model.predict(data["rows"])).reshape(-1).tolist()


@pytest.mark.parametrize(("kind", "name"), [FILES[0], FILES[2], FILES[3]])
def test_zipmap_gives_maps(data: Arrays, tmp_path: Path, kind: str, name: str) -> None:
    path = save(fit(kind, data, "two"), tmp_path / name)
    report = convert(path, tmp_path / "out.onnx", zipmap=True)
    assert report.ok
    (row,) = OnnxRunner.open(tmp_path / "out.onnx").run({"X": data["rows"][:1]})["probabilities"]
    assert set(row) == {0, 1}
    assert sum(row.values()) == pytest.approx(1)


def test_text_labels_of_catboost_are_kept(data: Arrays, tmp_path: Path) -> None:
    words = np.array(["low", "mid", "high"])[data["three"]]
    model = catboost.CatBoostClassifier(iterations=5, **QUIET["catboost"]).fit(data["x"], words)
    report = convert(save(model, tmp_path / "model.cbm"), tmp_path / "out.onnx")
    assert report.ok
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"X": data["rows"]})["label"]
    assert found.tolist() == model.predict(data["rows"]).reshape(-1).tolist()


@pytest.mark.parametrize("target", ["two", "number"])
@pytest.mark.parametrize("kind", list(CLASSIFIERS))
def test_estimators_convert_as_steps_of_a_pipeline(data: Arrays, tmp_path: Path, kind: str, target: str) -> None:
    family = REGRESSORS if target == "number" else CLASSIFIERS
    model = make_pipeline(StandardScaler(), family[kind](n_estimators=5, max_depth=3, **QUIET[kind]))
    with quiet():
        model.fit(data["x"], data[target])
    if kind == "catboost":
        joblib.dump(model, tmp_path / "model.joblib")
        report = convert(tmp_path / "model.joblib", tmp_path / "out.onnx", trust=True)
    else:
        skops.io.dump(model, tmp_path / "model.skops")
        report = convert(tmp_path / "model.skops", tmp_path / "out.onnx")
    assert report.ok
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"X": data["rows"]})
    name, method = ("prediction", "predict") if target == "number" else ("probabilities", "predict_proba")
    with quiet():
        expected = np.asarray(getattr(model, method)(data["rows"]))
    np.testing.assert_allclose(found[name], expected.reshape(found[name].shape), rtol=1e-3, atol=1e-4)


def test_random_inputs_lie_where_the_thresholds_are(data: Arrays, tmp_path: Path) -> None:
    model = xgboost.XGBRegressor(n_estimators=3).fit(data["x"] * 100 + 5000, data["number"])
    path = save(model, tmp_path / "model.json")
    report = convert(path, tmp_path / "out.onnx")
    assert report.ok
    assert report.comparison is not None
    assert report.comparison.outputs[0].total == 8
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"X": data["rows"] * 100 + 5000})["prediction"]
    assert len(np.unique(found)) > 10


@pytest.mark.parametrize(("kind", "name"), FILES)
def test_a_cut_off_file_is_an_input_error(data: Arrays, tmp_path: Path, kind: str, name: str) -> None:
    path = save(fit(kind, data, "number"), tmp_path / name)
    path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2])
    with pytest.raises(InputError):
        open_source(path)


def test_ubjson_is_whole_only_in_full(data: Arrays, tmp_path: Path) -> None:
    content = save(fit("xgboost", data, "number"), tmp_path / "model.ubj").read_bytes()
    assert is_whole(content)
    assert not any(is_whole(content[:length]) for length in range(0, len(content), 97))
    assert not is_whole(content + b"Z")
    assert not is_whole(b"[" * 1000)


def test_categorical_features_of_catboost_are_refused_in_words(tmp_path: Path) -> None:
    from onnxtool.errors import UnsupportedError

    rows = [["a", 1.0], ["b", 2.0], ["a", 3.0], ["c", 4.0]] * 5
    model = catboost.CatBoostRegressor(iterations=2, cat_features=[0], **QUIET["catboost"]).fit(
        rows, [1.0, 2, 3, 4] * 5
    )
    with pytest.raises(UnsupportedError, match="categorical"):
        open_source(save(model, tmp_path / "model.cbm"))


@pytest.mark.parametrize("labels", [(False, True), (0.0, 1.0), (-1, 1), (3, 1000)])
@pytest.mark.parametrize("kind", ["CatBoostClassifier", "LogisticRegression"])
def test_labels_that_are_no_places(kind: str, labels: tuple[Any, Any], tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32)
    if kind == "CatBoostClassifier":
        catboost = pytest.importorskip("catboost")
        model = catboost.CatBoostClassifier(iterations=3, verbose=0, allow_writing_files=False)
    else:
        model = pytest.importorskip("sklearn.linear_model").LogisticRegression()
    model.fit(rows, np.asarray(labels)[(rows[:, 0] > 0).astype(int)])
    report = convert(model, tmp_path / "out.onnx", effort="quick")
    assert report.ok
    assert any("labels are integers" in n for n in report.notes) is (
        not isinstance(labels[1], int) or labels[1] is True
    )
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    found = runner.run({runner.inputs[0].name: rows})["label"]
    np.testing.assert_array_equal(found, np.asarray(model.predict(rows)).astype(np.int64))


FIRST = """
import sys
import lightgbm, numpy as np, onnxtool
x = np.random.default_rng(0).normal(size=(300, 5))
lightgbm.train({"verbose": -1, "num_threads": 1}, lightgbm.Dataset(x, x[:, 0] * 2), 20).save_model("model.txt")
sys.exit(not onnxtool.convert("model.txt", "model.onnx").ok)
"""


def test_thresholds_are_rounded_down_in_the_first_conversion_of_a_process_too(tmp_path: Path) -> None:
    """The exporter's modules are loaded by its first use."""
    done = subprocess.run([sys.executable, "-c", FIRST], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("make", ["pipeline", "booster"])
def test_what_a_factory_fits_is_converted_and_proven_again(make: str, tmp_path: Path) -> None:
    code = """
import numpy as np, xgboost
from sklearn.linear_model import LogisticRegression
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
x = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
y = (x[:, 0] > 0).astype(int)
def pipeline():
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
def booster():
    return xgboost.train({"objective": "binary:logistic", "max_depth": 2, "nthread": 1}, xgboost.DMatrix(x, y), 3)
"""
    (tmp_path / "fit.py").write_text(code)
    factory = f"{tmp_path / 'fit.py'}:{make}"
    assert convert(None, tmp_path / "m.onnx", factory=factory).ok
    assert replay(tmp_path / "m.onnx", None, ConvertOptions(factory=factory)).ok


@pytest.mark.parametrize(
    ("shapes", "match"),
    [
        ({"a": ("batch", 2)}, "fitted on 1 column, and takes a:batch,1 alone"),
        ({"a": ("batch", "width")}, "fitted on 1 column"),
        ({"a": (4, 1)}, "columns of one table, of 4 and batch rows"),
    ],
)
def test_shapes_that_a_table_cannot_have_are_refused(shapes: dict[str, tuple[int | str, ...]], match: str) -> None:
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": list("xyxy")})
    columns = ColumnTransformer([("a", StandardScaler(), ["a"]), ("b", OneHotEncoder(), ["b"])])
    model = make_pipeline(columns, LogisticRegression()).fit(table, [0, 1, 0, 1])
    with pytest.raises(UsageError, match=match):
        convert(model, input_shapes=shapes)
    assert convert(model, input_shapes={"a": (4, 1), "b": (4, 1)}).ok
