"""The pipeline as a whole, on the real raw export of the fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxtool.errors import UsageError
from onnxtool.model import io
from onnxtool.model.graph import input_specs, operator_counts, output_specs
from onnxtool.optimize.pipeline import Level, optimize_model
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session import EXACT
from onnxtool.validate.equality import compare_runners, probe_feeds


def test_folds_all_batch_normalizations_of_a_raw_export(digits_onnx: Path) -> None:
    model = io.load(digits_onnx)
    before = input_specs(model), output_specs(model)

    result = optimize_model(model)

    counts = operator_counts(model)
    assert "BatchNormalization" not in counts
    assert "Identity" not in counts
    assert "Expand" not in counts
    assert (input_specs(model), output_specs(model)) == before
    assert result.settled
    source, optimized = OnnxRunner.open(digits_onnx, EXACT), OnnxRunner.open(model, EXACT)
    assert compare_runners(source, optimized, probe_feeds(source.inputs)).ok


def test_runs_again_without_a_change(digits_onnx: Path) -> None:
    model = io.load(digits_onnx)
    optimize_model(model)

    assert optimize_model(model).rewrites == 0


def test_refuses_unknown_levels_and_passes(digits_onnx: Path) -> None:
    model = io.load(digits_onnx)
    with pytest.raises(UsageError, match="basic, extended or all"):
        optimize_model(model, "fast")
    with pytest.raises(UsageError, match="--list-passes"):
        optimize_model(model, only=["no-such-pass"])


def test_basic_level_is_bit_exact(digits_onnx: Path) -> None:
    model = io.load(digits_onnx)
    optimize_model(model, Level.BASIC)

    source, optimized = OnnxRunner.open(digits_onnx, EXACT), OnnxRunner.open(model, EXACT)
    report = compare_runners(source, optimized, probe_feeds(source.inputs))
    assert all(o.max_abs == 0 for o in report.outputs)
    assert len(report.outputs) == 1
