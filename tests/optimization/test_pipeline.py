"""The pipeline as a whole, on the real raw export of the fixtures."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnxtool.equality.compare_runners import compare_runners, probe_feeds
from onnxtool.errors import UsageError
from onnxtool.model import io
from onnxtool.model.ir.queries import input_specs, operator_counts, output_specs
from onnxtool.optimization.pipeline import Level, optimize_model
from onnxtool.optimization.type_inference import infer_types
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT


def test_folds_all_batch_normalizations_of_a_raw_export(digits_onnx: Path) -> None:
    model = io.load(digits_onnx)
    before = input_specs(model), output_specs(model)

    result = optimize_model(model)

    counts = operator_counts(model)
    assert "BatchNormalization" not in counts
    assert "Identity" not in counts
    assert "Expand" not in counts
    assert (input_specs(model), output_specs(model)) == before
    assert result.settled
    source, optimized = OnnxRunner.open(digits_onnx, EXACT), OnnxRunner.open(model, EXACT)
    assert compare_runners(source, optimized, probe_feeds(source.inputs)).ok


def test_runs_again_without_a_change(digits_onnx: Path) -> None:
    model = io.load(digits_onnx)
    optimize_model(model)

    assert optimize_model(model).rewrites == 0


def test_refuses_unknown_levels_and_passes(digits_onnx: Path) -> None:
    model = io.load(digits_onnx)
    with pytest.raises(UsageError, match="basic, extended or all"):
        optimize_model(model, "fast")
    with pytest.raises(UsageError, match="--list-passes"):
        optimize_model(model, only=["no-such-pass"])


def test_basic_level_is_bit_exact(digits_onnx: Path) -> None:
    model = io.load(digits_onnx)
    optimize_model(model, Level.BASIC)

    source, optimized = OnnxRunner.open(digits_onnx, EXACT), OnnxRunner.open(model, EXACT)
    report = compare_runners(source, optimized, probe_feeds(source.inputs))
    assert all(o.max_abs == 0 for o in report.outputs)
    assert len(report.outputs) == 1


def test_the_tables_of_a_forest_outlive_the_inference_of_types() -> None:
    count = 2000  # more than what inference gets to see
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=list(range(count)),
        nodes_nodeids=[0] * count,
        nodes_modes=["LEAF"] * count,
        target_weights=[0.5] * count,
    )
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["b", 1]) for n in ("x", "z")]
    graph = helper.make_graph([node, helper.make_node("Relu", ["y"], ["z"])], "forest", values[:1], values[1:])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = ir.from_proto(helper.make_model(graph, opset_imports=imports, ir_version=8))
    before = ir.to_proto(model.graph[0])
    infer_types(model)
    assert ir.to_proto(model.graph[0]) == before
    assert model.graph[0].outputs[0].dtype == ir.DataType.FLOAT
