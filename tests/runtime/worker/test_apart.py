"""Inputs that native code may die of are run in a child."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxtool
from onnxtool.errors import InputError, OnnxToolError, ResourceError
from onnxtool.model.safety import limits
from onnxtool.options.session import DEFAULT
from onnxtool.runtime.worker import apart as module
from onnxtool.runtime.worker.apart import Apart, Risks, risks_of
from onnxtool.runtime.worker.worker import TrialWorker, Worker

HEAD = '<ir_version: 9, opset_import: ["" : 18]> '
EXPAND = HEAD + "g (int64[k] s, float[1] v) => (float y) { t = Mul(s, s) u = Abs(t) y = Expand(v, u) }"
EINSUM = HEAD + 'g (float[n, 2, 3] x, float[n, 4, 3] w) => (float y) { y = Einsum<equation="bij,bkj->bik">(x, w) }'
WHILE = """g (float[n] x, int64 turns) => (float[n] y) {
    y = Loop(%s, true, x) <body = b (int64 i, bool c, float[n] v) => (bool d, float[n] w) {
        w = Add(v, v) s = ReduceMax<keepdims = 0>(w) d = Less(s, far)
    }>
}"""
UPSAMPLE = HEAD.replace("18", "9") + "g (float[1] x, float[1] s) => (float y) { y = Upsample(x, s) }"


class Here:
    """A model that runs in this process."""

    inputs = outputs = ()

    def run(self, feeds: object) -> dict[str, str]:
        return {"y": "here"}


class There:
    """One that would run in a child."""

    def __init__(self, *_: object) -> None:
        pass

    def usual_seconds(self, _: object) -> float:
        return 1.0

    def run(self, feeds: object, seconds: float | None = None) -> dict[str, str]:
        return {"y": "there"}


@pytest.mark.parametrize(
    ("text", "feeds", "place"),
    [
        (EXPAND, {"s": np.array([2, 3]), "v": np.ones(1)}, "here"),
        (EXPAND, {"s": np.array([2, 30_000]), "v": np.ones(1)}, "there"),
        (EXPAND, {"s": np.array([2, 3]), "v": 1e6 * np.ones(1)}, "here"),
        (UPSAMPLE, {"s": np.array([1e9])}, "there"),
        (EINSUM, {"x": np.ones((0, 2, 3)), "w": np.ones((0, 4, 3))}, "there"),
        (EINSUM, {"x": np.ones((1, 2, 3)), "w": np.ones((1, 4, 3))}, "here"),
        (HEAD + "g (float[n] x) => (float[n] y) { y = Neg(x) }", {"x": np.ones(0)}, "there"),
        (HEAD + "g (float[n] x) => (float[n] y) { y = Neg(x) }", {"x": np.ones(1)}, "here"),
        (HEAD + WHILE % "", {"x": np.ones(3)}, "there"),
        (HEAD + WHILE % "turns", {"x": np.ones(3), "turns": np.array(7)}, "here"),
        (HEAD + "g (int32[n] x, int32[n] d) => (int32[n] y) { y = Div(x, d) }", {"x": np.array([-(2**31)])}, "there"),
        (HEAD + "g (float[n] x, int64 i) => (float[n] y) { s = Shape(x) z = ConstantOfShape(s) y = Add(x, z) }",
         {"i": np.array(2**40)}, "here"),
    ],
)  # fmt: skip
def test_only_what_a_graph_says_may_be_dangerous_goes_to_the_child(
    monkeypatch: pytest.MonkeyPatch, text: str, feeds: dict[str, np.ndarray], place: str
) -> None:
    monkeypatch.setattr(module, "TrialWorker", There)
    model = ir.from_onnx_text(text)
    assert isinstance(model, ir.Model)
    runner = Apart(Here(), "m.onnx", DEFAULT, risks_of([model]))
    assert runner.run(feeds) == {"y": place}


def test_a_size_too_large_is_refused_and_the_child_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(EXPAND), path)
    runner = Apart(Here(), path, DEFAULT, Risks(sizes=frozenset({"s"})))
    with pytest.raises(OnnxToolError):
        runner.run({"s": np.array([2**20, 2**20]), "v": np.ones(1, np.float32)})
    made = runner.run({"s": np.array([1, 20]), "v": np.ones(1, np.float32)})["y"]
    assert made.shape == (1, 400)


def test_an_empty_batch_that_ends_the_process_does_not_end_ours(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(EINSUM), path)
    assert onnxtool.optimize(path, tmp_path / "o.onnx", bench=False).ok
    report = onnxtool.compare(path, path, edge=True, effort="quick")
    assert report.ok
    assert any("'empty batch'" in line for line in report.warnings)


def test_a_loop_that_an_empty_batch_never_ends_does_not_take_the_memory_of_its_caller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The largest of nothing is minus infinity, which is below any bound."""
    model = onnx.parser.parse_model(HEAD + WHILE % "")
    for name, array in {"true": np.array(True), "far": np.float32(50)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    onnx.save(model, tmp_path / "m.onnx")
    graph = ir.from_proto(model)
    runner = Apart(Here(), tmp_path / "m.onnx", DEFAULT, risks_of([graph]))
    monkeypatch.setattr(runner, "_seconds", 1.0)
    with pytest.raises(ResourceError):
        runner.run({"x": np.ones(0, np.float32), "turns": np.array(0)})
    assert runner.run({"x": np.ones(2, np.float32), "turns": np.array(0)})["y"].tolist() == [64.0, 64.0]


DEADLY = (
    HEAD
    + """g (int64[2, 1, 1] x) => (int64[a, b] y) {
    n = Constant<value_int = 3>() l = Loop(n, , x) <body = b (int64 i, bool c, int64[] v) => (bool d, int64[] w) {
        d = Identity(c) w = Identity(i)
    }>
    y = Einsum<equation = "ij->ji">(l)
}"""
)  # Einsum gets a scalar, on which the runtime ends its process


def test_a_model_that_ends_its_process_does_not_end_the_program(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(DEADLY), path)
    assert any("crashed" in f.message for f in onnxtool.check(path).findings)
    for command in (
        lambda: onnxtool.optimize(path, tmp_path / "o.onnx"),
        lambda: onnxtool.compare(path, path),
        lambda: onnxtool.edit(path, tmp_path / "o.onnx", ["rename-input=x=z"]),
        lambda: onnxtool.run(path),
        lambda: onnxtool.bench(path, budget=0.1),
    ):
        with pytest.raises(InputError, match="crashed"):
            command()
    assert not (tmp_path / "o.onnx").exists()


def test_models_of_known_operators_are_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(HEAD + "g (float[n] x) => (float[n] y) { y = Relu(x) }"), path)
    monkeypatch.setattr(module, "TrialWorker", None)
    module.try_in_child(path, DEFAULT)


