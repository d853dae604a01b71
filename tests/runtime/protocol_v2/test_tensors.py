"""Tensors of the V2 protocol: they come back as they went, and no size in them is believed."""

from __future__ import annotations

import contextlib
import json
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxtool.errors import InputError, UnsupportedError
from onnxtool.model.spec import TensorSpec, shared_dims
from onnxtool.runtime.protocol_v2.tensors import (
    InferRequest,
    check_shared_dims,
    decode_header,
    decode_plain,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    from_lists,
    tensor_metadata,
)

ARRAYS = {
    "bool": np.array([[True, False]]),
    "int8": np.int8([-128, 127]),
    "uint64": np.uint64([0, 2**64 - 1]),
    "int64": np.int64([-(2**63), 2**63 - 1]),
    "float16": np.float16([[1.5], [65504.0]]),
    "float32": np.float32([0.1, -1e38]),
    "float64": np.float64([0.1, 1e300]),
    "bfloat16": np.array([1.0, 3.0], ml_dtypes.bfloat16),
    "text": np.array(["", "häß", "x" * 300], object),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
}


@pytest.mark.parametrize("binary", [True, False])
def test_everything_comes_back_as_it_went(binary: bool) -> None:
    parts, length = encode_request(ARRAYS, binary=binary)
    found = decode_request(b"".join(parts), length if binary else None)
    assert found.binary is binary
    for name, array in ARRAYS.items():
        assert found.feeds[name].dtype == array.dtype, name
        assert found.feeds[name].shape == array.shape, name
        assert np.array_equal(found.feeds[name], array), name
        assert found.feeds[name].flags.aligned


def test_an_output_goes_as_it_was_asked_for() -> None:
    outputs = [("a", np.float32([1, 2])), ("b", np.int64([3])), ("c", np.int64([4]))]
    asked = InferRequest({}, {"a": True, "b": False}, False, {}, None)
    parts, length = encode_response({"model_name": "m"}, outputs, asked, {})
    header = json.loads(bytes(parts[0]))
    assert [o["name"] for o in header["outputs"]] == ["a", "b"]
    assert header["outputs"][1]["data"] == [3] and header["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert length == len(parts[0])
    back = decode_response(b"".join(parts), length)
    assert np.array_equal(back["a"], [1, 2]) and np.array_equal(back["b"], [3])


def test_outputs_come_in_the_order_that_was_asked_for() -> None:
    outputs = [("a", np.float32([1])), ("b", np.int64([3])), ("c", np.int64([4]))]
    parts, _ = encode_response({}, outputs, InferRequest({}, {"c": True, "a": True}, False, {}, None), {})
    assert [o["name"] for o in json.loads(bytes(parts[0]))["outputs"]] == ["c", "a"]
    assert bytes(parts[1]) == np.int64([4]).tobytes()


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        ([1.5], "int64"),
        ([300], "uint8"),
        ([-1], "uint8"),
        ([2**64], "uint64"),
        ([True], "int64"),
        ([True, 2], "int64"),
        ([True, 2], "float32"),
        ([[1.5, 2.0], [0.5, False]], "float32"),
        ([1], "bool"),
        (["1"], "float32"),
        ([None], "float32"),
        ([[1], [1, 2]], "float32"),
        ([1e39], "float32"),
        ([70000], "float16"),
    ],
)
def test_nothing_is_rounded_or_cut(data: object, dtype: str) -> None:
    with pytest.raises(InputError):
        from_lists("x", data, np.dtype(dtype))


@pytest.mark.parametrize("kind", ["string", np.dtype("float32")])
def test_one_long_text_takes_no_memory_for_the_others(kind: np.dtype | str) -> None:
    data = ["x" * 100_000, *["a"] * 500]  # 200 MB where each is as long as the longest
    tracemalloc.start()
    with contextlib.suppress(InputError):
        assert from_lists("x", data, kind).tolist() == data
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_large_integers_keep_every_digit() -> None:
    assert from_lists("x", [1, 2**64 - 1], np.dtype("uint64")).tolist() == [1, 2**64 - 1]
    assert from_lists("x", [-1, 2**63 - 1], np.dtype("int64")).tolist() == [-1, 2**63 - 1]


def test_an_unaligned_tensor_is_copied() -> None:
    header = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1],"parameters":{"binary_data_size":8}}]}'
    for padding in range(8):
        head = header + b" " * padding
        found = decode_request(head + np.float64([7]).tobytes(), len(head))
        assert found.feeds["x"].flags.aligned and found.feeds["x"][0] == 7


def header_of(**changes: object) -> dict[str, object]:
    return {"name": "x", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}} | changes


