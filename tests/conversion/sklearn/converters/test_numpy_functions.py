"""Functions of NumPy in a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxtool.conversion.convert import convert
from onnxtool.conversion.sklearn.source_columns import rounds_otherwise
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.runner import OnnxRunner

pytest.importorskip("skl2onnx")

from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from tests.conversion.sklearn.converted_model import run_converted

ROWS = np.random.default_rng(0).uniform(0.01, 3, (100, 3)).astype(np.float32)


@pytest.mark.parametrize(
    "function",
    [np.log1p, np.log, np.log10, np.log2, np.exp, np.expm1, np.exp2, np.sqrt, np.cbrt, np.square, np.abs, None],
)
def test_a_function_is_written_out(function: Any, tmp_path: Path) -> None:
    steps = make_pipeline(FunctionTransformer(function), StandardScaler()).fit(ROWS)
    assert convert(steps, tmp_path / "out.onnx", effort="quick").ok
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    (found,) = runner.run({runner.inputs[0].name: ROWS}).values()
    np.testing.assert_allclose(found, steps.transform(ROWS), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [np.arctan, np.arcsinh, np.rint, np.radians, np.degrees])
def test_a_function_has_the_digits_of_doubles_at_any_size(function: Any, tmp_path: Path) -> None:
    sizes = 10.0 ** np.arange(-12, 13)
    rows = np.concatenate([sizes, -sizes, np.linspace(-4, 4, 157), [0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]])[:, None]
    steps = FunctionTransformer(function).fit(rows)
    assert convert(steps, tmp_path / "out.onnx", effort="quick").ok
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    (found,) = runner.run({runner.inputs[0].name: rows}).values()
    np.testing.assert_allclose(found, function(rows), rtol=1e-14)


@pytest.mark.parametrize("options", [{"func": np.sinc}, {"func": np.clip, "kw_args": {"a_min": 0, "a_max": 1}}])
def test_another_is_named(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=options["func"].__name__):
        convert(FunctionTransformer(**options).fit(ROWS), tmp_path / "out.onnx")


@pytest.mark.parametrize("function", [np.expm1, np.arcsinh, np.log1p], ids=lambda f: f.__name__)
def test_trees_behind_a_function_decide_on_their_own_rows_as_there(function: Any, tmp_path: Path) -> None:
    x, y = load_diabetes(return_X_y=True)
    model = make_pipeline(FunctionTransformer(function), HistGradientBoostingRegressor(max_iter=20)).fit(7 * x, y)
    (found,) = run_converted(model, tmp_path, 7 * x)
    np.testing.assert_allclose(found.ravel(), model.predict(7 * x), rtol=1e-6)


def test_thresholds_behind_a_rising_function_are_those_of_the_column_itself(tmp_path: Path) -> None:
    x, y = load_diabetes(return_X_y=True)
    model = make_pipeline(FunctionTransformer(np.expm1), HistGradientBoostingRegressor(max_iter=20)).fit(7 * x, y)
    rows = np.vstack([np.nextafter(7 * x, side) for side in (-np.inf, np.inf)])
    (found,) = run_converted(model, tmp_path, rows)
    np.testing.assert_allclose(found.ravel(), model.predict(rows), rtol=1e-6)


@pytest.mark.parametrize(
    ("step", "otherwise"),
    [
        (FunctionTransformer(np.log1p), True),
        (FunctionTransformer(np.expm1), True),
        (FunctionTransformer(np.sqrt), False),
        (FunctionTransformer(), False),
        (TransformedTargetRegressor(func=np.log1p, inverse_func=np.expm1), False),  # that is behind all thresholds
    ],
    ids=str,
)
def test_only_steps_that_round_otherwise_take_thresholds_out_of_the_proof(step: Any, otherwise: bool) -> None:
    assert rounds_otherwise(step) is otherwise
