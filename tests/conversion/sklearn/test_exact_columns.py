"""Scalers in front of trees round as scikit-learn does, and what the proof leaves out of such files is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import skops.io
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeRegressor

from onnxtool.cli.views import view_of
from onnxtool.conversion.convert import convert
from onnxtool.conversion.sklearn import export
from onnxtool.errors import UsageError
from onnxtool.report.convert import ConvertReport

X, Y = load_diabetes(return_X_y=True)
SCALERS = [StandardScaler(), RobustScaler(with_centering=False), MinMaxScaler(), MaxAbsScaler()]


def boosted(scaler: Any) -> Any:
    xgboost = pytest.importorskip("xgboost")
    return make_pipeline(scaler, xgboost.XGBRegressor(n_estimators=20, n_jobs=1)).fit(X, Y)


@pytest.mark.parametrize(("scaler", "kind"), [*((s, "float32") for s in SCALERS), (SCALERS[0], "float64")], ids=str)
def test_the_rows_that_trees_were_fitted_on_come_out_as_in_scikit_learn(scaler: Any, kind: str, tmp_path: Path) -> None:
    model, rows = boosted(scaler), X.astype(kind)
    report = convert(
        model,
        tmp_path / "out.onnx",
        sample={"X": rows},
        input_dtypes={"X": kind},
        effort="quick",
        verify_result=True,
    )
    assert report.ok and report.changed_rows is None
    found = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"X": rows})[0]
    np.testing.assert_allclose(found.reshape(-1), model.predict(rows.astype(np.float64)), rtol=1e-5)
    assert not report.untested


def test_rows_of_the_sample_that_change_are_counted_and_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "has_trees", lambda _: False)  # as skl2onnx writes scalers
    model, rows = boosted(StandardScaler()), X.astype(np.float32)
    report: ConvertReport = convert(
        model,
        tmp_path / "out.onnx",
        sample={"X": rows},
        input_dtypes={"X": "float32"},
        effort="quick",
        keep_failed=tmp_path / "kept.onnx",
    )
    assert not report.ok and not report.written and report.changed_rows is not None
    found = onnxruntime.InferenceSession(tmp_path / "kept.onnx").run(None, {"X": rows})[0].reshape(-1)
    expected = model.predict(rows.astype(np.float64))
    scale = np.sqrt((expected.astype(np.float64) ** 2).mean())
    off = np.abs(found - expected) > 1e-3 * np.abs(expected) + 1e-5 * scale
    assert report.changed_rows == (int(off.sum()), len(rows)) and off.any()


def test_rows_that_change_because_the_file_rounds_them_are_counted_and_refused(tmp_path: Path) -> None:
    """The source sees the user's rows in float64; what it gives for rounded ones is another question."""
    model = boosted(StandardScaler())
    report = convert(
        model,
        tmp_path / "out.onnx",
        sample={"X": X},
        input_dtypes={"X": "float32"},
        effort="quick",
        keep_failed=tmp_path / "kept.onnx",
    )
    found = onnxruntime.InferenceSession(tmp_path / "kept.onnx").run(None, {"X": X.astype(np.float32)})[0].reshape(-1)
    expected = model.predict(X)
    off = np.abs(found - expected) > 1e-3 * np.abs(expected) + 1e-5 * np.sqrt((expected.astype(np.float64) ** 2).mean())
    assert off.any() and not report.written and report.changed_rows == (int(off.sum()), len(X))
    count = int(off.sum())
    for allowed in (count - 1, count):
        again = convert(
            model,
            tmp_path / "out.onnx",
            sample={"X": X},
            input_dtypes={"X": "float32"},
            effort="quick",
            max_flips=allowed,
        )
        assert again.written is again.ok is again.is_within_flips is (allowed == count)
        assert view_of(again).word == (("NOT EQUAL", "warn") if allowed == count else ("FAILED", "bad"))
        assert again.changed_rows == (count, len(X)) and again.comparison is not None and again.comparison.differs
    assert convert(model, tmp_path / "out.onnx", sample={"X": X}, effort="quick").ok
    with pytest.raises(UsageError, match="--sample"):
        convert(model, tmp_path / "out.onnx", max_flips=1)


