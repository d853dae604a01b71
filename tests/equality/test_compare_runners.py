"""The one comparison that every command uses."""

from __future__ import annotations

from pathlib import Path

import onnx

from onnxtool.equality.compare import compare
from onnxtool.equality.compare_runners import compare_runners, probe_feeds
from onnxtool.optimization.optimize import optimize
from onnxtool.runtime.runner import OnnxRunner

# Finds what is above 100 in standard normal numbers: nothing.
_DETECTOR = """
g (float[N] x) => (float[M] found, float[N] scaled) <float hundred = {100}>
{ hits = Greater(x, hundred)  found = Compress <axis = 0> (x, hits)  scaled = Mul(x, hundred) }
"""


def test_outputs_that_stay_empty_are_named(tmp_path: Path) -> None:
    path = tmp_path / "detector.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>\n{_DETECTOR}'), path)
    runner = OnnxRunner.open(path)
    report = compare_runners(runner, runner, probe_feeds(runner.inputs))
    assert report.ok
    assert [w for w in report.warnings if "'found' had no elements in any run" in w]
    assert not [w for w in report.warnings if "scaled" in w]
    assert [w for w in compare(path, path).warnings if "'found' had no elements" in w]
    assert [w for w in optimize(path, tmp_path / "o.onnx").warnings if "'found' had no elements" in w]