def test_large_sizes_that_nobody_gave_run_in_a_child(tmp_path: Path) -> None:
    text = HEAD + "g (float[2, n] x, float[2000] w) => (float y) { t = Transpose<perm = [1, 0]>(x) y = MatMul(t, x) }"
    risks = risks_of([ir.from_proto(onnx.parser.parse_model(text))])
    w = np.zeros(2000, np.float32)
    assert risks.open == {("x", 1)}
    assert risks.meets({"x": np.zeros((2, 1024), np.float32), "w": w})
    assert not risks.meets({"x": np.zeros((2, 1023), np.float32), "w": w})


@pytest.mark.parametrize("command", [onnxtool.check, onnxtool.run])
def test_a_loop_that_does_not_end_is_ended(
    command: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        HEAD
        + """g (float[2] x) => (float[2] y) {
        n = Constant<value_int = 4611686018427387904>()
        y = Loop(n, , x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w) {
            d = Identity(c) w = Identity(v)
        }>
    }"""
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    monkeypatch.setattr(limits.DEFAULT, "max_seconds", 2.0)
    with pytest.raises(ResourceError, match=r"m\.onnx: .*longer than 2"):
        command(tmp_path / "m.onnx")


def test_an_input_that_a_function_takes_for_a_size_is_one() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18, "own" : 1]> g (float[n] x, int64 turns) => (float[n] y)
    { y = own.F(x, turns) }
    <domain: "own", opset_import: ["" : %d]> F (x, turns) => (y)
    { y = Loop(turns, , x) <body = b (int64 i, bool c, float[n] v) => (bool d, float[n] w)
        { d = Identity(c) w = Add(v, v) }> }"""
    for version in (18, 17):  # the second one cannot be inlined
        model = ir.from_onnx_text(text % version)
        assert risks_of([model]).sizes >= {"turns"}
        assert [n.op_type for n in model.graph] == ["F"]


def test_what_is_risky_is_seen_in_functions_bodies_and_limits_that_are_none() -> None:
    inside = """<ir_version: 9, opset_import: ["" : 18, "own" : 1]> g (int32[n] x) => (int32[n] y) { y = own.F(x) }
    <domain: "own", opset_import: ["" : 18]> F (x) => (y) { y = Div(x, x) }"""
    assert risks_of([ir.from_onnx_text(inside)]).extremes
    for turns, endless in ((1 << 40, True), (1000, False)):
        limit = f"k = Constant <value_int = {turns}> ()  far = Constant <value_float = 9.0> ()"
        loop = (WHILE % "k").replace("{\n    y =", f"{{ {limit} true = Constant <value = bool {{1}}> ()\n    y =", 1)
        assert risks_of([ir.from_onnx_text(HEAD + loop)]).endless is endless
    carried = """g (float[n] x, int64[1] size) => (float y) { k = Constant <value_int = 2> ()
        t = Constant <value = bool {1}> ()
        s, y = Loop(k, t, size) <body = b (int64 i, bool c, int64[1] own) => (bool d, int64[1] next, float z)
            { d = Identity(c) next = Identity(own) z = ConstantOfShape(own) }> }"""
    assert "size" in risks_of([ir.from_onnx_text(HEAD + carried)]).sizes


def test_a_trial_gets_no_more_time_because_the_machine_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float | None] = []
    monkeypatch.setattr(Worker, "run", lambda _, __, seconds=None: given.append(seconds))
    monkeypatch.setattr(Worker, "usual_seconds", lambda *_: 7.0)
    trial = TrialWorker.__new__(TrialWorker)
    trial.run({})
    trial.run({}, 2.0)
    assert given == [7.0, 2.0]
