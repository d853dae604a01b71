"""run: inputs from every source, outputs as the runtime gives them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from onnxtool.errors import InputError, UsageError
from onnxtool.runtime.output_files import write_npz
from onnxtool.runtime.run import run, summarise


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_outputs_are_those_of_the_runtime(digits_onnx: Path, fixtures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    report = run(digits_onnx, data=fixtures / "eval.npz", output=out)
    image = np.load(fixtures / "eval.npz")["image"]
    session = ort.InferenceSession(digits_onnx, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"image": image})[0]
    np.testing.assert_allclose(np.load(out)["logits"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.load(out)["logits"], report.values["logits"])
    assert report.outputs[0].maximum == pytest.approx(float(expected.max()), rel=1e-5)
    assert "values" not in report.to_dict()


def test_random_inputs_are_seeded(relu_proto: onnx.ModelProto, tmp_path: Path) -> None:
    path = saved(relu_proto, tmp_path)
    first, again, other = (run(path, seed=s, batch=4).values["y"] for s in (0, 0, 1))
    assert first.shape == (4, 2)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_folder_single_files_and_arrays_are_the_same_inputs(relu_proto: onnx.ModelProto, tmp_path: Path) -> None:
    path = saved(relu_proto, tmp_path)
    x = np.array([[1, 2, 3]], np.float32)
    folder = tmp_path / "data"
    folder.mkdir()
    np.save(folder / "x.npy", x)
    expected = np.maximum(x @ np.array([[1, -1], [0.5, 0.25], [-2, 3]], np.float32), 0)
    for given in ({"data": folder}, {"data": {"x": x}}, {"inputs": {"x": folder / "x.npy"}}):
        np.testing.assert_allclose(run(path, **given).values["y"], expected)  # type: ignore[arg-type]


def test_clear_errors(relu_proto: onnx.ModelProto, tmp_path: Path) -> None:
    path = saved(relu_proto, tmp_path)
    np.save(tmp_path / "x.npy", np.zeros((1, 3), np.float32))
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    with pytest.raises(UsageError, match="--input q"):
        run(path, inputs={"q": tmp_path / "x.npy"})
    with pytest.raises(InputError, match="pickled"):
        run(path, data=tmp_path / "objects.npz")
    with pytest.raises(InputError, match=r"shape \[1, 4\]"):
        run(path, data={"x": np.zeros((1, 4), np.float32)})
    with pytest.raises(InputError, match="int64 in the data"):
        run(path, data={"x": np.zeros((1, 3), np.int64)})
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match=r"no \.npy, \.npz or picture files"):
        run(path, data=empty)
    with pytest.raises(UsageError, match="is a folder"):
        run(path, output=tmp_path)


def test_nan_and_infinities_are_told(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Log", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    report = run(saved(model, tmp_path), data={"x": np.array([-1, 0, 1], np.float32)})
    assert (report.outputs[0].nans, report.outputs[0].infinities) == (1, 1)
    assert report.outputs[0].mean == 0.0
    assert report.warnings == ("output y holds 1 NaN and 1 infinite values",)


def test_every_name_and_type_survives_in_the_npz(tmp_path: Path) -> None:
    import ml_dtypes

    arrays = {
        "file": np.array([1, 2]),
        "a/b": np.array(["x", "yy"], dtype=object),
        "half": np.array([1.5], ml_dtypes.bfloat16),
    }
    write_npz(tmp_path / "o.npz", arrays)
    read = np.load(tmp_path / "o.npz", allow_pickle=False)
    assert sorted(read.files) == ["a/b", "file", "half"]
    assert read["a/b"].tolist() == ["x", "yy"]
    assert read["half"].dtype == np.float32
    assert read["half"].tolist() == [1.5]
    first = (tmp_path / "o.npz").read_bytes()
    write_npz(tmp_path / "o.npz", arrays)
    assert (tmp_path / "o.npz").read_bytes() == first


def test_summary_of_strings_and_empty_arrays() -> None:
    assert summarise("s", np.array(["a"], dtype=object)).dtype == "string"
    assert summarise("e", np.zeros((0, 2), np.float32)).minimum is None


def lookup() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["y"], name="look")],
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", "length"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "length", 2])],
        [onnx.numpy_helper.from_array(np.ones((7, 2), np.float32), "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_an_id_beyond_its_table_is_named_with_file_and_place(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", ids=np.array([[0, 1], [2, 7]]))
    with pytest.raises(InputError, match=r"d\.npz: input 'ids' holds 7 at \[1, 1\]; .* node 'look' has rows 0 to 6"):
        run(saved(lookup(), tmp_path), data=tmp_path / "d.npz")


def test_pickled_arrays_are_named_with_what_to_do(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", ids=np.zeros((1, 2), np.int64), notes=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match=r"array 'notes' holds pickled objects.*array\.astype"):
        run(saved(lookup(), tmp_path), data=tmp_path / "d.npz")
