"""scikit-learn files: trusted types, pickles with and without trust, names, labels, schemas."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import skops.io
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from onnxtool.conversion.convert import convert, open_source
from onnxtool.conversion.sklearn.load import pickled_packages
from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, MissingExtraError, UnsafeError
from onnxtool.runtime.runner import OnnxRunner
from tests.conftest import Result


class Stranger(StandardScaler):
    """A type that no package brings."""


class Bomb:
    """Unpickling one creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(5)
    x = generator.normal(size=(120, 4)).astype(np.float32)
    return x, np.where(x[:, 0] + x[:, 1] > 0, "yes", "no")


@pytest.fixture(scope="module")
def pipeline(rows: tuple[np.ndarray, np.ndarray]) -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(*rows)


@pytest.mark.parametrize("name", ["digits_forest.skops", "digits_forest.joblib"])
def test_the_digits_forest_is_as_accurate_as_the_original(fixtures: Path, tmp_path: Path, name: str) -> None:
    report = convert(fixtures / name, tmp_path / "out.onnx", trust=name.endswith("joblib"))
    assert report.ok
    assert report.comparison is not None
    assert sorted(run["X"][0] for run in report.comparison.runs) == [1, 2, 5]
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    assert [str(s.info()) for s in runner.outputs] == ["label: int64[batch]", "probabilities: float64[batch, 10]"]
    with np.load(fixtures / "eval_forest.npz") as data:
        found = runner.run({"X": data["pixels"]})
        assert int((found["label"] == data["label"]).sum()) in (686, 687, 688)  # the original: 687
        original = joblib.load(fixtures / "digits_forest.joblib").predict(data["pixels"].astype(np.float64))
        np.testing.assert_array_equal(found["label"], original)


@pytest.mark.parametrize("name", ["model.pkl", "model.joblib", "model.bin"])
def test_a_pickle_is_refused_without_trust_and_not_unpickled(tmp_path: Path, name: str) -> None:
    with open(tmp_path / name, "wb") as file:
        (joblib if name.endswith("joblib") else pickle).dump(Bomb(tmp_path / "exploded"), file)
    with pytest.raises(UnsafeError, match=r"pathlib.*--trust"):
        convert(tmp_path / name, tmp_path / "out.onnx")
    assert not (tmp_path / "exploded").exists()


def test_a_pickle_is_refused_before_anything_is_said_to_be_missing(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxtool.conversion.sklearn import adapter

    joblib.dump(pipeline, tmp_path / "model.joblib")
    monkeypatch.setattr(adapter, "find_spec", lambda name: None)
    with pytest.raises(UnsafeError):
        convert(tmp_path / "model.joblib", tmp_path / "out.onnx")
    with pytest.raises(MissingExtraError, match="scikit-learn"):
        convert(tmp_path / "model.joblib", tmp_path / "out.onnx", trust=True)


@pytest.mark.parametrize("compress", [0, ("zlib", 3), ("gzip", 3), ("bz2", 3), ("xz", 3), ("lzma", 3)])
def test_every_packing_of_joblib_is_recognised(pipeline: Pipeline, tmp_path: Path, compress: Any) -> None:
    path = tmp_path / "model.dat"
    joblib.dump(pipeline, path, compress=compress)
    assert "sklearn" in pickled_packages(Source(path))
    with pytest.raises(UnsafeError, match="sklearn"):
        open_source(path)
    assert "pickle trusted" in open_source(path, trust=True).notes[0]


def test_string_labels_are_kept(pipeline: Pipeline, rows: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    skops.io.dump(pipeline, tmp_path / "model.skops")
    assert convert(tmp_path / "model.skops", tmp_path / "out.onnx").ok
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"X": rows[0]})
    assert found["label"].tolist() == pipeline.predict(rows[0]).tolist()
    np.testing.assert_allclose(found["probabilities"], pipeline.predict_proba(rows[0]), rtol=1e-4, atol=1e-6)


def test_zipmap_gives_a_map_for_each_row(
    pipeline: Pipeline, rows: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    skops.io.dump(pipeline, tmp_path / "model.skops")
    report = convert(tmp_path / "model.skops", tmp_path / "out.onnx", zipmap=True)
    assert report.ok and str(report.outputs[1]) == "probabilities: sequence"
    assert report.comparison is not None
    assert {o.name for o in report.comparison.outputs} == {"label", "probabilities[no]", "probabilities[yes]"}
    first = OnnxRunner.open(tmp_path / "out.onnx").run({"X": rows[0][:1]})["probabilities"][0]
    np.testing.assert_allclose([first["no"], first["yes"]], pipeline.predict_proba(rows[0][:1])[0], rtol=1e-4)


def test_types_of_other_packages_are_listed_and_refused(rows: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    skops.io.dump(Stranger().fit(rows[0]), tmp_path / "model.skops")
    with pytest.raises(UnsafeError, match=r"Stranger.*--trust"):
        convert(tmp_path / "model.skops", tmp_path / "out.onnx")


def test_functions_of_known_packages_are_refused_too(tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]) -> None:
    from sklearn.preprocessing import FunctionTransformer

    skops.io.dump(FunctionTransformer(np.testing.assert_equal).fit(rows[0]), tmp_path / "model.skops")
    with pytest.raises(UnsafeError, match="assert_equal"):
        open_source(tmp_path / "model.skops")


def test_an_estimator_that_is_not_fitted_is_an_input_error(tmp_path: Path) -> None:
    skops.io.dump(LogisticRegression(), tmp_path / "model.skops")
    with pytest.raises(InputError, match="not fitted"):
        open_source(tmp_path / "model.skops")


def test_something_else_in_a_pickle_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(pickle.dumps({"weights": [1, 2]}))
    with pytest.raises(InputError, match="holds a dict"):
        open_source(tmp_path / "model.pkl", trust=True)


def test_a_cut_off_pickle_is_an_input_error(fixtures: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.joblib"
    cut.write_bytes((fixtures / "digits_forest.joblib").read_bytes()[:5000])
    with pytest.raises(InputError, match="cannot be unpickled"):
        open_source(cut, trust=True)


def test_columns_of_numbers_by_position_stay_one_matrix(rows: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    columns = ColumnTransformer([("scale", StandardScaler(), [0, 1])], remainder="passthrough")
    model = make_pipeline(columns, LogisticRegression()).fit(*rows)
    skops.io.dump(model, tmp_path / "model.skops")
    report = convert(tmp_path / "model.skops", tmp_path / "out.onnx")
    assert report.ok
    assert [str(i) for i in report.inputs] == ["X: float64[batch, 4]"]


def test_without_scikit_learn_the_extra_is_named(
    fixtures: Path, tmp_path: Path, onnxtool: Callable[..., Result]
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['sklearn'] = None\n")
    result = onnxtool(
        "convert", fixtures / "digits_forest.skops", "-o", tmp_path / "out.onnx", env={"PYTHONPATH": str(tmp_path)}
    )
    assert result.returncode == 4
    assert 'pip install ".[sklearn]"' in result.stderr
    assert "Traceback" not in result.stderr


def test_the_command_stays_quiet(fixtures: Path, tmp_path: Path, onnxtool: Callable[..., Result]) -> None:
    result = onnxtool("convert", fixtures / "digits_forest.skops", "-o", tmp_path / "out.onnx")
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stdout + result.stderr
    refused = onnxtool("convert", fixtures / "digits_forest.joblib", "-o", tmp_path / "other.onnx")
    assert refused.returncode == 5
    assert "--trust" in refused.stderr
    assert not (tmp_path / "other.onnx").exists()
