"""Cutting a part out of a model, and putting two models together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxtool.editing.edit import edit
from onnxtool.errors import UsageError
from onnxtool.runtime.runner import OnnxRunner
from tests.editing.conftest import Editor, write

CHAIN = """
g (float[n, 4] x, float[n, 4] y) => (float[n, 2] z) {
    a = MatMul(x, w)
    b = Add(a, y)
    c = Relu(b)
    z = MatMul(c, v)
}
"""
WEIGHTS = {
    "w": np.arange(16, dtype=np.float32).reshape(4, 4) / 8 - 1,
    "v": np.arange(8, dtype=np.float32).reshape(4, 2) / 4 - 1,
}
X = np.array([[1, -2, 3, -4], [0.5, 1, 0, 2]], np.float32)


def test_keeps_what_lies_between(edited: Editor) -> None:
    made = edited(CHAIN, "extract=a,y:c", weights=WEIGHTS)
    assert [n.op_type for n in made.proto.graph.node] == ["Add", "Relu"]
    assert not made.proto.graph.initializer
    assert np.array_equal(made.run(a=X, y=X)["c"], np.maximum(2 * X, 0))


def test_names_the_input_that_is_missing(edited: Editor) -> None:
    with pytest.raises(UsageError, match="also needs the input 'y'; name it too"):
        edited(CHAIN, "extract=a:c", weights=WEIGHTS)


def test_an_input_that_is_not_needed_is_left_out(edited: Editor) -> None:
    made = edited(CHAIN, "extract=x:a", weights=WEIGHTS)
    assert [i.name for i in made.report.inputs] == ["x"]
    assert made.report.outputs[0].name == "a"


def test_names_may_hold_colons(edited: Editor, tmp_path: Path) -> None:
    made = edited(CHAIN, "rename-input=x=x:0", "rename-output=z=z:0", "extract=x:0,y:z:0", weights=WEIGHTS)
    assert [i.name for i in made.report.inputs] == ["x:0", "y"]
    assert [o.name for o in made.report.outputs] == ["z:0"]


@pytest.mark.parametrize("text", ["x,y:nothing", "w:z", "x:x", "x", ":", "x:"])
def test_nonsense_is_refused(edited: Editor, text: str) -> None:
    with pytest.raises(UsageError):
        edited(CHAIN, f"extract={text}", weights=WEIGHTS)


def test_two_models_one_after_the_other(edited: Editor, tmp_path: Path) -> None:
    write(
        tmp_path / "tail.onnx",
        "g (float[m, 2] x) => (float[m, 2] y) { a = Neg(x) y = Add(a, w) }",
        {"w": np.float32([1, 2])},
    )
    made = edited(CHAIN, f"append={tmp_path / 'tail.onnx'}", "connect=z=x", weights=WEIGHTS)
    assert [i.name for i in made.report.inputs] == ["x", "y"]
    assert np.allclose(next(iter(made.run(x=X, y=X).values())), -made.before(x=X, y=X)["z"] + np.float32([1, 2]))


def test_a_model_before(edited: Editor, tmp_path: Path) -> None:
    write(tmp_path / "head.onnx", "g (float[m, 4] x) => (float[m, 4] p, float[m, 4] q) { p = Neg(x) q = Abs(x) }")
    made = edited(CHAIN, f"prepend={tmp_path / 'head.onnx'}", "connect=p=x", "connect=q=y", weights=WEIGHTS)
    assert [i.name for i in made.report.inputs] == ["x"]
    assert np.allclose(next(iter(made.run(x=X).values())), made.before(x=-X, y=np.abs(X))["z"])


def test_weights_of_each_model_are_read_from_its_own_folder(tmp_path: Path) -> None:
    """Both have a file of the same name beside them."""
    for name, weight in (("head", [1, 2]), ("tail", [5, 6])):
        (tmp_path / name).mkdir()
        text = "g (float[m, 2] x) => (float[m, 2] y) { y = Add(x, w) }"
        proto = onnx.load(write(tmp_path / name / "m.onnx", text, {"w": np.float32(weight)}))
        path = tmp_path / name / "m.onnx"
        onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    joined = f"append={tmp_path / 'tail' / 'm.onnx'}"
    assert edit(tmp_path / "head" / "m.onnx", tmp_path / "out.onnx", [joined]).ok
    (found,) = OnnxRunner.open(tmp_path / "out.onnx").run({"x": np.zeros((1, 2), np.float32)}).values()
    assert found.tolist() == [[6, 8]]


def test_outputs_that_are_not_connected_stay(edited: Editor, tmp_path: Path) -> None:
    write(tmp_path / "head.onnx", "g (float[m, 4] x) => (float[m, 4] p, float[m, 4] q) { p = Neg(x) q = Abs(x) }")
    made = edited(CHAIN, f"prepend={tmp_path / 'head.onnx'}", "connect=p=x", weights=WEIGHTS)
    assert [o.name for o in made.report.outputs] == ["q", "z"]
    assert len(made.report.inputs) == 2


def test_connections_must_fit(edited: Editor, tmp_path: Path) -> None:
    tail = write(tmp_path / "tail.onnx", "g (float[m, 5] t) => (float[m, 5] u) { u = Neg(t) }")
    with pytest.raises(UsageError, match="does not fit"):
        edited(CHAIN, f"append={tail}", weights=WEIGHTS)
    with pytest.raises(UsageError, match="there is no input 'tt'; did you mean 't'"):
        edited(CHAIN, f"append={tail}", "connect=z=tt", weights=WEIGHTS)
    with pytest.raises(UsageError, match="belongs right after --append"):
        edited(CHAIN, "connect=z=t", weights=WEIGHTS)


def test_older_operators_are_lifted(edited: Editor, tmp_path: Path) -> None:
    tail = write(tmp_path / "tail.onnx", "g (float[m, 2] t) => (float[m, 2] u) { u = Neg(t) }", opset=13)
    made = edited(CHAIN, f"append={tail}", weights=WEIGHTS)
    assert made.proto.opset_import[0].version == 18


def test_a_part_and_the_rest_are_the_whole(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.onnx", CHAIN, WEIGHTS)
    head, tail, again = (tmp_path / f"{n}.onnx" for n in ("head", "tail", "again"))
    edit(whole, head, ["extract=x,y:b"])
    edit(whole, tail, ["extract=b:z"])
    edit(head, again, [("append", str(tail)), ("connect", "b=b")])
    feeds = {"x": X, "y": X}
    results = [next(iter(OnnxRunner.open(p).run(feeds).values())) for p in (whole, again)]
    assert np.array_equal(*results)
