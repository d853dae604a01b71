"""Names of inputs and outputs, and which tensors are outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxtool.errors import UsageError, VerdictError
from tests.editing.conftest import Editor

TWO = """
g (float[n, 4] x, float[n, 4] y) => (float[n, 4] z, float[n, 4] w) {
    s = Add(x, y)
    z = Relu(s)
    w = Neg(x)
}
"""
X = np.array([[1, -2, 3, -4]], np.float32)


def test_renames_an_input(edited: Editor) -> None:
    made = edited(TWO, "rename-input=x=image")
    assert [i.name for i in made.report.inputs] == ["image", "y"]
    assert np.array_equal(made.run(image=X, y=X)["z"], np.maximum(2 * X, 0))


def test_renames_an_output(edited: Editor) -> None:
    made = edited(TWO, "rename-output=z=result")
    assert list(made.run(x=X, y=X)) == ["result", "w"]


def test_renames_an_input_that_has_a_default(edited: Editor) -> None:
    text = "g (float[1, 4] x, float[1, 4] y) => (float[1, 4] z) { z = Add(x, y) }"
    made = edited(text, "rename-input=y=bias", weights={"y": np.ones((1, 4), np.float32)})
    assert np.array_equal(made.run(x=X)["z"], X + 1)
    assert np.array_equal(made.run(x=X, bias=X)["z"], 2 * X) if "bias" in [i.name for i in made.report.inputs] else True


def test_does_not_take_a_name_that_is_taken(edited: Editor) -> None:
    with pytest.raises(UsageError, match="the name 's' is taken"):
        edited(TWO, "rename-input=x=s")


def test_says_the_nearest_name(edited: Editor) -> None:
    with pytest.raises(UsageError, match="there is no output 'Z'; did you mean 'z'"):
        edited(TWO, "rename-output=Z=result")


def test_adds_an_output_with_its_type_worked_out(edited: Editor) -> None:
    made = edited(TWO, "add-output=s")
    assert str(made.report.outputs[2]) == "s: float32[n, 4]"
    assert np.array_equal(made.run(x=X, y=X)["s"], 2 * X)


@pytest.mark.parametrize("name", ["z", "x"])
def test_adds_no_output_that_is_one_or_is_an_input(edited: Editor, name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' is"):
        edited(TWO, f"add-output={name}")


def test_removes_an_output_and_what_made_it(edited: Editor) -> None:
    made = edited(TWO, "remove-output=w")
    assert [n.op_type for n in made.proto.graph.node] == ["Add", "Relu"]
    assert np.array_equal(made.run(x=X, y=X)["z"], np.maximum(2 * X, 0))


def test_keeps_the_last_output(edited: Editor) -> None:
    with pytest.raises(UsageError, match="the only output"):
        edited(TWO, "remove-output=w", "remove-output=z")


def test_operations_apply_in_the_order_given(edited: Editor) -> None:
    made = edited(TWO, "rename-input=x=a", "rename-input=a=b", "rename-output=w=x")
    assert [i.name for i in made.report.inputs] == ["b", "y"]
    assert [s.operation for s in made.report.steps] == ["rename-input", "rename-input", "rename-output"]
    with pytest.raises(UsageError, match="the name 'x' is taken"):
        edited(TWO, "rename-output=w=x", "rename-input=x=a")


def test_nothing_is_left_when_a_name_is_wrong(edited: Editor, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        edited(TWO, "rename-input=x=a", "remove-output=nothing")
    assert [p.name for p in tmp_path.iterdir()] == ["source.onnx"]


def test_an_output_that_is_never_a_number_is_not_called_equal(edited: Editor, tmp_path: Path) -> None:
    text = "g (float[n, 4] x) => (float[n, 4] y) { a = Abs(x) b = Sub(a, a) c = Sub(b, one) y = Log(c) }"
    weights = {"one": np.ones(1, np.float32)}
    with pytest.raises(VerdictError, match=r"assumed, and not proven: output 'z' has not changed .*not finite"):
        edited(text, "rename-output=y=z", weights=weights)
    assert not (tmp_path / "output.onnx").exists()
    made = edited(text, "rename-output=y=z", weights=weights, allow_unproven=True)
    assert not made.report.ok
    assert [a.status for s in made.report.steps for a in s.assumptions] == ["unproven"]
