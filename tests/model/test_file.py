"""A model file is read once, however much is asked of it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxtool.errors import InputError, UsageError
from onnxtool.model.file import ModelFile
from onnxtool.model.io import lazy_read, read
from onnxtool.runtime.runner import OnnxRunner

_HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'
_CALM = "g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }"


def _saved(folder: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(_HEADER + text), folder / "m.onnx")
    return folder / "m.onnx"


def _with_weight(folder: Path, elements: int, *, external: bool = False) -> Path:
    weight = onnx.numpy_helper.from_array(np.arange(elements, dtype=np.float32), "w")
    graph = onnx.parser.parse_graph(f"g (float[{elements}] x) => (float[{elements}] y) {{ y = Mul(x, w) }}")
    graph.initializer.append(weight)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, folder / "m.onnx", save_as_external_data=external, location="m.data", size_threshold=0)
    return folder / "m.onnx"


def test_one_reading_answers_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _saved(tmp_path, _CALM)
    file, readings, real = ModelFile(path), [], read._read_whole
    monkeypatch.setattr(read, "_read_whole", lambda *given: readings.append(given) or real(*given))

    file.verify()
    assert [s.name for s in file.inputs] == ["x"] and [s.name for s in file.outputs] == ["y"]
    assert file.header.opsets == {"ai.onnx": 20}
    assert file.bytes == path.stat().st_size and file.sha256 == read.sha256(path)
    assert file.proto.graph.node[0].op_type == "Relu" and not file.view.random_nodes
    assert [n.op_type for n in file.graph().graph] == ["Relu"]
    assert len(readings) == 1


def test_each_graph_is_a_fresh_one(tmp_path: Path) -> None:
    file = ModelFile(_saved(tmp_path, _CALM))
    first = file.graph()
    first.graph.remove(first.graph[0])

    assert [n.op_type for n in file.graph().graph] == ["Relu"]
    assert len(file.proto.graph.node) == 1


def test_what_lifting_mends_is_left_in_the_message(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(_HEADER + _CALM)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    onnx.save(model, tmp_path / "m.onnx")
    file = ModelFile(tmp_path / "m.onnx")

    dims = file.graph().graph.inputs[0].shape
    assert dims is not None and not isinstance(dims[0], int)
    assert file.outline.graph.input[0].type.tensor_type.shape.dim[0].dim_value == -1


@pytest.mark.parametrize(
    ("body", "drawn"),
    [
        ("y = Relu(x)", False),
        ("r = RandomNormalLike(x) y = Add(x, r)", True),
        ("c = Constant <value = bool {1}> () "
         "y = If (c) <then_branch = t () => (float[n, 3] a) { a = RandomUniformLike(x) }, "
         "else_branch = e () => (float[n, 3] b) { b = Identity(x) }>", True),
        ("r = Constant <value = float {0.5}> () t = Constant <value = bool {1}> () y = Dropout(x, r, t)", True),
        ("r = Constant <value = float {0.5}> () t = Constant <value = bool {0}> () y = Dropout(x, r, t)", False),
    ],
    ids=["calm", "plain", "branch", "training", "inference"],
)  # fmt: skip
def test_it_knows_whether_it_draws_random_numbers(tmp_path: Path, body: str, drawn: bool) -> None:
    file = ModelFile(_saved(tmp_path, f"g (float[n, 3] x) => (float[n, 3] y) {{ {body} }}"))
    assert bool(file.view.random_nodes) is drawn


def test_it_stands_where_a_path_stands(tmp_path: Path) -> None:
    file = ModelFile.of(os.fspath(_with_weight(tmp_path, 4)))

    assert ModelFile.of(file) is file
    assert str(file) == os.fspath(file) == str(file.path)
    result = OnnxRunner.open(file).run({"x": np.ones(4, np.float32)})["y"]
    np.testing.assert_array_equal(result, np.arange(4, dtype=np.float32))


def test_external_data_counts_and_stays_outside(tmp_path: Path) -> None:
    file = ModelFile(_with_weight(tmp_path, 64, external=True))

    assert file.external_files == [tmp_path / "m.data"]
    assert file.bytes == sum(f.stat().st_size for f in tmp_path.iterdir())
    assert file.proto is file.outline


@pytest.mark.parametrize("in_place", [True, False])
def test_large_weights_stay_in_the_file_unless_the_whole_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    monkeypatch.setattr(lazy_read, "WORTHWHILE", 1)
    file = ModelFile(_with_weight(tmp_path, 4096))

    assert file.outline.ByteSize() < 1000 < file.proto.ByteSize()
    assert file.bytes == file.path.stat().st_size and file.external_files == []
    weight = file.graph(in_place=in_place).graph.initializers["w"].const_value
    assert isinstance(weight, ir.ExternalTensor) is in_place
    np.testing.assert_array_equal(weight.numpy(), np.arange(4096, dtype=np.float32))


def test_what_is_no_model_is_refused_when_it_is_asked(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("no model")
    file = ModelFile(tmp_path / "m.onnx")

    for ask in (file.verify, file.graph, lambda: file.header):
        with pytest.raises(InputError, match=r"m\.onnx: this is a text file"):
            ask()
    with pytest.raises(UsageError, match="a model is a path"):
        ModelFile.of(3)
