"""What a file says of its tensors is held against the bytes that are there, before anything is read."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.errors import InputError, ResourceError, UnsafeError
from onnxtool.model.safety import tensors
from onnxtool.model.safety.limits import Limits
from onnxtool.model.safety.tensors import (
    declared_bytes,
    external_ref,
    graphs,
    resolve_inside,
    verify_expansion,
    verify_tensors,
)

TYPES = {
    TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16,
    TensorProto.BFLOAT16: ml_dtypes.bfloat16, TensorProto.INT8: np.int8, TensorProto.UINT8: np.uint8,
    TensorProto.INT16: np.int16, TensorProto.UINT16: np.uint16, TensorProto.INT32: np.int32,
    TensorProto.UINT32: np.uint32, TensorProto.INT64: np.int64, TensorProto.UINT64: np.uint64,
    TensorProto.BOOL: np.bool_,
    TensorProto.COMPLEX64: np.complex64, TensorProto.COMPLEX128: np.complex128,
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn, TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2, TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip
FOUR_BITS = (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1)
NEWER = {"FLOAT8E8M0": 8, "INT2": 2, "UINT2": 2, "FLOAT6E2M3": 6, "FLOAT6E3M2": 6}  # bits


def holding(*held: TensorProto) -> onnx.ModelProto:
    return helper.make_model(helper.make_graph([], "g", [], [], list(held)))


def verified(tensor: TensorProto, folder: Path | None = None, limits: Limits | None = None) -> list[Path]:
    return verify_tensors(holding(tensor), folder, limits or Limits())


@pytest.mark.parametrize(("code", "dtype"), TYPES.items())
def test_a_tensor_of_each_type_has_as_many_bytes_as_numpys(code: int, dtype: type) -> None:
    assert declared_bytes(TensorProto(data_type=code, dims=[3, 5])) == np.zeros((3, 5), dtype).nbytes
    raw = TensorProto(name="w", data_type=code, dims=[3], raw_data=bytes(np.zeros(3, dtype).nbytes))
    assert verified(raw) == []
    for wrong in (raw.raw_data + b"\0", raw.raw_data[:-1]):
        with pytest.raises(InputError, match="the file is damaged"):
            verified(TensorProto(name="w", data_type=code, dims=[3], raw_data=wrong))


@pytest.mark.parametrize("code", FOUR_BITS)
def test_two_numbers_of_four_bits_share_a_byte(code: int) -> None:
    assert [declared_bytes(TensorProto(data_type=code, dims=[n])) for n in (0, 1, 2, 3)] == [0, 1, 1, 2]
    for elements, entries in ((1, 1), (2, 1), (3, 2)):
        verified(TensorProto(name="w", data_type=code, dims=[elements], int32_data=[0] * entries))
    with pytest.raises(InputError, match="calls for 2 values but holds 3"):
        verified(TensorProto(name="w", data_type=code, dims=[3], int32_data=[0] * 3))


@pytest.mark.parametrize("name", sorted(NEWER.keys() & set(TensorProto.DataType.keys())))
def test_types_of_newer_versions_are_packed_as_onnx_packs_them(name: str) -> None:
    code, bits = TensorProto.DataType.Value(name), NEWER[name]
    packed = numpy_helper.from_array(np.ones(5, helper.tensor_dtype_to_np_dtype(code)), "w")
    assert (packed.data_type, len(packed.raw_data)) == (code, -(-5 * bits // 8))
    assert verified(packed) == []
    packed.dims[0] = 9
    with pytest.raises(InputError, match="the file is damaged"):
        verified(packed)
    typed = TensorProto(name="w", data_type=code, dims=[5], int32_data=[0] * (2 if bits == 2 else 5))
    assert verified(typed) == []
    typed.int32_data.append(0)
    with pytest.raises(InputError, match="the file is damaged"):
        verified(typed)


@pytest.mark.parametrize("code", [c for c in TYPES if c not in (TensorProto.COMPLEX64, TensorProto.COMPLEX128)])
def test_values_in_a_field_of_their_type_are_counted(code: int) -> None:
    tensor = helper.make_tensor("w", code, [2, 2], [1, 0, 1, 1])
    assert verified(tensor) == []
    tensor.dims[0] = 3
    with pytest.raises(InputError, match="calls for 6 values but holds 4"):
        verified(tensor)


@pytest.mark.parametrize("code", [TensorProto.COMPLEX64, TensorProto.COMPLEX128])
def test_a_complex_number_is_two(code: int) -> None:
    assert verified(helper.make_tensor("w", code, [2], [1 + 1j, 2])) == []
    field = "float_data" if code == TensorProto.COMPLEX64 else "double_data"
    with pytest.raises(InputError, match="calls for 4 values but holds 3"):
        verified(TensorProto(name="w", data_type=code, dims=[2], **{field: [1.0] * 3}))


def test_texts_are_counted_and_have_no_size() -> None:
    words = helper.make_tensor("w", TensorProto.STRING, [2], [b"a", b"b"])
    assert declared_bytes(words) is None
    assert verified(words) == []
    words.dims[0] = 3
    with pytest.raises(InputError, match="calls for 3 values but holds 2"):
        verified(words)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"dims": [-1]}, "negative dim"),
        ({"dims": [1] * 65, "float_data": [1.0]}, "has 65 dims"),
        ({"data_type": 0}, "no known element type"),
        ({"data_type": 999}, "no known element type"),
        ({"dims": [1], "int64_data": [1]}, "another type than it declares"),
        ({"dims": [1], "float_data": [1.0], "raw_data": b"\0\0\0\0"}, "holds its values twice"),
    ],
)
def test_what_cannot_be_a_tensor_is_refused(damage: dict[str, object], message: str) -> None:
    fields = {"name": "w", "data_type": TensorProto.FLOAT, **damage}
    with pytest.raises(InputError, match=message):
        verified(TensorProto(**fields))


def test_no_dims_and_empty_ones_are_dims() -> None:
    assert verified(numpy_helper.from_array(np.float32(3), "w")) == []
    assert verified(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[0])) == []
    assert verified(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1] * 64, float_data=[1.0])) == []


def outside(location: str = "w.bin", dims: tuple[int, ...] = (4,), **entries: object) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def test_external_data_has_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    path = tmp_path / "w.bin"
    assert verified(outside(), tmp_path) == [path]
    assert verified(outside(length=16, offset=0), tmp_path) == [path]
    assert verified(outside(dims=(2,), offset=8), tmp_path) == [path]
    assert verified(outside("gone.bin")) == []  # without a folder nothing is looked for
    assert verify_tensors(holding(outside(), outside()), tmp_path, Limits()) == [path]
    for tensor, message in (
        (outside(dims=(5,)), "past the end"),
        (outside(offset=4), "past the end"),
        (outside(length=12), "its external data has 12"),
        (outside("gone.bin"), "is missing"),
        (outside(offset=-4), "negative offset"),
        (outside(length=-4), "negative offset or length"),
        (outside(offset="four"), "is not a number"),
        (outside(""), "has no location"),
    ):
        with pytest.raises(InputError, match=message):
            verified(tensor, tmp_path)


def test_external_data_may_be_limited(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    assert verified(outside(), tmp_path, Limits(max_external_bytes=16))
    with pytest.raises(ResourceError, match="larger than 15"):
        verified(outside(), tmp_path, Limits(max_external_bytes=15))
    two = holding(outside(dims=(2,)), outside(dims=(2,), offset=8))
    assert verify_tensors(two, tmp_path, Limits(max_external_bytes=16))
    with pytest.raises(ResourceError):
        verify_tensors(two, tmp_path, Limits(max_external_bytes=15))


def test_files_that_were_never_written_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "_LARGE", 1 << 22)
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(1 << 22)
    with pytest.raises(InputError, match="nearly all holes"):
        verified(outside(dims=(1 << 20,)), tmp_path)
    assert verified(outside(dims=((1 << 20) - 1,)), tmp_path)  # too small to matter
    (tmp_path / "w.bin").write_bytes(b"\1" * (1 << 22))
    assert verified(outside(dims=(1 << 20,)), tmp_path)


@pytest.mark.parametrize("location", ["/etc/passwd", "../w.bin", "a/../../w.bin", "a\\w.bin", "w\0.bin", ".."])
def test_a_location_outside_the_folder_is_refused(location: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafeError):
        resolve_inside(tmp_path, location)


def test_a_whole_path_is_refused_wherever_it_leads(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"1")
    assert resolve_inside(tmp_path, "w.bin") == (tmp_path / "w.bin").resolve()
    with pytest.raises(UnsafeError):
        resolve_inside(tmp_path, str((tmp_path / "w.bin").resolve()))


def test_links_devices_and_pipes_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"x")
    (folder / "link").symlink_to(tmp_path / "secret")
    os.link(tmp_path / "secret", folder / "hard")
    os.mkfifo(folder / "pipe")
    (folder / "own").write_bytes(b"x")
    (folder / "inner").symlink_to(folder / "own")
    for name, message in (
        ("link", "leads out"),
        ("hard", "hard link"),
        ("pipe", "not a regular file"),
        (".", "regular"),
    ):
        with pytest.raises(UnsafeError, match=message):
            resolve_inside(folder, name)
    assert resolve_inside(folder, "own") == resolve_inside(folder, "inner") == (folder / "own").resolve()
    with pytest.raises(InputError, match="missing"):
        resolve_inside(folder, "gone")


def test_what_lies_in_the_file_has_no_reference() -> None:
    assert external_ref(numpy_helper.from_array(np.zeros(2), "w")) is None
    found = external_ref(outside(offset=8, length=4))
    assert found is not None and (found.location, found.offset, found.length) == ("w.bin", 8, 4)


def nested(depth: int) -> onnx.ModelProto:
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g0", [], [])
    for level in range(depth):
        graph = helper.make_graph([helper.make_node("If", ["c"], ["y"], then_branch=graph)], f"g{level + 1}", [], [])
    return helper.make_model(graph)


def test_nodes_and_depth_are_limited() -> None:
    assert len(list(graphs(nested(3), Limits(max_depth=3, max_nodes=4)))) == 4
    with pytest.raises(ResourceError, match="nested deeper than 2"):
        list(graphs(nested(3), Limits(max_depth=2)))
    with pytest.raises(ResourceError, match="more than 3 nodes"):
        list(graphs(nested(3), Limits(max_nodes=3)))


def doubling(levels: int) -> onnx.ModelProto:
    """Functions each of which calls the next twice: 2 ** levels nodes in the end."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    made = []
    for level in range(levels):
        last = level == levels - 1
        calls = [
            helper.make_node("Neg" if last else f"f{level + 1}", [a], [b], domain="" if last else "own")
            for a, b in (("x", "h"), ("h", "y"))
        ]
        made.append(helper.make_function("own", f"f{level}", ["x"], ["y"], calls, opsets))
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="own")], "g", [], [])
    return helper.make_model(graph, functions=made, opset_imports=opsets)


