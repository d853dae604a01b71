"""Models written piece by piece are, byte for byte, what protobuf would write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxtool.errors import InputError, ResourceError
from onnxtool.model import io
from onnxtool.model.io import serialize, tensor_bytes

RNG = np.random.default_rng(0)


def build(**weights: np.ndarray) -> ir.Model:
    """A model with initializers, each used by an Identity; fields on both sides of every part that is cut out."""
    values = [
        ir.Value(
            name=name,
            const_value=ir.Tensor(array, name=name, doc_string=f"doc of {name}"),
            shape=ir.Shape(array.shape),
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
        )
        for name, array in weights.items()
    ]
    nodes = [ir.Node("", "Identity", [value], name=f"{value.name}_node") for value in values]
    for node, value in zip(nodes, values, strict=True):
        node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = f"{value.name}_out", value.type, value.shape
    graph = ir.Graph(
        [],
        [node.outputs[0] for node in nodes],
        nodes=nodes,
        initializers=values,
        doc_string="graph",
        opset_imports={"": 21, "other": 1},
        name="g",
    )
    return ir.Model(graph, ir_version=10, producer_name="p", doc_string="model", metadata_props={"key": "value"})


@pytest.fixture
def model() -> ir.Model:
    return build(
        a=RNG.standard_normal((300, 100)).astype(np.float32),
        small=np.arange(5, dtype=np.int64),
        half=RNG.standard_normal((200, 300)).astype(np.float16),
        packed=RNG.integers(-8, 8, (500, 301)).astype(ml_dtypes.int4),  # odd: the last byte holds one value
        empty=np.zeros((0, 7), np.float32),
        last=RNG.standard_normal((70_000,)),
    )


def test_bytes_are_those_of_protobuf(model: ir.Model) -> None:
    pieces = list(serialize.serialized_pieces(model))
    assert b"".join(pieces) == ir.to_proto(model).SerializeToString()
    assert len(pieces) > 12  # the large weights are pieces of their own


def test_external_weights_are_brought_in_without_loading_them(
    model: ir.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in model.graph.initializers.values():
        assert value.const_value is not None
        value.const_value.doc_string = None
    expected = ir.to_proto(model).SerializeToString()
    monkeypatch.setattr(tensor_bytes, "_CHUNK", 1000)
    with io.spilled(model, tmp_path / "m.onnx"):
        outside = [
            v.const_value for v in model.graph.initializers.values() if isinstance(v.const_value, ir.ExternalTensor)
        ]
        assert len(outside) == 4
        assert b"".join(serialize.serialized_pieces(model)) == expected
        assert all(t.raw is None for t in outside)  # read, not mapped


def test_external_weights_of_subgraphs_are_brought_in(tmp_path: Path) -> None:
    weight = RNG.standard_normal((40, 3)).astype(np.float32)
    condition = ir.Value(name="c", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    node = ir.Node(
        "", "If", [condition], [ir.AttrGraph(f"{n}_branch", build(w=weight).graph) for n in ("then", "else")]
    )
    node.outputs[0].name = "y"
    graph = ir.Graph([condition], list(node.outputs), nodes=[node], opset_imports={"": 21}, name="g")
    model = ir.Model(graph, ir_version=10)
    expected = ir.to_proto(model).SerializeToString()
    with io.spilled(model, tmp_path / "m.onnx"):
        assert ir.to_proto(model).SerializeToString() != expected
        got = onnx.ModelProto.FromString(b"".join(serialize.serialized_pieces(model)))
    for attribute in got.graph.node[0].attribute:
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(attribute.g.initializer[0]), weight)


def test_saved_file_reads_back_and_bears_its_seal(model: ir.Model, tmp_path: Path) -> None:
    expected = ir.to_proto(model).SerializeToString()
    size = io.save(model, tmp_path / "m.onnx")
    data = (tmp_path / "m.onnx").read_bytes()
    assert data.startswith(expected) and 0 < len(data) - len(expected) < 200 and size == len(data)
    from onnxtool.model.provenance.metadata import check_seal

    stated, found = check_seal(data, [])
    assert stated is not None and stated == found


def test_size_with_external_data(model: ir.Model, tmp_path: Path) -> None:
    size = io.save(model, tmp_path / "m.onnx", external=True)
    assert size == sum(f.stat().st_size for f in tmp_path.iterdir()) and len(list(tmp_path.iterdir())) == 2


def test_weights_cut_off_while_saving_leave_the_old_file(model: ir.Model, tmp_path: Path) -> None:
    target = tmp_path / "m.onnx"
    target.write_bytes(b"old")
    with io.spilled(model, tmp_path / "other.onnx") as spill:
        spill.write_bytes(spill.read_bytes()[:1000])
        with pytest.raises(InputError, match="shorter than the model says"):
            io.save(model, target)
    assert target.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_refuses_what_protobuf_cannot_hold(model: ir.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serialize, "_LIMIT", 1000)
    pieces: Iterator[bytes] = serialize.serialized_pieces(model)
    with pytest.raises(ResourceError, match="must be external"):
        next(pieces)
