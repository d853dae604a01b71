"""Removing inputs, element types and order of dims."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxtool.editing.edit import edit
from onnxtool.errors import InputError, UnsupportedError, UsageError
from tests.editing.conftest import Editor, write

SCALED = "g (float[2, 3] x, float k, float[2] spare) => (float[2, 3] y) { y = Mul(x, k) }"
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
PICTURE = """
g (float[n, 3, 4, 5] x) => (float[n, 2, 4, 5] y) {
    y = Conv<kernel_shape=[1, 1]>(x, w)
}
"""
W = np.array([[1, 2, 3], [-1, 0, 1]], np.float32).reshape(2, 3, 1, 1)


def test_removes_an_input_that_nothing_reads(edited: Editor) -> None:
    made = edited(SCALED, "remove-input=spare")
    assert [i.name for i in made.report.inputs] == ["x", "k"]


def test_does_not_remove_an_input_that_is_read(edited: Editor) -> None:
    with pytest.raises(UsageError, match="1 nodes read it; give it a value"):
        edited(SCALED, "remove-input=k")


def test_gives_an_input_a_number_for_good(edited: Editor) -> None:
    made = edited(SCALED, "remove-input=k=3", "remove-input=spare")
    assert np.array_equal(made.run(x=X)["y"], 3 * X)


def test_gives_an_input_an_array(edited: Editor, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    made = edited(SCALED, f"remove-input=x={tmp_path / 'x.npy'}", "remove-input=spare")
    assert np.array_equal(made.run(k=np.float32(2))["y"], 2 * X)


def test_an_array_of_another_shape_is_refused(edited: Editor, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.T)
    with pytest.raises(UsageError, match=r"has shape \[3, 2\]"):
        edited(SCALED, f"remove-input=x={tmp_path / 'x.npy'}")


def test_a_pickle_is_not_loaded(edited: Editor, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="holds pickled objects"):
        edited(SCALED, f"remove-input=x={tmp_path / 'x.npy'}")


def test_an_open_shape_takes_no_number(edited: Editor) -> None:
    with pytest.raises(UsageError, match="has no fixed shape"):
        edited("g (float[n] x, float[n] k) => (float[n] y) { y = Mul(x, k) }", "remove-input=k=1")


@pytest.mark.parametrize("kind", ["uint8", "float16", "int64", "float64"])
def test_input_of_another_type(edited: Editor, kind: str) -> None:
    made = edited(SCALED, f"io-dtype=x:{kind}", "remove-input=spare")
    given = np.abs(X).astype(kind)
    assert np.array_equal(made.run(x=given, k=np.float32(2))["y"], 2 * np.abs(X))


def test_output_of_another_type_is_cut_to_its_range(edited: Editor) -> None:
    made = edited(SCALED, "io-dtype=y:uint8", "remove-input=spare")
    got = made.run(x=X, k=np.float32(200))["y"]
    assert got.dtype == np.uint8
    assert np.array_equal(got, np.clip(200 * X, 0, 255).astype(np.uint8))


def test_whole_numbers_are_cut_to_a_smaller_range_too(edited: Editor) -> None:
    made = edited("g (int64[n] x) => (int64[n] y) { y = Neg(x) }", "io-dtype=y:uint8")
    assert made.run(x=np.int64([61, -300, -(2**40), -5]))["y"].tolist() == [0, 255, 255, 5]


def test_output_as_float16(edited: Editor) -> None:
    made = edited(SCALED, "io-dtype=y:float16", "remove-input=spare")
    assert np.array_equal(made.run(x=X, k=np.float32(0.3))["y"], (X * np.float32(0.3)).astype(np.float16))


@pytest.mark.parametrize("text", ["x:float32", "x:string", "x:frob", "nothing:int8", "x"])
def test_a_type_that_cannot_be_is_refused(edited: Editor, text: str) -> None:
    with pytest.raises(UsageError):
        edited(SCALED, f"io-dtype={text}")


def test_input_in_another_layout(edited: Editor) -> None:
    made = edited(PICTURE, "layout=x:nhwc", weights={"w": W})
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    assert str(made.report.inputs[0]) == "x: float32[n, 4, 5, 3]"
    assert np.array_equal(made.run(x=np.ascontiguousarray(x.transpose(0, 2, 3, 1)))["y"], made.before(x=x)["y"])


@pytest.mark.parametrize(("operation", "place"), [("layout=x:nhwc", "input"), ("io-dtype=y:float16", "output")])
def test_what_the_file_says_of_an_input_or_output_stays(tmp_path: Path, operation: str, place: str) -> None:
    proto = onnx.load(write(tmp_path / "m.onnx", PICTURE, {"w": W}))
    getattr(proto.graph, place)[0].doc_string = "in metres"
    onnx.save(proto, tmp_path / "m.onnx")
    assert edit(tmp_path / "m.onnx", tmp_path / "out.onnx", [operation]).ok
    assert getattr(onnx.load(tmp_path / "out.onnx").graph, place)[0].doc_string == "in metres"


def test_output_in_another_layout_and_back(edited: Editor) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 4, 5)).astype(np.float32)
    made = edited(PICTURE, "layout=y:nhwc", weights={"w": W})
    assert np.array_equal(made.run(x=x)["y"], made.before(x=x)["y"].transpose(0, 2, 3, 1))
    back = edited(PICTURE, "layout=y:nhwc", "layout=y:nchw", weights={"w": W})
    assert np.array_equal(back.run(x=x)["y"], back.before(x=x)["y"])


def test_a_vector_has_no_layout(edited: Editor) -> None:
    with pytest.raises(UnsupportedError, match="3 dims or more"):
        edited(SCALED, "layout=spare:nhwc")


def test_an_input_that_is_an_output_as_it_is(edited: Editor) -> None:
    with pytest.raises(UnsupportedError, match="is an output as it is"):
        edited("g (float[2, 3] x) => (float[2, 3] x, float[2, 3] y) { y = Neg(x) }", "io-dtype=x:float16")


def test_a_name_with_a_colon_has_a_layout(edited: Editor) -> None:
    made = edited('g (float[n, 2, 3, 4] "x:0") => (float[n, 2, 3, 4] y) { y = Neg("x:0") }', "layout=x:0:nhwc")
    assert made.report.inputs[0].shape == ("n", 3, 4, 2)
