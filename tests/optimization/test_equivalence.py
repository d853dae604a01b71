"""The optimizer's own judgement: on the usual inputs, far beyond them, and under the runtime's own optimizations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.model import io
from onnxtool.optimization.equivalence import OptimizationProof, _is_finite
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session.session import SessionOptions

LIMIT = "c = Constant <value_float = 7.5> ()  y = Min({x}, c)"
DROPOUT = """
    r = Constant <value_float = 0.5> ()  t = Constant <value = bool {{1}}> ()
    d = Dropout <seed = 3> (x, r, t)
"""


def graph(body: str) -> ir.Model:
    made = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[b,4] x) => (float[b,4] y) {{ {body} }}'
    )
    assert isinstance(made, ir.Model)
    return made


def proof(folder: Path, body: str, **options: Any) -> OptimizationProof:
    path = folder / "source.onnx"
    io.save(graph(body), path)
    return OptimizationProof(path, io.load(path), None, Tolerance(), 0, SessionOptions(), **options)


@pytest.mark.parametrize("exact", [True, False])
def test_what_the_usual_inputs_do_not_show_is_found_beyond_them(tmp_path: Path, exact: bool) -> None:
    judge = proof(tmp_path, "y = Identity(x)", exact=exact)
    assert judge(graph("y = Identity(x)")) is None
    told = judge(graph(LIMIT.format(x="x")))
    assert told is not None and told.startswith("with values ")
    assert judge.report is not None and judge.report.counterexample is not None and not judge.report.ok


def test_models_that_draw_random_numbers_are_tried_beyond_the_usual_inputs_too(tmp_path: Path) -> None:
    source = DROPOUT.format() + "y = Identity(d)"
    judge = proof(tmp_path, source)
    assert judge(graph(source)) is None
    told = judge(graph(DROPOUT.format() + LIMIT.format(x="d")))
    assert told is not None and told.startswith("with values ")


class Wrong:
    """Gives something else than the model that it wraps."""

    def __init__(self, runner: Runner) -> None:
        self.inputs, self.outputs, self._runner = runner.inputs, runner.outputs, runner

    def run(self, feeds: Feeds) -> dict[str, Any]:
        return {name: np.asarray(array) + 1 for name, array in self._runner.run(feeds).items()}


def test_a_result_that_the_runtimes_own_optimizations_break_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = proof(tmp_path, "y = Identity(x)")
    opened = OptimizationProof._candidate

    def broken(self: OptimizationProof, model: ir.Model, options: SessionOptions) -> Runner:
        runner = opened(self, model, options)
        return runner if options.optimization == "off" else Wrong(runner)

    monkeypatch.setattr(OptimizationProof, "_candidate", broken)
    told = judge(graph("y = Identity(x)"))
    assert told is not None and told.startswith("with the runtime's own optimizations, output 'y' differs")
    assert judge.report is not None and judge.report.ok


def test_optimizations_that_break_the_source_too_are_no_fault_of_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = proof(tmp_path, "y = Identity(x)")
    opened = OptimizationProof._open_source
    monkeypatch.setattr(OptimizationProof, "_candidate", lambda self, m, o: broken(OnnxRunner.open(m, o), o))
    monkeypatch.setattr(OptimizationProof, "_open_source", lambda self, o: broken(opened(self, o), o))

    def broken(runner: Runner, options: SessionOptions) -> Runner:
        return runner if options.optimization == "off" else Wrong(runner)

    assert judge(graph("y = Identity(x)")) is None
    assert any("change the results of the source" in line for line in judge.warnings)


def test_bits_are_asked_for_as_long_as_the_source_repeats_them(tmp_path: Path) -> None:
    judge = proof(tmp_path, "y = Identity(x)", exact=True)
    last_bit = "c = Constant <value_float = 1.0000001> ()  y = Mul(x, c)"
    assert judge(graph(last_bit)) is not None
    assert judge.relax() and not judge.relax()
    assert judge(graph(last_bit)) is None and judge(graph("y = Identity(x)")) is None
    assert sum("bits differ" in line for line in judge.warnings) == 1


def test_given_data_is_all_that_is_tried(tmp_path: Path) -> None:
    path = tmp_path / "source.onnx"
    io.save(graph("y = Identity(x)"), path)
    data = {"x": np.ones((3, 4), np.float32)}
    tried = {}
    for given in (None, data):
        judge = OptimizationProof(path, io.load(path), given, Tolerance(), 0, SessionOptions())
        tried[judge.origin] = {np.shape(t.feeds["x"])[0] for t in judge._proof.observe().trials}
    assert 0 in tried["random, seed 0"] and tried["given data"] == {3}


LOOP = """
    n = Constant <value_int = 3> ()  t = Constant <value = bool {1}> ()
    y = Loop <body = b (int64 i, bool c, float[b,4] a) => (bool d, float[b,4] e) {
        d = Identity(c)  r = RandomNormalLike(a)  e = Add(a, r) }> (n, t, x)
"""


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (f"{DROPOUT.format()}  y = Relu(d)", "compared with the same fixed draws in source and result"),
        (LOOP, "of 'y' only types and shapes were compared, not the values"),
        (LOOP.replace("y = Loop", "z = Loop") + "k = Shape(z)  y = Expand(x, k)", "on which no output depends"),
    ],
)
def test_what_is_compared_of_draws_is_said(body: str, told: str, tmp_path: Path) -> None:
    judge = proof(tmp_path, body)
    assert any(line.startswith("the model draws random numbers") and told in line for line in judge.warnings)
    assert judge(graph(body)) is None


@pytest.mark.parametrize(
    ("array", "finite"),
    [
        (np.zeros((0, 2), np.int64), False),
        (np.array([1, 2]), True),
        (np.float32([np.nan, 1]), True),
        (np.float32([np.nan, np.inf]), False),
        (np.array(["a"]), True),
    ],
)
def test_which_outputs_tell_something(array: np.ndarray, finite: bool) -> None:
    assert _is_finite(array) is finite
