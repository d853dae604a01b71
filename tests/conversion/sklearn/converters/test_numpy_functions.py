"""Functions of NumPy in a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from onnxtool.conversion.convert import convert
from onnxtool.conversion.sklearn.source_columns import rounds_otherwise
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.runner import OnnxRunner

pytest.importorskip("skl2onnx")

from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
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


def decide(x: Any) -> Any:
    return x if x[0, 0] > 3 else -x


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (np.sinc, "'sinc' has no ONNX form"),
        (lambda x: x / x.mean(), "'mean' has no ONNX form"),
        (lambda x: np.concatenate([x, x]), "rows one below another"),
        (decide, "columns alone can be chosen"),
        (lambda x: x if np.equal(x, 1) else -x, "a decision by the data"),
        (lambda x: x.astype(np.float32), "a cast to float32"),
    ],
    ids=["sinc", "mean", "below", "row", "decision", "cast"],
)
def test_another_is_named_with_the_reason(function: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        convert(FunctionTransformer(function).fit(ROWS), tmp_path / "out.onnx", verify_result=False)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (np.clip, {"a_min": -1, "a_max": None}),
        (np.nan_to_num, {"nan": -5.0, "posinf": 3.0}),
        (np.nan_to_num, {}),
        (lambda x, period: np.sin(x / period * 2 * np.pi), {"period": 24}),
        (lambda x: np.where((x > 0) & ~np.isnan(x), x**2, -x) + 1, {}),
        (lambda x: np.log1p(np.abs(x[:, :1] / (x[:, [2, 1]] + 1))), {}),
        (lambda x: (x % 7 >= 2).astype(int), {}),
        (lambda x: np.minimum(3, np.maximum(x[:, 1:], x[:, :2])), {}),
        (lambda x: np.hstack([np.sin(x), x > 1, x[:, [0]]]), {}),
        (lambda x: np.column_stack([x[:, 0] / x[:, 2].clip(1, None), x[:, 1:], 1 - x[:, 1]]), {}),
        (lambda x: np.concatenate([x[:, 1:], -x], axis=1)[:, [-1, 0, 4]] * x[:, 2:], {}),
    ],
)
def test_functions_of_the_users_are_followed(function: Any, options: dict[str, Any], tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(60, 3)) * [1, 10, 1e9]
    rows[:3] = np.array([[np.nan, 0, -0.0], [np.inf, -np.inf, 1], [7, 14, -7]])
    step = FunctionTransformer(function, kw_args=options).fit(rows)
    with np.errstate(all="ignore"):
        (found,) = run_converted(step, tmp_path, rows)
        expected = step.transform(rows)
    np.testing.assert_allclose(found, np.asarray(expected, float), rtol=1e-6)


def _further_columns(frame: Any) -> Any:
    filled = frame.fillna(0.5).copy()
    filled["ratio"] = filled["a"] / (1 + filled.b)
    return filled[["ratio", "c"]].assign(gap=frame.isna()["b"], root=lambda d: np.sqrt(d.c))


def test_functions_of_frames_add_columns(tmp_path: Path) -> None:
    frame = pandas.DataFrame(ROWS.astype(float), columns=["a", "b", "c"])
    frame.loc[::7, "b"] = np.nan
    scaled = make_column_transformer((StandardScaler(), ["root", "ratio"]), ("passthrough", ["gap"]))
    model = make_pipeline(FunctionTransformer(_further_columns), scaled, LinearRegression()).fit(frame, ROWS[:, 0])
    (found,) = run_converted(model, tmp_path, frame.to_numpy(), prove=True)
    np.testing.assert_allclose(found[:, 0], model.predict(frame), rtol=1e-5)


def test_functions_of_frames_choose_columns_by_name(tmp_path: Path) -> None:
    frame = pandas.DataFrame(ROWS.astype(float), columns=["a", "b", "c"])
    doubled = FunctionTransformer(lambda d: d[["c", "a"]].clip(1) * 2)
    model = make_pipeline(make_column_transformer((doubled, ["a", "b", "c"])), LinearRegression()).fit(
        frame, ROWS[:, 0]
    )
    (found,) = run_converted(model, tmp_path, *(frame[[name]].to_numpy() for name in frame))
    np.testing.assert_allclose(found[:, 0], model.predict(frame), rtol=1e-5)


@pytest.mark.parametrize("function", [np.expm1, np.arcsinh, np.log1p], ids=lambda f: f.__name__)
def test_trees_behind_a_function_decide_on_their_own_rows_as_there(function: Any, tmp_path: Path) -> None:
    x, y = load_diabetes(return_X_y=True)
    model = make_pipeline(FunctionTransformer(function), HistGradientBoostingRegressor(max_iter=20)).fit(7 * x, y)
    (found,) = run_converted(model, tmp_path, 7 * x)
    np.testing.assert_allclose(found.ravel(), model.predict(7 * x), rtol=1e-6)


@pytest.mark.parametrize("function", [np.sin, np.cos], ids=lambda f: f.__name__)
def test_trees_behind_hours_and_days_on_a_circle_split_where_sines_differ_in_their_last_digit(
    function: Any, tmp_path: Path
) -> None:
    generator, parts = np.random.default_rng(0), np.array([12, 24, 365])
    rows = generator.integers(0, parts, (900, 3)).astype(float)
    target = generator.standard_normal(900) + 9 * np.isin(rows, [0, 6, 12, 182]).any(axis=1)
    boosted = HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=2)
    model = make_pipeline(FunctionTransformer(lambda x: function(2 * np.pi * x / parts)), boosted).fit(rows, target)
    (found,) = run_converted(model, tmp_path, rows)
    np.testing.assert_allclose(found.ravel(), model.predict(rows), rtol=1e-6)


@pytest.mark.parametrize("function", [np.sin, np.cos], ids=lambda f: f.__name__)
def test_sines_are_numpy_s_but_for_a_last_digit_of_few(function: Any, tmp_path: Path) -> None:
    sizes = np.random.default_rng(0).uniform([-10, -2.5e5, -1e9], [10, 2.5e5, 1e9], (2000, 3)).T.ravel()
    rows = np.array([*sizes, *(np.pi * np.arange(-48, 49) / 24), 0, -0.0, 5e-324, 1e-40, np.inf, -np.inf, np.nan])[
        :, None
    ]
    found = run_converted(FunctionTransformer(function).fit(rows), tmp_path, rows)[0]
    with np.errstate(invalid="ignore"):
        expected = function(rows)
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    assert np.mean(found[:4000] != expected[:4000]) < 0.01
    np.testing.assert_array_equal(found[6000:], expected[6000:])


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
        (FunctionTransformer(lambda x: np.where(x > 0, x, 0) / 7), False),
        (FunctionTransformer(lambda x: np.tanh(np.where(x > 0, x, 0))), True),
        (FunctionTransformer(lambda x: x["a"]), True),
        (FunctionTransformer(), False),
        (
            TransformedTargetRegressor(func=np.log1p, inverse_func=np.expm1, check_inverse=False),
            False,
        ),  # that is behind all thresholds
    ],
    ids=("log1p", "expm1", "sqrt", "where", "tanh", "one column", "none", "target"),
)
def test_only_steps_that_round_otherwise_take_thresholds_out_of_the_proof(step: Any, otherwise: bool) -> None:
    assert rounds_otherwise(step.fit(ROWS, ROWS[:, 0])) is otherwise