@pytest.mark.parametrize(
    ("entry", "raw"),
    [
        (header_of(), b"\xff\xff\xff\xffa"),
        (header_of(), b"\x01\x00\x00\x00\xff"),
        (header_of(), b"\x00\x00\x00\x00a"),
        (header_of(shape=[2**40]), b"\x01\x00\x00\x00a"),
        (header_of(parameters={"binary_data_size": 2}), b"\x01\x00"),
        (header_of(parameters={"binary_data_size": True}), b"\x01"),
        (header_of(parameters={"binary_data_size": 1.0}), b"\x01"),
        (header_of(parameters={"binary_data_size": -1}), b""),
        (header_of(parameters=[1]), b""),
        (header_of(datatype="BOOL", shape=[1], parameters={"binary_data_size": 1}), b"\x02"),
        (header_of(datatype="FP32", shape=[2], parameters={"binary_data_size": 4}), b"1234"),
        (header_of(datatype="FP32", shape=[1], parameters={"binary_data_size": 4}), b"12345"),
        (header_of(datatype="FP32", shape=[1] * 65, parameters={"binary_data_size": 4}), b"1234"),
    ],
)
def test_sizes_are_held_against_the_bytes(entry: dict[str, object], raw: bytes) -> None:
    head = json.dumps({"inputs": [entry]}).encode()
    with pytest.raises(InputError):
        decode_request(head + raw, len(head))


@given(st.binary(max_size=300), st.one_of(st.none(), st.integers(-5, 400)))
def test_any_bytes_give_an_answer_or_an_input_error(body: bytes, length: int | None) -> None:
    with contextlib.suppress(InputError):
        decode_request(body, length)


def test_what_the_protocol_has_no_type_for_is_said() -> None:
    with pytest.raises(UnsupportedError, match="complex64"):
        tensor_metadata([TensorSpec("x", np.dtype("complex64"), (1,))])
    with pytest.raises(UnsupportedError, match="seq"):
        tensor_metadata([TensorSpec("x", "seq(tensor(float))", None)])


def test_inputs_that_share_a_dim_must_agree_in_it() -> None:
    floats = np.dtype(np.float32)
    text = TensorSpec("text", "string", ("batch", "dim_1"))
    number = TensorSpec("number", floats, ("batch", None, "dim_1"))
    shared = shared_dims([text, number, TensorSpec("square", floats, ("n", "n"))])
    assert shared == {"batch": [("text", 0), ("number", 0)], "dim_1": [("text", 1), ("number", 2)]}
    fits = {"text": np.zeros((2, 5), object), "number": np.zeros((2, 9, 5)), "square": np.zeros((1, 2))}
    check_shared_dims(fits, shared)
    with pytest.raises(InputError, match="'batch', which is 0 in 'text', 2 in 'number'"):
        check_shared_dims(fits | {"text": np.zeros((0, 5), object)}, shared)
    with pytest.raises(InputError, match="'dim_1'"):
        check_shared_dims(fits | {"number": np.zeros((2, 9, 1))}, shared)


def test_plain_json_must_have_the_inputs_and_no_other() -> None:
    one = {"x": np.dtype(np.float32)}
    assert (
        decode_plain([[1, 2]], one, {})["x"].tolist()
        == decode_plain({"x": [[1, 2]]}, one, {})["x"].tolist()
        == [[1, 2]]
    )
    for wrong, told in (({}, "no 'x'"), ({"x": [1], "z": [1]}, "has 'z'"), ({"z": [1]}, "no 'x'")):
        with pytest.raises(InputError, match=f"{told}.*the model's inputs: x"):
            decode_plain(wrong, one, {})
    with pytest.raises(InputError, match="inputs: x, y"):
        decode_plain([1], one | {"y": np.dtype(np.int64)}, {})


_TYPES: dict[str, np.dtype | str] = {"age": np.dtype(np.float32), "visits": np.dtype(np.int64), "town": "string"}
_COLUMNS = {name: (name,) for name in _TYPES}
_ROW = {"age": 1.5, "visits": 2, "town": "a"}


def test_plain_json_of_a_table_is_columns_or_records() -> None:
    expected = {"age": [[1.5], [4.0]], "visits": [[2], [3]], "town": [["a"], ["b"]]}
    flat = {"town": ["a", "b"], "age": [1.5, 4], "visits": [2, 3]}
    for body in (expected, flat, [_ROW, {"visits": 3, "town": "b", "age": 4}]):
        found = decode_plain(body, _TYPES, _COLUMNS)
        assert {name: array.tolist() for name, array in found.items()} == expected
        assert [found["age"].dtype, found["visits"].dtype] == [np.float32, np.int64]