def test_the_verdict_says_that_thresholds_were_not_tested(tmp_path: Path, onnxtool: Callable[..., Any]) -> None:
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    skops.io.dump(tree.fit(X, Y), tmp_path / "plain.skops")
    skops.io.dump(make_pipeline(StandardScaler(), tree).fit(X, Y), tmp_path / "scaled.skops")
    skops.io.dump(make_pipeline(PCA(2), tree).fit(X, Y), tmp_path / "mixed.skops")
    single = ("--input-dtype", "X:float32")
    for name, options, said in (("plain", single, False), ("scaled", (), False), ("mixed", (), True)):
        done = onnxtool(
            "convert", tmp_path / f"{name}.skops", "-o", tmp_path / "out.onnx", "--effort", "quick", *options
        )
        told = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == 0
        assert ("not tested at the trees' thresholds; rows may differ" in told) is said
        assert ("equal to its source" in told) is not said


def test_trees_of_one_leaf_have_no_thresholds_to_test(tmp_path: Path) -> None:
    for count, told in ((19, ""), (100, "not tested at the trees' thresholds; rows may differ")):  # a leaf has 20 rows
        model = make_pipeline(PCA(2), HistGradientBoostingRegressor(max_iter=3)).fit(X[:count], Y[:count])
        assert convert(model, tmp_path / "out.onnx", effort="quick").untested == told


def test_a_file_is_not_written_where_an_output_was_constant_in_every_run(tmp_path: Path) -> None:
    """Far from all rows of the data a narrow kernel is zero: random rows tell nothing, rows of the data do."""
    rows = np.random.default_rng(0).normal([1e3, 1e6], [1.0, 1e3], (60, 2))
    model = GaussianProcessRegressor(RBF(1e-3, "fixed")).fit(rows, rows[:, 0])
    blind = convert(model, tmp_path / "out.onnx")
    assert not blind.ok and not blind.written and not (tmp_path / "out.onnx").exists()
    assert blind.comparison is not None and blind.comparison.verdict == "not tested"
    assert "not tested: 'prediction' was zero in every run" in view_of(blind).verdict.text
    allowed = convert(model, tmp_path / "out.onnx", allow_unproven=True)
    assert not allowed.ok and allowed.written and (tmp_path / "out.onnx").exists()
    assert view_of(allowed).verdict.text.endswith("written all the same")
    np.savez(tmp_path / "rows.npz", X=rows[:20])
    assert view_of(convert(model, tmp_path / "out.onnx", sample=str(tmp_path / "rows.npz"))).word[0] == "OK"


@pytest.mark.usefixtures("normal_effort")
def test_outputs_that_are_the_same_for_all_rows_are_certified_at_any_effort(tmp_path: Path) -> None:
    model = HistGradientBoostingRegressor(max_iter=2).fit(X[:19], Y[:19])
    report = convert(model, tmp_path / "out.onnx", effort="quick")
    assert report.ok and report.comparison is not None and report.comparison.verdict == "certified"


@pytest.mark.parametrize("steps", [(StandardScaler(),), (MinMaxScaler(),), ()], ids=["standard", "minmax", "none"])
def test_random_rows_of_columns_in_different_units_reach_both_classes(steps: tuple[Any, ...], tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal([1e-3, 1e6, 0.0], [1e-4, 1e5, 1.0], (80, 3))
    model = make_pipeline(*steps, SVC()).fit(rows, rows[:, 1] > 1e6)
    report = convert(model, tmp_path / "out.onnx", effort="quick")
    assert report.comparison is not None and report.comparison.verdict == "tested"
