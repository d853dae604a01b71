"""Loading and atomic saving."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from onnxtool.errors import InputError, ResourceError, UnsafeError, UsageError
from onnxtool.model import io
from onnxtool.model.header import read_header
from onnxtool.model.safety.limits import Limits


def external(model: onnx.ModelProto, location: str, *, offset: int = 0, length: int | None = None) -> onnx.ModelProto:
    """The model with its weight declared to lie in an external file."""
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": location, "offset": str(offset)} | ({} if length is None else {"length": str(length)})
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return model


def output(path: Path) -> np.ndarray:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def test_saved_model_computes_the_same(tmp_path: Path, relu_proto: onnx.ModelProto) -> None:
    source = tmp_path / "a.onnx"
    onnx.save(relu_proto, source)
    io.save(io.load(source), tmp_path / "b.onnx")
    np.testing.assert_array_equal(output(tmp_path / "b.onnx"), output(source))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.onnx", "b.onnx"]


def test_external_save_over_itself_keeps_one_whole_pair(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    big = numpy_helper.from_array(np.arange(3000, dtype=np.float32).reshape(3, 1000), "w")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "big",
        [onnx.helper.make_tensor_value_info("x", 1, [2, 3])],
        [onnx.helper.make_tensor_value_info("y", 1, [2, 1000])],
        [big],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), path)
    before = output(path)
    for _ in range(3):  # the second and third save read the memory-mapped data of the file they replace
        io.save(io.load(path), path, external=True)
        data = [p for p in tmp_path.iterdir() if p.suffix == ".data"]
        assert len(data) == 1
        assert data[0].stat().st_size == 12000
        assert path.stat().st_size < 1000
        np.testing.assert_array_equal(output(path), before)
    io.save(io.load(path), path)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    np.testing.assert_array_equal(output(path), before)


def test_external_constants_come_along_into_another_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "c.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    value = onnx.TensorProto(name="c", data_type=1, dims=[2, 3], data_location=onnx.TensorProto.EXTERNAL)
    value.external_data.add(key="location", value="c.bin")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Constant", [], ["c"], value=value), onnx.helper.make_node("Add", ["x", "c"], ["y"])],
        "constant",
        [onnx.helper.make_tensor_value_info("x", 1, [2, 3])],
        [onnx.helper.make_tensor_value_info("y", 1, [2, 3])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    (tmp_path / "a" / "m.onnx").write_bytes(model.SerializeToString())
    io.save(io.load(tmp_path / "a" / "m.onnx"), tmp_path / "b" / "m.onnx")
    np.testing.assert_array_equal(output(tmp_path / "b" / "m.onnx"), 2 * np.arange(6, dtype=np.float32).reshape(2, 3))


@pytest.mark.parametrize(
    "damage",
    [
        lambda t: t.dims.__setitem__(0, 1 << 40),
        lambda t: t.float_data.pop(),
        lambda t: t.ClearField("float_data"),
    ],
)
def test_refuses_dims_that_the_values_do_not_fill(tmp_path: Path, relu_proto: onnx.ModelProto, damage: object) -> None:
    assert callable(damage)
    damage(relu_proto.graph.initializer[0])
    (tmp_path / "m.onnx").write_bytes(relu_proto.SerializeToString())
    with pytest.raises(InputError, match="'w' calls for"):
        io.read_proto(tmp_path / "m.onnx")


def test_total_bytes_counts_external_data(tmp_path: Path, relu_proto: onnx.ModelProto) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 24)
    onnx.save(external(relu_proto, "w.bin", length=24), tmp_path / "m.onnx")
    assert io.total_bytes(tmp_path / "m.onnx") == (tmp_path / "m.onnx").stat().st_size + 24


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, digits_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "old.onnx"
    target.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceError, match="No space left"):
        io.save(io.load(digits_onnx), target)
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["old.onnx"]


def test_keeps_a_link_and_the_file_mode(tmp_path: Path, digits_onnx: Path) -> None:
    real = tmp_path / "real.onnx"
    real.write_bytes(b"old")
    real.chmod(0o640)
    (tmp_path / "link.onnx").symlink_to("real.onnx")
    io.save(io.load(digits_onnx), tmp_path / "link.onnx")
    assert (tmp_path / "link.onnx").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert io.read_proto(real).graph.output[0].name == "logits"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"hello, this is a text file\n", "text file"),
        (b"PK\x03\x04" + b"\0" * 50, "zip archive"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 50, "HDF5"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
        (b"\xff\xfe\x00\x01" * 20, "not an ONNX file"),
    ],
)
def test_says_what_a_file_is_when_it_is_no_model(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        io.read_proto(path)


def test_refuses_a_cut_off_model(tmp_path: Path, digits_onnx: Path) -> None:
    data = digits_onnx.read_bytes()
    for share in (0.1, 0.5, 0.9, 0.999):
        path = tmp_path / "cut.onnx"
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(InputError):
            io.read_proto(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        io.load(tmp_path / "none.onnx")
    with pytest.raises(InputError, match="is a folder"):
        io.load(tmp_path)


def test_refuses_a_tensor_whose_bytes_are_not_there(tmp_path: Path, relu_proto: onnx.ModelProto) -> None:
    tensor = relu_proto.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.raw_data = b"\0" * 8
    tensor.dims[:] = [1 << 40, 1 << 20]
    path = tmp_path / "m.onnx"
    path.write_bytes(relu_proto.SerializeToString())
    with pytest.raises(InputError, match=r"calls for .* bytes but holds 8"):
        io.load(path)


@pytest.mark.parametrize("location", ["/etc/passwd", "../secret", "a/../../secret", "link", "pipe", "sub\\x", "hard"])
def test_refuses_external_data_outside_the_folder(tmp_path: Path, relu_proto: onnx.ModelProto, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"s" * 24)
    (folder / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")
    os.link(tmp_path / "secret", folder / "hard")
    path = folder / "m.onnx"
    path.write_bytes(external(relu_proto, location, length=24).SerializeToString())
    with pytest.raises(UnsafeError):
        io.load(path)


@pytest.mark.parametrize(("offset", "length"), [(4, 24), (0, 20), (1 << 60, 24)])
def test_refuses_external_data_that_is_too_short(
    tmp_path: Path, relu_proto: onnx.ModelProto, offset: int, length: int
) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 24)
    path = tmp_path / "m.onnx"
    path.write_bytes(external(relu_proto, "w.bin", offset=offset, length=length).SerializeToString())
    with pytest.raises(InputError, match=r"w\.bin|external data"):
        io.load(path)


def test_reads_external_data_inside_the_folder(tmp_path: Path, relu_proto: onnx.ModelProto) -> None:
    weight = np.array([1.0, -1.0, 0.5, 0.25, -2.0, 3.0], dtype="<f4")
    (tmp_path / "w.bin").write_bytes(weight.tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(external(relu_proto, "w.bin", length=24).SerializeToString())
    tensor = io.load(path).graph.initializers["w"].const_value
    assert tensor is not None
    np.testing.assert_array_equal(tensor.numpy().ravel(), weight)


def test_limits_are_kept(tmp_path: Path, relu_proto: onnx.ModelProto) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(relu_proto, path)
    with pytest.raises(ResourceError, match="more than 1 nodes"):
        io.read_proto(path, Limits(max_nodes=1))
    with pytest.raises(ResourceError, match="larger than"):
        io.read_proto(path, Limits(max_model_bytes=10))


def test_refuses_deep_nesting(tmp_path: Path) -> None:
    graph = onnx.GraphProto(name="deepest")
    for _ in range(6):
        outer = onnx.GraphProto(name="g")
        node = outer.node.add(op_type="If")
        node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g.CopyFrom(graph)
        graph = outer
    model = onnx.ModelProto(ir_version=8, graph=graph)
    path = tmp_path / "deep.onnx"
    path.write_bytes(model.SerializeToString())
    assert io.read_proto(path).graph.node[0].op_type == "If"
    with pytest.raises(ResourceError, match="nest"):
        io.read_proto(path, Limits(max_depth=3))


def test_refuses_an_output_that_cannot_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        io.check_output(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        io.check_output(tmp_path / "no" / "m.onnx")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a regular file"):
        io.check_output(tmp_path / "pipe")


def test_takes_a_negative_dim_for_a_dynamic_one(tmp_path: Path, relu_proto: onnx.ModelProto) -> None:
    for value in (relu_proto.graph.input[0], relu_proto.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    (tmp_path / "m.onnx").write_bytes(relu_proto.SerializeToString())
    assert read_header(io.read_proto(tmp_path / "m.onnx")).inputs[0].shape == (None, 3)
    io.save(io.load(tmp_path / "m.onnx"), tmp_path / "n.onnx")
    dim = onnx.load(tmp_path / "n.onnx").graph.input[0].type.tensor_type.shape.dim[0]
    assert dim.WhichOneof("value") is None


def test_bytes_hold_weights_that_lie_in_external_data(tmp_path: Path) -> None:
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 4])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    model = io.load(tmp_path / "m.onnx")
    found = onnx.load_from_string(io.to_bytes(model))
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(found.graph.initializer[0]), weight)
    assert found.graph.initializer[0].name == "w"
    assert isinstance(model.graph.initializers["w"].const_value, ir.ExternalTensor), "the model itself is as it was"


def doubling(levels: int) -> str:
    """Functions of two calls each of the next."""
    body = "".join(
        f'<opset_import: ["" : 20, "f" : 1], domain: "f"> f{k} (a) => (c) {{ b = f.f{k + 1}(a) c = f.f{k + 1}(b) }} '
        for k in range(levels)
    )
    last = f'<opset_import: ["" : 20], domain: "f"> f{levels} (a) => (c) {{ c = Neg(a) }}'
    head = '<ir_version: 10, opset_import: ["" : 20, "f" : 1]> g (float[n] x) => (float[n] y) { y = f.f0(x) } '
    return head + body + last


@pytest.mark.parametrize(
    ("content", "refused", "message"),
    [
        (b"\x08\x0a:\x04\x12\x02\xff\xfe", InputError, "UTF-8"),
        (onnx.parser.parse_model(doubling(40)).SerializeToString(), ResourceError, "stand for more than"),
        (
            onnx.parser.parse_model(
                '<ir_version: 10, opset_import: ["" : 20]> g (float[n] x) => (float[n] y) { y = Neg(z) }'
            ).SerializeToString(),
            InputError,
            "nothing before it makes",
        ),
    ],
    ids=["a name of bytes", "functions of functions", "a value that is not there"],
)
def test_what_is_no_sound_model_is_refused_when_it_is_read(
    tmp_path: Path, content: bytes, refused: type[Exception], message: str
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(refused, match=message):
        io.load(path)


def test_a_file_of_one_byte_too_many_is_not_read(tmp_path: Path, relu_proto: onnx.ModelProto) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(relu_proto, path)
    size = path.stat().st_size
    assert io.read_proto(path, Limits(max_model_bytes=size))
    with pytest.raises(ResourceError, match="is not read"):
        io.read_proto(path, Limits(max_model_bytes=size - 1))


def test_a_model_is_not_written_as_another_format() -> None:
    io.check_model_name("m.onnx")
    with pytest.raises(UsageError, match=r"end the name with \.onnx"):
        io.check_model_name("m.pt")
