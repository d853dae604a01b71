"""The Python functions take models that are objects, and give the result back where no output path is named."""

from __future__ import annotations

import dataclasses
import inspect
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import onnxtool
from onnxtool.errors import OnnxToolError, UsageError
from onnxtool.model.io.in_memory import LABEL
from onnxtool.options.convert import ConvertOptions

X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def outputs(model: ir.Model, feeds: dict[str, np.ndarray]) -> list[Any]:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    return session.run(None, feeds)


@pytest.mark.parametrize("kind", ["onnx", "onnx_ir"])
def test_every_function_takes_a_model(relu_proto: onnx.ModelProto, kind: str) -> None:
    model = relu_proto if kind == "onnx" else ir.from_proto(relu_proto)
    assert onnxtool.check(model).ok
    assert onnxtool.inspect(model).model == LABEL
    assert onnxtool.run(model, data={"x": X}).values["y"].shape == (4, 2)
    assert onnxtool.compare(model, model, data={"x": X}).ok
    assert onnxtool.diff(model, model).changes == ()
    assert onnxtool.bench([model, model], budget=0.01).models[1].model == LABEL


def test_the_result_comes_back_where_no_output_is_named(relu_proto: onnx.ModelProto) -> None:
    report = onnxtool.optimize(relu_proto, bench=False)
    assert report.ok and report.output == LABEL
    np.testing.assert_allclose(
        outputs(report.result, {"x": X})[0], np.maximum(X @ [[1, -1], [0.5, 0.25], [-2, 3]], 0), rtol=1e-5, atol=1e-6
    )
    assert "result" not in report.to_dict()


def test_no_temporary_name_stays_in_a_report(relu_proto: onnx.ModelProto) -> None:
    reports = [onnxtool.check(relu_proto), onnxtool.optimize(relu_proto, bench=False)]
    assert not any("onnxtool-" in str(r.to_dict()) for r in reports)


def test_large_weights_come_back_without_their_file(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = ir.tensor(np.eye(300, dtype=np.float32), name="w")
    x = ir.Value(name="x", shape=ir.Shape(["n", 300]), type=ir.TensorType(ir.DataType.FLOAT))
    w = ir.Value(name="w", const_value=weight)
    node = ir.node("MatMul", [x, w])
    node.outputs[0].name = "y"
    graph = ir.Graph([x], node.outputs, nodes=[node], initializers=[w], opset_imports={"": 20}, name="g")
    monkeypatch.setattr("onnxtool.model.io.write.INLINE_LIMIT", 1000)
    report = onnxtool.optimize(ir.Model(graph, ir_version=10), bench=False)
    rows = np.ones((2, 300), np.float32)
    assert (outputs(report.result, {"x": rows})[0] == rows).all()


@pytest.mark.parametrize("function", ["check", "inspect", "optimize", "quantize", "run", "bench", "convert"])
def test_a_wrong_type_is_an_error_of_ours(function: str) -> None:
    with pytest.raises(OnnxToolError, match="int"):
        getattr(onnxtool, function)(7)


def test_signatures_are_real() -> None:
    signature = inspect.signature(onnxtool.quantize)
    assert list(signature.parameters)[:3] == ["source", "output", "mode"]
    assert signature.parameters["time_limit"].default == 100.0
    options = {f.name for f in dataclasses.fields(ConvertOptions)}
    assert options <= set(inspect.signature(onnxtool.convert).parameters)
    assert all(inspect.isfunction(getattr(onnxtool, n)) for n in ("convert", "optimize", "quantize", "check"))


def test_converts_a_torch_module_and_leaves_it_as_it_was() -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.ReLU()).train()
    report = onnxtool.convert(net, input_shapes={"": ("batch", 3)})
    assert report.ok and report.source == "Sequential in memory"
    assert net.training and all(p.requires_grad for p in net.parameters())
    expected = net.eval()(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(outputs(report.result, {report.inputs[0].name: X})[0], expected, rtol=1e-4, atol=1e-5)


def test_converts_an_estimator_and_a_booster() -> None:
    pytest.importorskip("skl2onnx")
    from sklearn.linear_model import LogisticRegression

    labels = np.array([0, 1, 0, 1])
    model = LogisticRegression().fit(X, labels)
    report = onnxtool.convert(model)
    assert (outputs(report.result, {report.inputs[0].name: X.astype(np.float64)})[0] == model.predict(X)).all()
    xgboost = pytest.importorskip("xgboost")
    booster = xgboost.train({"objective": "reg:squarederror"}, xgboost.DMatrix(X, labels), 3)
    report = onnxtool.convert(booster)
    np.testing.assert_allclose(
        np.ravel(outputs(report.result, {report.inputs[0].name: X})[0]),
        booster.predict(xgboost.DMatrix(X)),
        rtol=1e-5,
        atol=1e-6,
    )


def test_converts_a_keras_model(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tf2onnx")
    from onnxtool.conversion.tensorflow.environment import import_keras

    keras = import_keras("a test")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    report = onnxtool.convert(model)
    np.testing.assert_allclose(
        outputs(report.result, {report.inputs[0].name: X})[0], model(X).numpy(), rtol=1e-4, atol=1e-5
    )


def test_an_output_path_is_still_written(relu_proto: onnx.ModelProto, tmp_path: Path) -> None:
    report = onnxtool.optimize(relu_proto, tmp_path / "out.onnx", bench=False)
    assert report.output == os.fspath(tmp_path / "out.onnx") and (tmp_path / "out.onnx").exists()
    assert report.result is None


def test_a_class_is_no_model() -> None:
    with pytest.raises(UsageError, match="not a type"):
        onnxtool.convert(dict, "out.onnx")


def test_a_report_is_a_few_lines_and_a_table(relu_proto: onnx.ModelProto) -> None:
    for report in (
        onnxtool.check(relu_proto),
        onnxtool.inspect(relu_proto),
        onnxtool.optimize(relu_proto, bench=False),
    ):
        lines = repr(report).splitlines()
        assert lines[0] == type(report).__name__ and lines[1] == "  ok: True"
        assert len(lines) < 30 and max(map(len, lines)) < 130
        assert report._repr_html_().count("<tr>") == len(lines) - 1


def test_a_table_escapes_what_comes_from_a_file(relu_proto: onnx.ModelProto) -> None:
    relu_proto.producer_name = "<script>alert(1)</script>"
    html = onnxtool.check(relu_proto)._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html
