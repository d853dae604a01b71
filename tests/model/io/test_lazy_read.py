"""Large files whose weights are referred to in place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxtool.errors import InputError
from onnxtool.model import io
from onnxtool.model.io import lazy_read
from onnxtool.model.io.lazy_read import is_external


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_read, "WORTHWHILE", 1)


def write(path: Path, **weights: np.ndarray) -> Path:
    text = "g (float[b, 64] x) => (float[b, 64] y) { m = MatMul (x, w) y = Add (m, v) }"
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>\n{text}')
    for name, array in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(proto, path)
    return path


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "m.onnx", w=normal(64, 64), v=normal(64))


def test_large_weights_stay_in_the_file_and_have_the_same_values(small_is_large: None, model: Path) -> None:
    whole, light = io.load(model), io.load(model, in_place=True)

    kinds = {name: isinstance(v.const_value, ir.ExternalTensor) for name, v in light.graph.initializers.items()}
    assert kinds == {"w": True, "v": False}
    assert not any(is_external(v.const_value) for v in light.graph.initializers.values())
    for name, value in whole.graph.initializers.items():
        other = light.graph.initializers[name].const_value
        assert value.const_value is not None
        assert other is not None
        np.testing.assert_array_equal(other.numpy(), value.const_value.numpy())
    assert [n.op_type for n in light.graph] == [n.op_type for n in whole.graph]


def test_writing_it_again_brings_the_weights_along(small_is_large: None, model: Path, tmp_path: Path) -> None:
    io.save(io.load(model, in_place=True), tmp_path / "other.onnx")
    io.save(io.load(model, in_place=True), model)  # over itself

    for path in (tmp_path / "other.onnx", model):
        onnx.checker.check_model(str(path), full_check=True)
        read = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
        np.testing.assert_array_equal(read["w"], normal(64, 64))
        np.testing.assert_array_equal(read["v"], normal(64))
    assert io.total_bytes(model) == model.stat().st_size


def test_values_in_typed_fields_are_read(small_is_large: None, tmp_path: Path) -> None:
    proto = onnx.load(write(tmp_path / "m.onnx", v=normal(64)))
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[64, 64])
    tensor.float_data.extend(normal(64, 64).reshape(-1).tolist())
    proto.graph.initializer.append(tensor)
    onnx.save(proto, tmp_path / "m.onnx")

    value = io.load(tmp_path / "m.onnx", in_place=True).graph.initializers["w"].const_value
    assert not isinstance(value, ir.ExternalTensor)
    assert value is not None
    np.testing.assert_array_equal(value.numpy(), normal(64, 64))


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_links_are_read_as_a_whole(small_is_large: None, model: Path, tmp_path: Path, link: Any) -> None:
    (tmp_path / "folder").mkdir()
    other = tmp_path / "folder" / "m.onnx"
    link(model, other)

    weights = io.load(other, in_place=True).graph.initializers.values()
    assert not any(isinstance(v.const_value, ir.ExternalTensor) for v in weights)


def test_damage_is_told_as_without(small_is_large: None, model: Path) -> None:
    whole = model.read_bytes()
    for length in range(1, len(whole), 97):
        model.write_bytes(whole[:length])
        with pytest.raises(InputError) as plain:
            io.load(model)
        with pytest.raises(InputError) as light:
            io.load(model, in_place=True)
        assert str(light.value) == str(plain.value)


def test_a_second_graph_field_is_left_to_protobuf(small_is_large: None, model: Path) -> None:
    # Two messages one after the other are their merge.
    extra = onnx.ModelProto(graph=onnx.GraphProto(doc_string="more"))
    model.write_bytes(model.read_bytes() + extra.SerializeToString())

    assert io.load(model, in_place=True).graph.doc_string == "more"


def both_ways(path: Path) -> list[tuple[str, int, str, bytes]]:
    """The weights as the whole file has them; read in place they are the same."""
    found = []
    for in_place in (False, True):
        proto = io.read_proto(path, in_place=in_place, external=False)
        content = path.read_bytes()
        held = []
        for tensor in proto.graph.initializer:
            entries = {e.key: e.value for e in tensor.external_data}
            inside = entries.get("location") == path.name
            start, length = (int(entries.get(k, 0)) for k in ("offset", "length"))
            data = content[start : start + length] if inside else tensor.raw_data
            held.append((tensor.name, len(data), "" if inside else entries.get("location", ""), data))
        found.append(sorted(held))
    assert found[0] == found[1]
    return found[0]


def test_what_protobuf_makes_of_an_odd_message_is_made_of_it_in_place(
    small_is_large: None, tmp_path: Path, model: Path
) -> None:
    """Two graphs are merged, of two values the last counts, and what lies elsewhere is not looked for inside."""
    other = onnx.ModelProto()
    other.graph.initializer.append(onnx.numpy_helper.from_array(normal(64, 65), "more"))
    path = tmp_path / "two.onnx"
    path.write_bytes(model.read_bytes() + other.SerializeToString())
    assert [name for name, *_ in both_ways(path)] == ["more", "v", "w"]

    twice = onnx.TensorProto(name="more", data_type=1, dims=[2048], raw_data=bytes(8192)).SerializeToString()
    twice += onnx.TensorProto(raw_data=b"\1" * 8192).SerializeToString()
    graph = lazy_read.tag(5, len(twice)) + twice
    path.write_bytes(model.read_bytes() + lazy_read.tag(7, len(graph)) + graph)
    assert both_ways(path)[0][3] == b"\1" * 8192

    outside = onnx.numpy_helper.from_array(normal(64, 65), "more")
    outside.data_location = onnx.TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="elsewhere.bin")
    del other.graph.initializer[:]
    other.graph.initializer.append(outside)
    path.write_bytes(model.read_bytes() + other.SerializeToString())
    assert both_ways(path)[0][2] == "elsewhere.bin"


def test_a_number_without_an_end_is_given_up_early() -> None:
    content: Any = b"\x80" * 20 + b"\1"
    with pytest.raises(lazy_read._OddError):
        lazy_read._varint(content, 0)
