"""An estimator whose float32 form loses what decides is converted with float64 inside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import onnxtool

pytest.importorskip("skl2onnx")

from sklearn.datasets import load_digits
from sklearn.naive_bayes import MultinomialNB
from sklearn.preprocessing import MaxAbsScaler

ROWS, LABELS = load_digits(return_X_y=True)


@pytest.mark.parametrize("zipmap", [False, True])
def test_what_needs_doubles_has_them_between_inputs_and_outputs_of_float32(
    tmp_path: Path, zipmap: bool, normal_effort: None
) -> None:
    bayes = MultinomialNB().fit(ROWS, LABELS)  # sums 64 logarithms of up to thousands
    report = onnxtool.convert(bayes, tmp_path / "bayes.onnx", zipmap=zipmap)
    assert report.ok
    assert any("float64 inside" in note for note in report.notes)
    session = onnxruntime.InferenceSession(tmp_path / "bayes.onnx")
    (given,) = session.get_inputs()
    assert given.type == "tensor(float)"
    label, probabilities = session.run(None, {given.name: ROWS[:200].astype(np.float32)})
    np.testing.assert_array_equal(label, bayes.predict(ROWS[:200]))
    if zipmap:
        probabilities = np.asarray([[row[c] for c in bayes.classes_] for row in probabilities])
    else:
        assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities, bayes.predict_proba(ROWS[:200]), rtol=1e-5, atol=1e-7)


def test_what_float32_computes_right_stays_in_float32(tmp_path: Path) -> None:
    bayes = MultinomialNB().fit(ROWS[:, :4] > 8, LABELS)
    report = onnxtool.convert(bayes, tmp_path / "bayes.onnx", effort="quick")
    assert report.ok
    assert not any("float64" in note for note in report.notes)


def test_doubles_do_not_excuse_an_option_that_the_exporter_drops(tmp_path: Path) -> None:
    scaler = MaxAbsScaler(clip=True).fit(ROWS[:300])
    report = onnxtool.convert(scaler, tmp_path / "scaler.onnx", effort="quick")
    assert not report.ok
    assert not any("float64" in note for note in report.notes)
