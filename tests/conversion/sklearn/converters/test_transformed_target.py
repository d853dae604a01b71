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
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from tests.conversion.sklearn.converted_model import run_converted

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
        {"transformer": QuantileTransformer(n_quantiles=20, output_distribution="normal")},
        {"func": lambda y: np.log(y + 3), "inverse_func": lambda y: np.exp(y) - 3},
    ],
)
def test_the_target_is_what_scikit_learn_gives(options: dict[str, Any], tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), TransformedTargetRegressor(Ridge(), **options)).fit(ROWS, TARGET)
    assert convert(model, tmp_path / "out.onnx", effort="quick").ok
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    (found,) = runner.run({runner.inputs[0].name: ROWS}).values()
    np.testing.assert_allclose(found[:, 0], model.predict(ROWS), rtol=1e-5, atol=1e-6)


def test_a_normal_quantile_is_exact_far_out(tmp_path: Path) -> None:
    target = QuantileTransformer(n_quantiles=200, output_distribution="normal")
    model = TransformedTargetRegressor(KNeighborsRegressor(1), transformer=target).fit(ROWS, TARGET)
    model.regressor_._y = np.linspace(-5.3, 5.3, len(ROWS))[:, None]
    (found,) = run_converted(model, tmp_path, ROWS.astype(float))
    np.testing.assert_allclose(found[:, 0], model.predict(ROWS), rtol=2e-6)


def test_what_has_no_form_is_named(tmp_path: Path) -> None:
    model = TransformedTargetRegressor(Ridge(), func=np.arcsinh, inverse_func=np.sinh).fit(ROWS, TARGET)
    with pytest.raises(UnsupportedError, match="'sinh'"):
        convert(model, tmp_path / "out.onnx")
