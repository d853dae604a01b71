"""ONNX's own folders of test data, and folders with an .npy file for each input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxtool
from onnxtool.errors import InputError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.open_data import open_data

SPECS = (TensorSpec("x", np.dtype("float32"), ("n", 2)), TensorSpec("k", np.dtype("int64"), ()))


def sample(folder: Path, number: float, *, named: bool = True) -> None:
    folder.mkdir(parents=True)
    x, k = np.full((1, 2), number, np.float32), np.array(int(number), np.int64)
    pair = [(x, "x"), (k, "k")] if named else [(x, ""), (k, "")]
    for index, (array, name) in enumerate(pair):
        (folder / f"input_{index}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())
    (folder / "output_0.pb").write_bytes(b"not read")


@pytest.mark.parametrize("named", [True, False])
def test_each_folder_is_a_sample_in_the_order_of_their_numbers(tmp_path: Path, named: bool) -> None:
    for number in (10, 2, 1):
        sample(tmp_path / f"test_data_set_{number}", number, named=named)
    (tmp_path / "model.onnx").write_bytes(b"")
    found = list(open_data(tmp_path, SPECS).samples())
    assert [float(f["x"][0, 0]) for f in found] == [1, 2, 10]
    assert [int(f["k"]) for f in found] == [1, 2, 10]


def test_one_such_folder_is_one_sample(tmp_path: Path) -> None:
    sample(tmp_path / "test_data_set_0", 4)
    assert open_data(tmp_path / "test_data_set_0", SPECS).count == 1


def test_folders_with_an_array_for_each_input(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        np.save(tmp_path / str(number) / "x.npy", np.full((1, 2), number, np.float32))
        np.save(tmp_path / str(number) / "k.npy", np.int64(number))
    assert [int(f["k"]) for f in open_data(tmp_path, SPECS).samples()] == [0, 1, 2]


@pytest.mark.parametrize("form", ["text", "archive"])
def test_a_file_that_is_no_array_is_one_line(tmp_path: Path, form: str) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 2), np.float32))
    if form == "text":
        (tmp_path / "k.npy").write_text("4")
    else:
        with open(tmp_path / "k.npy", "wb") as file:
            np.savez(file, k=np.int64(4))
    with pytest.raises(InputError, match=r"k\.npy: is not an .*\.npy file"):
        open_data(tmp_path, SPECS).first()


def test_damaged_and_external_tensors_are_one_line(tmp_path: Path) -> None:
    sample(tmp_path / "s", 1)
    (tmp_path / "s" / "input_0.pb").write_bytes(b"\xff\xff\xff")
    with pytest.raises(InputError, match=r"input_0\.pb"):
        open_data(tmp_path / "s", SPECS).first()
    outside = onnx.TensorProto(dims=[1, 2], data_type=1, data_location=onnx.TensorProto.EXTERNAL, name="x")
    outside.external_data.add(key="location", value="/etc/passwd")
    (tmp_path / "s" / "input_0.pb").write_bytes(outside.SerializeToString())
    with pytest.raises(InputError, match="is not followed"):
        open_data(tmp_path / "s", SPECS).first()


SEQUENCE = (TensorSpec("s", "seq(tensor(float))", None), TensorSpec("o", "optional(tensor(float))", None))


def of_sequences(folder: Path, *, outside: bool = False) -> list[np.ndarray]:
    """A sample of a sequence of two tensors and an optional that holds none."""
    folder.mkdir(parents=True)
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(4, dtype=np.float32)]
    sequence = numpy_helper.from_list(arrays, "s")
    if outside:
        tensor = sequence.tensor_values[1]
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="/etc/passwd")
    (folder / "input_0.pb").write_bytes(sequence.SerializeToString())
    (folder / "input_1.pb").write_bytes(
        numpy_helper.from_optional(None, "o", onnx.OptionalProto.TENSOR).SerializeToString()
    )
    return arrays


def test_sequences_and_optionals(tmp_path: Path) -> None:
    arrays = of_sequences(tmp_path / "s")
    found = open_data(tmp_path / "s", SEQUENCE).first()
    assert isinstance(found["s"], list) and found["o"] is None
    for actual, expected in zip(found["s"], arrays, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_tensors_of_a_sequence_are_not_followed_either(tmp_path: Path) -> None:
    of_sequences(tmp_path / "s", outside=True)
    with pytest.raises(InputError, match="is not followed"):
        open_data(tmp_path / "s", SEQUENCE).first()


@pytest.mark.parametrize("chosen", [0, 1])
def test_a_model_of_sequences_is_optimized_with_its_own_data(tmp_path: Path, chosen: int) -> None:
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (seq(float) s) => (float[n] y) {{
        i = Constant<value_int = {chosen}>() z = Identity(s) a = SequenceAt(z, i) m = Constant<value_ints = [-1]>()
        y = Reshape(a, m)
    }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    of_sequences(tmp_path / "data" / "test_data_set_0")
    (tmp_path / "data" / "test_data_set_0" / "input_1.pb").unlink()
    report = onnxtool.optimize(tmp_path / "m.onnx", tmp_path / "o.onnx", data=tmp_path / "data", bench=False)
    assert report.ok and "Identity" not in {n.op_type for n in onnx.load(tmp_path / "o.onnx").graph.node}
    assert onnxtool.compare(tmp_path / "m.onnx", tmp_path / "o.onnx", data=tmp_path / "data").ok