def test_functions_that_double_are_counted_as_they_would_be_put_in_place() -> None:
    """f0 stands for its two calls and twice what they stand for: 2 + 2 * (2 + 2 * 2) = 14 of three levels."""
    verify_expansion(doubling(3), Limits(max_nodes=14))
    with pytest.raises(ResourceError, match="stand for more than 13 nodes"):
        verify_expansion(doubling(3), Limits(max_nodes=13))
    with pytest.raises(ResourceError):
        verify_expansion(doubling(60), Limits())
    itself = doubling(2)
    itself.functions[1].node[0].op_type, itself.functions[1].node[0].domain = "f0", "own"
    verify_expansion(itself, Limits(max_nodes=1000))  # ends
    verify_expansion(nested(2), Limits(max_nodes=1))


def test_functions_are_as_deep_as_the_graph_and_counted_in_any_order() -> None:
    opsets = [helper.make_opsetid("", 20)]
    inner = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "inner", [], [])
    branch = helper.make_node("If", ["x"], ["y"], then_branch=inner)
    model = helper.make_model(
        helper.make_graph([], "g", [], []),
        functions=[helper.make_function("own", "f", ["x"], ["y"], [branch], opsets)],
        opset_imports=opsets,
    )
    assert len(list(graphs(model, Limits(max_depth=1)))) == 2
    with pytest.raises(ResourceError, match="nested deeper than 0"):
        list(graphs(model, Limits(max_depth=0)))
    backwards = doubling(3)
    made = list(reversed(backwards.functions))
    del backwards.functions[:]
    backwards.functions.extend(made)
    verify_expansion(backwards, Limits(max_nodes=14))
    with pytest.raises(ResourceError):
        verify_expansion(backwards, Limits(max_nodes=13))


