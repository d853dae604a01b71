"""Missing text is what the encoders took it for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxtool.conversion.convert import convert
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.runner import OnnxRunner

pytest.importorskip("skl2onnx")

import pandas
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder


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