def test_columns_of_one_input_are_taken_by_their_names() -> None:
    one, columns = {"X": np.dtype(np.float32)}, {"X": ("a", "b")}
    for body in ({"b": [2, 4], "a": [1, 3]}, [{"b": 2, "a": 1}, {"a": 3, "b": 4}], {"X": [[1, 2], [3, 4]]}):
        assert decode_plain(body, one, columns)["X"].tolist() == [[1, 2], [3, 4]]
    assert decode_plain([[1, 2], [3, 4]], one, columns)["X"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"age": [1], "visits": [2]}, "the JSON has no 'town'"),
        ({"age": [1], "visits": [2], "town": ["a"], "vip": [1]}, "the JSON has 'vip'"),
        ({"age": [1, 2], "visits": [2], "town": ["a", "b"]}, "'visits' has 1 rows, 'age' has 2"),
        ({"age": [True], "visits": [2], "town": ["a"]}, "'age': true and false are not values of float32"),
        ({"age": ["x"], "visits": [2], "town": ["a"]}, "'age'"),
        ({"age": [1], "visits": [2.5], "town": ["a"]}, "'visits': the values must be whole numbers"),
        ({"age": [1], "visits": [2], "town": [7]}, "'town': the values must be texts"),
        ({"age": [[1, 2]], "visits": [2], "town": ["a"]}, "'age': a column"),
        (_ROW, "'age': a column"),
        ([_ROW, {"age": 1, "visits": 2}], "row 2 has no 'town'"),
        ([_ROW | {"vip": 1}], "row 1 has 'vip'"),
        ([_ROW, 7], "row 2 must be an object"),
        ([_ROW | {"visits": 2.5}], "'visits': the values must be whole numbers"),
        ([_ROW | {"age": None}], "'age'"),
        ([], "must be an object with the model's inputs: age, visits, town"),
    ],
)
def test_what_does_not_fit_a_table_is_named(body: object, told: str) -> None:
    with pytest.raises(InputError) as error:
        decode_plain(body, _TYPES, _COLUMNS)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


_INPUT = {"name": "x", "datatype": "UINT8", "shape": [1], "data": [1]}


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({"inputs": [_INPUT], "parameters": {"priority": 1}}, "the parameter 'priority' is not supported"),
        ({"inputs": [_INPUT], "parameters": {"timeout": -1}}, "'timeout' must be a whole number"),
        ({"inputs": [_INPUT], "parameters": {"timeout": "5"}}, "'timeout' must be a whole number"),
        ({"inputs": [_INPUT], "parameters": {"sequence_id": 7}}, "the parameter 'sequence_id'"),
        ({"inputs": [_INPUT], "parameters": {"content_type": "base64"}}, "the parameter 'content_type'"),
        ({"inputs": [_INPUT], "output": []}, "the request has 'output'"),
        ({"inputs": [_INPUT | {"dtype": "FP32"}]}, "an input has 'dtype'"),
        ({"inputs": [_INPUT | {"parameters": {"shared_memory_region": "r"}}]}, "the parameter 'shared_memory_region'"),
        ({"inputs": [_INPUT], "outputs": [{"name": "y", "binary_data": True}]}, "an output has 'binary_data'"),
        ({"inputs": [_INPUT], "outputs": [{"name": "y", "parameters": {"top": [3]}}]}, "the parameter 'top'"),
    ],
)
def test_nothing_in_a_request_goes_unread(request_: dict[str, object], told: str) -> None:
    with pytest.raises(InputError) as error:
        decode_header(request_, memoryview(b""))
    assert told in str(error.value) and "\n" not in str(error.value)


def test_what_asks_for_nothing_is_taken_and_a_timeout_is_in_microseconds() -> None:
    idle = {"priority": 0, "sequence_start": False, "content_type": "np", "sequence_id": ""}
    asked = {"inputs": [_INPUT | {"parameters": {"content_type": "str"}}], "parameters": idle | {"timeout": 0}}
    assert decode_header(asked, memoryview(b"")).seconds is None
    asked["parameters"] = {"timeout": 2_500_000}
    assert decode_header(asked, memoryview(b"")).seconds == 2.5


def test_no_output_and_no_value_is_told_twice() -> None:
    tensor = {"name": "x", "datatype": "UINT8", "shape": [1], "parameters": {"binary_data_size": 1}}
    with pytest.raises(InputError, match="'y' stands twice"):
        decode_header({"inputs": [tensor], "outputs": [{"name": "y"}, {"name": "y"}]}, memoryview(b"\0"))
    with pytest.raises(InputError, match="both 'data' and"):
        decode_header({"inputs": [tensor | {"data": [1]}]}, memoryview(b"\0"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            np.float32([[0.1, 0.7, 0.2], [5, np.nan, 5]]),
            [["0.700000:1:b", "0.200000:2:c"], ["5.000000:0:a", "5.000000:2:c"]],
        ),
        (np.array([3, -(2**63), 2**63 - 1]), ["9223372036854775807:2:c", "3:0:a"]),
        (np.uint8([[0, 255]]), [["255:1", "0:0"]]),
        (np.float16([[[1, 2], [4, 3]]]), [["4.000000:2", "3.000000:3"]]),
    ],
)
def test_the_largest_classes_of_each_row(values: np.ndarray, expected: list[object]) -> None:
    asked = InferRequest({}, {"y": False}, False, {"y": 2}, None)
    parts, _ = encode_response({}, [("y", values)], asked, {"y": "abc"})
    (output,) = json.loads(parts[0])["outputs"]
    assert output["datatype"] == "BYTES" and output["shape"] == list(np.shape(expected))
    assert output["data"] == np.ravel(expected).tolist()


@pytest.mark.parametrize("values", [np.array(["a"], object), np.zeros((0, 3)), np.array([True])])
def test_what_has_no_largest_classes_is_refused(values: np.ndarray) -> None:
    with pytest.raises(InputError, match="no largest"):
        encode_response({}, [("y", values)], InferRequest({}, {"y": False}, False, {"y": 1}, None), {})
