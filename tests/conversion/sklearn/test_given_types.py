"""Rows in float32: the file decides as the source, which computes in float32 then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import onnxtool
from onnxtool.conversion.compare_sources import opened_source
from onnxtool.conversion.sklearn.given_types import first_rows, given_types, in_given_type
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.frames import as_table
from onnxtool.runtime.data.table import DataTable, Rows

sklearn = pytest.importorskip("sklearn")
pd = pytest.importorskip("pandas")

from sklearn import datasets  # noqa: E402
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor  # noqa: E402
from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: E402
from sklearn.naive_bayes import GaussianNB  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402
from sklearn.pipeline import Pipeline, make_pipeline  # noqa: E402
from sklearn.preprocessing import (  # noqa: E402
    Binarizer,
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)


def _diabetes() -> tuple[Any, Any]:
    x, y = datasets.load_diabetes(return_X_y=True, as_frame=True)
    return x.astype("float32"), y


def _forest() -> RandomForestRegressor:
    return RandomForestRegressor(20, random_state=0)


def _differing(model: Any, path: Any, rows: Any) -> int:
    found = onnxtool.run(path, data=rows).frame.iloc[:, 0].to_numpy()
    expected = np.asarray(model.predict(rows))
    return int((np.abs(found - expected) > 1e-5 * np.abs(expected).max()).sum())


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler()], ids=str)
@pytest.mark.parametrize("as_array", [False, True])
def test_trees_behind_a_scaler_decide_as_on_rows_of_float32(tmp_path: Any, scaler: Any, as_array: bool) -> None:
    x, y = _diabetes()
    model = make_pipeline(scaler, _forest()).fit(x, y)
    assert np.abs(model.predict(x) - model.predict(x.astype("float64"))).max() > 0.1  # else this tests nothing
    path = tmp_path / "m.onnx"
    report = onnxtool.convert(model, path, sample=x.to_numpy() if as_array else x, effort="quick")
    assert report.ok
    assert [i.dtype for i in onnxtool.inspect(path).inputs] == ["float32"]
    assert _differing(model, path, x) == 0


def test_columns_have_types_of_their_own(tmp_path: Any) -> None:
    """Columns of float32 and of float64 in one block are promoted, a block of float32 alone is not."""
    x, y = _diabetes()
    x = x.astype({"age": "float64"})
    blocks = [("mixed", StandardScaler(), ["age", "bmi"]), ("single", StandardScaler(), ["bp", "s1", "s5"])]
    model = make_pipeline(ColumnTransformer(blocks), _forest()).fit(x, y)
    path = tmp_path / "m.onnx"
    assert onnxtool.convert(model, path, sample=x, effort="quick").ok
    kinds = {i.name: i.dtype for i in onnxtool.inspect(path).inputs}
    assert kinds == {"age": "float64", "bmi": "float32", "bp": "float32", "s1": "float32", "s5": "float32"}
    assert _differing(model, path, x) == 0


def test_small_integers_beside_float32_are_computed_with_in_float32(tmp_path: Any) -> None:
    """As frames are whose columns were made as small as they can be."""
    x, y = _diabetes()
    x = x.assign(visits=(x["s5"] * 1000).astype("int16"), age=x["age"].rank().astype("int16"))
    blocks = [("both", StandardScaler(), ["visits", "bmi", "bp"]), ("alone", StandardScaler(), ["age"])]
    model = make_pipeline(ColumnTransformer(blocks), _forest()).fit(x, y)
    path = tmp_path / "m.onnx"
    assert onnxtool.convert(model, path, sample=x, effort="quick").ok
    kinds = {i.name: i.dtype for i in onnxtool.inspect(path).inputs}
    assert kinds == {"visits": "float32", "bmi": "float32", "bp": "float32", "age": "float64"}
    assert _differing(model, path, x) == 0


@pytest.mark.parametrize(
    "steps",
    [
        (Binarizer(threshold=1.2), LogisticRegression()),  # petals 1.2 wide are wider in float32
        (StandardScaler(), KNeighborsClassifier()),
        (StandardScaler(), PolynomialFeatures(3), KNeighborsClassifier()),
        (Normalizer(), GaussianNB()),
        (PolynomialFeatures(2), RandomForestClassifier(20, random_state=0)),
        (SplineTransformer(), RandomForestClassifier(20, random_state=0)),
    ],
    ids=lambda steps: "+".join(type(s).__name__ for s in steps),
)
def test_steps_round_as_the_source_does(tmp_path: Any, steps: Any) -> None:
    x, y = datasets.load_iris(return_X_y=True, as_frame=True)
    x = x.astype("float32")
    model = make_pipeline(*steps).fit(x, y)
    assert onnxtool.convert(model, tmp_path / "m.onnx", sample=x, effort="quick").ok
    found = onnxtool.run(tmp_path / "m.onnx", data=x).frame
    assert (found["label"] == model.predict(x)).all()
    assert np.allclose(found.iloc[:, 1:], model.predict_proba(x), 1e-4, 1e-5)


def test_sums_in_float32_are_held_to_the_sample_alone(tmp_path: Any) -> None:
    x, y = _diabetes()
    model = make_pipeline(PCA(5), _forest()).fit(x, y)
    report = onnxtool.convert(model, tmp_path / "m.onnx", sample=x, effort="quick")
    assert report.untested
    assert report.ok or report.changed_rows is not None


def test_small_integers_are_named(tmp_path: Any) -> None:
    """NumPy gives float16 for the logarithm of int8, which no file of float64 does."""
    x = pd.DataFrame({"visits": np.arange(100, dtype="int8"), "age": np.arange(100.0)[::-1] ** 2})
    logarithm = ColumnTransformer(
        [("log", FunctionTransformer(np.log1p), ["visits"]), ("rest", "passthrough", ["age"])]
    )
    model = make_pipeline(logarithm, LinearRegression()).fit(x, np.log1p(np.arange(100.0)))
    report = onnxtool.convert(model, tmp_path / "m.onnx", sample=x, effort="quick")
    assert any("visits (int8)" in note and "fewer digits" in note for note in report.notes)
    wide = onnxtool.convert(model, tmp_path / "n.onnx", sample=x.astype("float64"), effort="quick")
    assert not any("fewer digits" in note for note in wide.notes)


@pytest.mark.parametrize(
    ("values", "kind", "found"),
    [
        (np.array([1.5], np.float32), None, "float64"),
        (np.array([1], np.int64), None, "int64"),
        (np.array([1.0, 2.0]), "int8", "int8"),
        (np.array([1.0, 200.0]), "int8", "float64"),
        (np.array([1.0, np.nan]), "int8", "float64"),
        (np.array([0.5, np.nan]), "float16", "float16"),
        (np.array([0.1]), "float16", "float64"),
        (np.array([0.1]), "float32", "float32"),
    ],
)
def test_numbers_are_given_in_the_sample_s_type_where_it_holds_them(values: Any, kind: Any, found: str) -> None:
    given = in_given_type(values, None if kind is None else np.dtype(kind))
    assert given.dtype == found
    assert np.array_equal(given, values.astype(found), equal_nan=values.dtype.kind == "f")


def test_a_frame_s_columns_are_those_of_a_matrix_without_names() -> None:
    """Of several inputs, others than theirs tell nothing."""
    frame = as_table(pd.DataFrame({"p": np.ones(2, np.float32), "q": np.ones(2, np.int8)}))
    matrix = TensorSpec("X", np.dtype("float64"), ("batch", 2))
    assert given_types(frame, [matrix]) == {"X": np.float32}
    assert given_types(frame, [matrix, TensorSpec("y", np.dtype("float64"), ("batch", 1))]) == {}


def test_an_estimator_is_tried_on_the_first_rows_without_a_pass_over_the_others() -> None:
    def parts() -> Iterator[Rows]:
        yield Rows([np.arange(100, dtype=np.float32)], range(100))
        raise AssertionError("more is read")

    found = first_rows(DataTable("t", ("p",), parts), [TensorSpec("p", np.dtype("float32"), ("batch", 1))])
    assert found["p"][:, 0].tolist() == list(range(32))


def _doubles_alone(x: Any) -> Any:
    if getattr(x, "dtype", None) == np.float32:
        raise ValueError("no float32")
    return x * 2.0


def test_an_estimator_that_refuses_float32_is_given_doubles(tmp_path: Any) -> None:
    x, y = _diabetes()
    steps = [("twice", FunctionTransformer(_doubles_alone)), ("fit", LinearRegression())]
    model = Pipeline(steps).fit(x.to_numpy(np.float64), y)
    assert onnxtool.convert(model, tmp_path / "m.onnx", sample=x.to_numpy(), effort="quick").ok
    assert [i.dtype for i in onnxtool.inspect(tmp_path / "m.onnx").inputs] == ["float64"]


def test_compare_runs_an_estimator_on_data_in_their_own_types(tmp_path: Any) -> None:
    x, y = _diabetes()
    model = make_pipeline(StandardScaler(), _forest()).fit(x, y)
    doubles, singles = tmp_path / "doubles.onnx", tmp_path / "singles.onnx"
    report = onnxtool.convert(model, doubles, effort="quick")
    assert any("--sample" in note for note in report.notes)
    onnxtool.convert(model, singles, sample=x, effort="quick")
    assert onnxtool.compare(model, doubles, data=x).differs
    assert not onnxtool.compare(model, doubles, data=x.astype("float64")).differs
    assert not onnxtool.compare(model, singles, data=x).differs
    assert onnxtool.compare(model, singles, data=x.astype("float64")).outputs  # runs, whatever it finds


def test_so_does_compare_of_a_file_of_scikit_learn(tmp_path: Any) -> None:
    sio = pytest.importorskip("skops.io")
    x, y = _diabetes()
    model = make_pipeline(StandardScaler(), _forest()).fit(x, y)
    sio.dump(model, tmp_path / "m.skops")
    onnxtool.convert(model, tmp_path / "m.onnx", effort="quick")
    found = [opened_source(tmp_path / "m.skops", tmp_path / "m.onnx", data=d) for d in (x, x.astype("float64"))]
    assert all(f.inputs[0].dtype == np.float64 for f in found)
    assert [onnxtool.compare(f, tmp_path / "m.onnx", data=x).differs for f in found] == [True, False]


@pytest.mark.parametrize(("kind", "told"), [("float32", True), ("float64", False)])
def test_where_they_differ_rows_of_float32_are_named(tmp_path: Any, kind: str, told: bool) -> None:
    x, y = _diabetes()
    model = make_pipeline(PCA(3), LinearRegression()).fit(x, y)
    report = onnxtool.convert(model, tmp_path / "m.onnx", sample=x.astype(kind), rtol=0.0, atol=0.0, effort="quick")
    assert not report.ok
    assert any("computes in float32" in note for note in report.notes) == told


def test_an_explicit_type_of_the_input_is_kept(tmp_path: Any) -> None:
    x, y = _diabetes()
    model = make_pipeline(StandardScaler(), LinearRegression()).fit(x, y)
    onnxtool.convert(model, tmp_path / "m.onnx", sample=x, input_dtypes={"": "float64"}, effort="quick")
    assert [i.dtype for i in onnxtool.inspect(tmp_path / "m.onnx").inputs] == ["float64"]
