"""diff: what differs between two models, and only that."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxtool.errors import InputError
from onnxtool.model.diff import diff


@pytest.fixture
def pair(relu_proto: onnx.ModelProto, tmp_path: Path) -> Callable[..., list[tuple[str, str, str]]]:
    """Apply a change to the model and tell the differences as (what, kind, name)."""

    def told(change: Callable[[onnx.ModelProto], object]) -> list[tuple[str, str, str]]:
        onnx.save(relu_proto, tmp_path / "a.onnx")
        changed = onnx.load(tmp_path / "a.onnx")
        change(changed)
        onnx.save(changed, tmp_path / "b.onnx")
        report = diff(tmp_path / "a.onnx", tmp_path / "b.onnx")
        assert report.ok is not bool(report.changes)
        return [(c.what, c.kind, c.name) for c in report.changes]

    return told


def new_weight(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((3, 2), np.float32), "w"))


def renamed_weight(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].name = "v"
    model.graph.node[0].input[1] = "v"


def test_a_model_does_not_differ_from_itself(pair: Callable[..., list[tuple[str, str, str]]]) -> None:
    assert pair(lambda _: None) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (new_weight, [("initializer", "changed", "w")]),
        (renamed_weight, [("initializer", "renamed", "w"), ("node", "changed", "-> h")]),
        (lambda m: setattr(m.graph.node[1], "op_type", "Tanh"), [("node", "changed", "-> y")]),
        (lambda m: setattr(m.opset_import[0], "version", 19), [("header", "changed", "opset ai.onnx")]),
        (lambda m: m.metadata_props.add(key="k", value="v"), [("metadata", "added", "k")]),
        (
            lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 4),
            [("input", "changed", "x")],
        ),
        (
            lambda m: m.graph.node.add(op_type="Neg", input=["y"], output=["z"], name="extra"),
            [("node", "added", "extra")],
        ),
    ],
)
def test_a_change_is_told_and_nothing_else(
    change: Callable[[onnx.ModelProto], object],
    expected: list[tuple[str, str, str]],
    pair: Callable[..., list[tuple[str, str, str]]],
) -> None:
    assert pair(change) == expected


def test_attributes_and_operators(tmp_path: Path, digits_onnx: Path) -> None:
    model = onnx.load(digits_onnx)
    convolution = next(n for n in model.graph.node if n.op_type == "Conv")
    next(a for a in convolution.attribute if a.name == "pads").ints[:] = [0, 0, 0, 0]
    model.graph.node.remove(next(n for n in model.graph.node if n.op_type == "Identity"))
    onnx.save(model, tmp_path / "b.onnx")
    report = diff(digits_onnx, tmp_path / "b.onnx")
    change = next(c for c in report.changes if c.name == convolution.name)
    assert "pads=[1, 1, 1, 1]" in change.before
    assert "pads=[0, 0, 0, 0]" in change.after
    assert report.operators == {"Identity": (1, 0)}


def test_where_weights_are_stored_is_no_difference(relu_proto: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(relu_proto, tmp_path / "typed.onnx")  # float_data
    array = numpy_helper.to_array(relu_proto.graph.initializer[0])
    relu_proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "w"))  # raw_data
    onnx.save(relu_proto, tmp_path / "raw.onnx")
    onnx.save(relu_proto, tmp_path / "ext.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert diff(tmp_path / "typed.onnx", tmp_path / "raw.onnx").ok
    assert diff(tmp_path / "raw.onnx", tmp_path / "ext.onnx").ok


def test_a_missing_side_is_all_added(relu_proto: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(relu_proto, tmp_path / "a.onnx")
    report = diff(os.devnull, tmp_path / "a.onnx")
    assert {c.kind for c in report.changes} == {"added"}
    with pytest.raises(InputError, match="no such file"):
        diff(tmp_path / "none.onnx", tmp_path / "a.onnx")


def test_another_function_of_the_same_name_and_another_sparse_weight_are_told(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "d" : 1]> g (float[n] x) => (float[n] y)
    {{ a = d.f:{}(x) y = Add(a, s) }}
    <opset_import: ["" : 20], domain: "d", overload: "one"> f (x) => (y) {{ y = Exp(x) }}
    <opset_import: ["" : 20], domain: "d", overload: "other"> f (x) => (y) {{ y = {}(x) }}"""
    cases = {
        "a": ("one", "Neg", 1),
        "call": ("other", "Neg", 1),
        "body": ("one", "Abs", 1),
        "sparse": ("one", "Neg", 2),
    }
    for name, (called, body, number) in cases.items():
        model = onnx.parser.parse_model(text.format(called, body))
        values, place = np.float32([number]), np.array([0])
        tensors = numpy_helper.from_array(values, "s"), numpy_helper.from_array(place)
        model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(*tensors, [1]))
        onnx.save(model, tmp_path / f"{name}.onnx")
    told = {n: [(c.what, c.name) for c in diff(tmp_path / "a.onnx", tmp_path / f"{n}.onnx").changes] for n in cases}
    expected = {"call": [("node", "-> a")], "body": [("function", "d.f:other")], "sparse": [("initializer", "s")]}
    assert told == {"a": []} | expected