def test_lists_of_graphs_are_one_level_deeper_too() -> None:
    inner = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "inner", [], [])
    node = helper.make_node("Choice", ["x"], ["y"], domain="own", branches=[inner, inner])
    model = helper.make_model(helper.make_graph([node], "g", [], []))
    assert len(list(graphs(model, Limits(max_depth=1)))) == 3
    with pytest.raises(ResourceError, match="nested deeper than 0"):
        list(graphs(model, Limits(max_depth=0)))


def test_a_few_bytes_beside_holes_are_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "_LARGE", 1 << 22)
    path = tmp_path / "w.bin"
    path.write_bytes(bytes(16 << 10))
    with open(path, "r+b") as file:
        file.truncate(1 << 26)
    stored = getattr(path.stat(), "st_blocks", 0) * 512
    if not stored:
        pytest.skip("the file system does not tell what it stores")
    monkeypatch.setattr(tensors, "_LEAST_STORED", (1 << 26) // stored - 1)
    with pytest.raises(InputError, match="nearly all holes"):
        verified(outside(dims=(1 << 24,)), tmp_path)
    monkeypatch.setattr(tensors, "_LEAST_STORED", (1 << 26) // stored + 1)
    assert verified(outside(dims=(1 << 24,)), tmp_path) == [path]


def test_tensors_in_attributes_are_held_against_their_bytes() -> None:
    """One in a list, and the two of a sparse one."""
    damaged = TensorProto(name="t", data_type=TensorProto.FLOAT, dims=[1 << 40], raw_data=b"1234")
    sound = TensorProto(name="i", data_type=TensorProto.INT64, dims=[1], raw_data=bytes(8))
    for item in (
        helper.make_attribute("several", [damaged]),
        helper.make_attribute("sparse_value", onnx.SparseTensorProto(values=damaged, indices=sound, dims=[1])),
        helper.make_attribute("sparse_value", onnx.SparseTensorProto(values=sound, indices=damaged, dims=[1])),
    ):
        node = helper.make_node("Own", [], ["y"], domain="own")
        node.attribute.append(item)
        with pytest.raises(InputError, match="calls for"):
            verify_tensors(helper.make_model(helper.make_graph([node], "g", [], [])), None, Limits())
