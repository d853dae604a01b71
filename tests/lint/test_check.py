"""check: what it accepts, what it refuses, and with which finding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxtool.errors import InputError, UsageError
from onnxtool.lint import check as check_module
from onnxtool.lint.catalog import RULES, rule
from onnxtool.lint.check import check
from onnxtool.lint.rule import FAMILIES
from onnxtool.report.check import Severity
from onnxtool.report.measurement.placement import NodePlacement, Placement, PlacementReport
from onnxtool.runtime.providers import place as place_module
from onnxtool.runtime.providers.resolve import CPU


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    opset: int = 20,
    domains: tuple[str, ...] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def floats(name: str, *dims: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


STAGES = ("OT00", "OT10", "OT11")


def ids(path: Path, **options: object) -> list[str]:
    return [f.id for f in check(path, select=STAGES, **options).findings]  # type: ignore[arg-type]


def test_a_sound_model_passes_every_stage(digits_onnx: Path) -> None:
    report = check(digits_onnx)
    assert report.ok
    assert [(s.name, s.state) for s in report.stages] == [
        ("specification", "passed"),
        ("shapes", "passed"),
        ("load", "passed"),
        ("run", "passed"),
    ]
    assert report.opsets == {"ai.onnx": 20}
    assert str(report.inputs[0]) == "image: float32[batch, 1, 8, 8]"
    assert report.nodes == 37


def test_unknown_operator_breaks_the_specification(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Rleu", ["x"], ["y"])], [floats("x", 2)], [floats("y", 2)])
    report = check(saved(model, tmp_path))
    assert not report.ok
    assert report.findings[0].id == "OT001"
    assert "Rleu" in report.findings[0].message
    assert [s.state for s in report.stages][:2] == ["failed", "skipped"]


def test_contradicting_shapes_are_an_error(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [floats("x", 2, 3)], [floats("y", 2, 4)])
    report = check(saved(model, tmp_path))
    assert "OT002" in [f.id for f in report.findings]
    assert not report.ok


def test_custom_operator_without_library_does_not_load(tmp_path: Path) -> None:
    node = helper.make_node("Whirl", ["x"], ["y"], domain="com.example")
    path = saved(model_of([node], [floats("x", 2)], [floats("y", 2)], domains=("com.example",)), tmp_path)
    report = check(path, select=STAGES)
    assert [f.id for f in report.findings] == ["OT103"]
    assert not report.ok


def test_an_operator_set_that_the_runtime_does_not_know_is_an_error(tmp_path: Path) -> None:
    # whatever is in it, the runtime refuses to load it
    path = saved(model_of([helper.make_node("Relu", ["x"], ["y"])], [floats("x", 2)], [floats("y", 2)], 99), tmp_path)
    report = check(path, select=STAGES)
    assert not report.ok
    (finding,) = report.findings
    assert finding.id == "OT104"
    assert "opset 99; this runtime knows those up to" in finding.message


def test_sparse_weights_are_no_error(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "s"], ["y"])
    model = model_of([node], [floats("x", "n", 4)], [floats("y", "n", 4)])
    sparse = model.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.array([1.0, 2.0], np.float32), "s"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.array([1, 3], np.int64), "i"))
    assert check(saved(model, tmp_path), select=STAGES).ok


def test_model_that_cannot_run_on_any_data_fails(tmp_path: Path) -> None:
    # The dims differ only at run time: shape inference sees symbolic ones.
    shape = helper.make_node("Constant", [], ["s"], value=onnx.numpy_helper.from_array(np.array([7, 5], np.int64)))
    nodes = [shape, helper.make_node("Reshape", ["x", "s"], ["y"])]
    path = saved(model_of(nodes, [floats("x", "n", 3)], [floats("y", "a", "b")]), tmp_path)
    report = check(path, select=STAGES)
    assert [f.id for f in report.findings] == ["OT114"]
    assert "Reshape" in report.findings[0].message
    assert not report.ok


def test_model_that_needs_special_values_only_warns(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    shape = helper.make_tensor_value_info("s", TensorProto.INT64, [3])
    path = saved(model_of(nodes, [floats("x", 5, 7), shape], [floats("y", "a", "b", "c")]), tmp_path)
    report = check(path, select=STAGES)
    assert [f.id for f in report.findings] == ["OT112"]
    assert report.ok
    assert not check(path, fail_on=Severity.WARNING).ok


def test_given_data_decides(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    shape = helper.make_tensor_value_info("s", TensorProto.INT64, [2])
    path = saved(model_of(nodes, [floats("x", 5, 7), shape], [floats("y", "a", "b")]), tmp_path)
    x = np.zeros((5, 7), np.float32)
    np.savez(tmp_path / "good.npz", x=x, s=np.array([7, 5]))
    np.savez(tmp_path / "bad.npz", x=x, s=np.array([7, 6]))
    assert ids(path, data=tmp_path / "good.npz") == []
    assert ids(path, data=tmp_path / "bad.npz") == ["OT111"]
    np.savez(tmp_path / "other.npz", z=x)
    with pytest.raises(InputError, match="the data has z"):
        check(path, data=tmp_path / "other.npz")


def test_output_of_nothing_but_nan_is_told(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sub", ["x", "x"], ["zero"]), helper.make_node("Div", ["zero", "zero"], ["y"])]
    assert ids(saved(model_of(nodes, [floats("x", 2, 2)], [floats("y", 2, 2)]), tmp_path)) == ["OT113"]


def test_every_rule_is_complete_and_its_id_tells_its_family() -> None:
    for identifier, entry in RULES.items():
        assert identifier == entry.id
        assert entry.family == FAMILIES[int(identifier[2])]
        assert entry.explanation.endswith(".")
        assert entry.fix.endswith(".")
    with pytest.raises(UsageError, match="OT999"):
        rule("OT999")


def test_an_output_of_another_shape_than_declared_fails(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["z"]),
        helper.make_node("Shape", ["z"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["y"]),
    ]
    for shape, told in (((2, 3), "[2, 3]"), ((2, "k", 1), "[2, k, 1]")):
        report = check(saved(model_of(nodes, [floats("x", 4, 4)], [floats("y", *shape)]), tmp_path), select=STAGES)
        assert f"declared as {told}, the model gives [2, 16]" in {f.id: f.message for f in report.findings}["OT115"]
        assert not report.ok
    assert check(saved(model_of(nodes, [floats("x", 4, 4)], [floats("y", 2, "k")]), tmp_path), select=STAGES).ok


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_a_constant_division_by_zero_that_the_runtime_refuses_fails(tmp_path: Path, kind: type) -> None:
    constants = {"a": np.array([4], kind), "b": np.array([0], kind)}
    model = model_of(
        [
            helper.make_node("Div", ["a", "b"], ["c"]),
            helper.make_node("Cast", ["c"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["x", "f"], ["y"]),
        ],
        [floats("x", 2)],
        [floats("y", 2)],
    )
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in constants.items())
    report = check(saved(model, tmp_path), select=STAGES)
    assert [f.id for f in report.findings] == ["OT101"]
    assert "division by zero" in report.findings[0].message and not report.ok


def test_operators_that_the_runtime_has_in_the_standard_domain_are_no_fault(tmp_path: Path) -> None:
    """Language models are full of SimplifiedLayerNormalization without a domain, which ONNX does not have."""
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 8])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 8])
    scale = onnx.numpy_helper.from_array(np.ones(8, np.float32), "scale")
    for name, ok in (("SimplifiedLayerNormalization", True), ("SimplerLayerNormalization", False)):
        node = onnx.helper.make_node(name, ["x", "scale"], ["y"])
        graph = onnx.helper.make_graph([node], "g", [x], [y], [scale])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
        onnx.save(model, tmp_path / "m.onnx")
        report = check(tmp_path / "m.onnx")
        assert report.ok == ok
        assert [s.state for s in report.stages] == (["passed"] * 4 if ok else [s.state for s in report.stages])


@pytest.mark.parametrize(("required", "severity"), [(False, Severity.WARNING), (True, Severity.ERROR)])
def test_nodes_that_fall_back_are_found(
    digits_onnx: Path, monkeypatch: pytest.MonkeyPatch, required: bool, severity: Severity
) -> None:
    nodes = tuple(
        NodePlacement(name, operator, CPU, "runs", "'npu' does not run it", True)
        for name, operator in (("a", "Conv"), ("b", "Conv"), ("c", "Relu"))
    )
    kept = NodePlacement("d", "Shape", CPU, "runs", "arithmetic on sizes", False)
    placed = Placement("m", ("NpuExecutionProvider",), (*nodes, kept), (), 0, 0.0, 0)
    monkeypatch.setattr(place_module, "place", lambda *_, **__: PlacementReport(placed, "random", "onnxruntime"))
    monkeypatch.setattr(check_module, "requested_providers", lambda _: ("NpuExecutionProvider",))
    report = check(digits_onnx, require_provider=required)
    found = [f for f in report.findings if f.id == "OT116"]
    assert [(f.where, f.severity) for f in found] == [("a", severity), ("c", severity)]
    assert found[0].message == f"2 Conv nodes on {CPU}: 'npu' does not run it"
    assert report.ok is not required


def test_the_cpu_itself_has_no_fallbacks(digits_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place_module, "place", lambda *_, **__: pytest.fail("nothing is to be placed"))
    assert not [f for f in check(digits_onnx).findings if f.id == "OT116"]


@pytest.mark.parametrize(
    "graph",
    [
        "(float[3, 2, 2] x, int64[1] axes) => (float[3, 1, 2] y) { y = ReduceSum(x, axes) }",
        "(float[1, 3, 1, 5] x, int64[1] axes) => (float[1, 3, 1, 1, 5] y) { y = Unsqueeze(x, axes) }",  # for -2
    ],
)
def test_a_shape_that_depends_on_values_is_no_wrong_declaration(tmp_path: Path, graph: str) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g {graph}'), path)
    assert "OT115" not in {f.id for f in check(path).findings}
