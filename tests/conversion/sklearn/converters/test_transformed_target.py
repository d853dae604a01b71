"""A regressor of a transformed target gives the target itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxtool.conversion.convert import convert
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.runner import OnnxRunner

pytest.importorskip("skl2onnx")

from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

ROWS = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32)
TARGET = np.exp(0.5 * ROWS[:, 0].astype(np.float64) + ROWS[:, 1] + 2)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"func": np.log1p, "inverse_func": np.expm1},
        {"func": np.log, "inverse_func": np.exp},
        {"func": np.log2, "inverse_func": np.exp2},
        {"func": np.sqrt, "inverse_func": np.square},
        {"transformer": StandardScaler()},
        {"transformer": MinMaxScaler((1, 3))},
        {"transformer": make_pipeline(RobustScaler(), MaxAbsScaler())},
        {"transformer": PowerTransformer()},
        {"transformer": PowerTransformer("box-cox", standardize=False)},
        {"transformer": QuantileTransformer(n_quantiles=20)},
    ],
)
def test_the_target_is_what_scikit_learn_gives(options: dict[str, Any], tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), TransformedTargetRegressor(Ridge(), **options)).fit(ROWS, TARGET)
    assert convert(model, tmp_path / "out.onnx", effort="quick").ok
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    (found,) = runner.run({runner.inputs[0].name: ROWS}).values()
    np.testing.assert_allclose(found[:, 0], model.predict(ROWS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"func": np.arcsinh, "inverse_func": np.sinh}, "'sinh'"),
        ({"transformer": QuantileTransformer(n_quantiles=20, output_distribution="normal")}, "QuantileTransformer"),
    ],
)
def test_what_has_no_form_is_named(options: dict[str, Any], named: str, tmp_path: Path) -> None:
    model = TransformedTargetRegressor(Ridge(), **options).fit(ROWS, TARGET)
    with pytest.raises(UnsupportedError, match=named):
        convert(model, tmp_path / "out.onnx")
