"""Missing text is what the encoders took it for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxtool.conversion.convert import convert
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.data.frames import as_table
from onnxtool.runtime.runner import OnnxRunner

pytest.importorskip("skl2onnx")

import pandas
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler


@pytest.mark.parametrize("missing", [None, np.nan, ""])
def test_a_category_of_its_own(missing: object, tmp_path: Path) -> None:
    table = pandas.DataFrame({"port": np.array(["S", "C", missing, "S"] * 5, dtype=object), "size": np.arange(20.0)})
    steps = ColumnTransformer(
        [("port", OneHotEncoder(handle_unknown="ignore"), ["port"]), ("size", "passthrough", ["size"])]
    )
    steps.fit(table)
    assert convert(steps, tmp_path / "out.onnx", effort="quick").ok
    rows = pandas.DataFrame({"port": np.array(["C", missing, "Q"], dtype=object), "size": [1.0, 2.0, 3.0]})
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    texts = np.array([["C"], [""], ["Q"]], dtype=object)
    (found,) = runner.run({"port": texts, "size": rows[["size"]].to_numpy(np.float32)}).values()
    np.testing.assert_array_equal(found, steps.transform(rows))


def test_two_kinds_of_missing_text_are_refused(tmp_path: Path) -> None:
    table = pandas.DataFrame({"port": np.array(["S", "", np.nan, "S"] * 5, dtype=object)})
    steps = ColumnTransformer([("port", OneHotEncoder(), ["port"])]).fit(table)
    with pytest.raises(UnsupportedError, match="both the empty text and missing values"):
        convert(steps, tmp_path / "out.onnx")
    filled = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder())
    steps = ColumnTransformer([("port", filled, ["port"])]).fit(table)
    with pytest.raises(UnsupportedError, match="both the empty text and missing values"):
        convert(steps, tmp_path / "out.onnx")


@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_a_frame_whose_columns_have_numbers_for_names(kind: str, tmp_path: Path) -> None:
    """As pandas names them itself: scikit-learn keeps no names, and the file's inputs are counted."""
    rows = np.arange(40) % 7
    table = pandas.DataFrame({0: rows.astype(kind), 1: np.array(["S", "C", "S", np.nan] * 10, dtype=object)})
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    steps = ColumnTransformer([("size", StandardScaler(), [0]), ("port", words, [1])]).fit(table)
    assert convert(steps, tmp_path / "out.onnx", effort="quick", sample=table).ok
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    assert [spec.name for spec in runner.inputs] == ["column_0", "column_1"]
    assert runner.inputs[0].dtype == kind
    (found,) = runner.run(as_table(table, runner.inputs).arrays(runner.inputs)).values()
    np.testing.assert_array_equal(found, steps.transform(table))


def test_the_empty_text_is_a_text_to_a_vectorizer_of_a_frame_without_names(tmp_path: Path) -> None:
    table = pandas.DataFrame({0: ["one two", "", "two three", "one"] * 5, 1: np.arange(20.0)})
    steps = ColumnTransformer([("words", CountVectorizer(), 0), ("size", "passthrough", [1])]).fit(table)
    assert convert(steps, tmp_path / "out.onnx", effort="quick", sample=table).ok
