"""The code of a setting makes that very session."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from onnxtool.benchmark import session_code as module
from onnxtool.benchmark.session_code import code_of, settings_of
from onnxtool.runtime.providers.resolve import CPU, ResolvedProvider
from onnxtool.runtime.session.session import SessionOptions

OPTIONS = SessionOptions(
    threads=2,
    optimization="extended",
    arena=False,
    memory_pattern=False,
    parallel=True,
    prepack=False,
    settings=(("session.intra_op.allow_spinning", "0"),),
)


def test_python_code_runs_and_sets_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code_of(OPTIONS, "m.onnx")["python"], names)
    made = names["options"]
    assert made.intra_op_num_threads == 2
    assert not made.enable_cpu_mem_arena
    assert not made.enable_mem_pattern
    assert made.get_session_config_entry("session.disable_prepacking") == "1"
    assert made.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert str(made.execution_mode).endswith("ORT_PARALLEL")
    assert str(made.graph_optimization_level).endswith("ORT_ENABLE_EXTENDED")
    assert names["session"].get_providers() == [CPU]


def test_the_other_languages_set_the_same() -> None:
    code = code_of(OPTIONS, "m.onnx")
    for line in (
        "options.IntraOpNumThreads = 2;",
        "options.GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_EXTENDED;",
        "options.EnableCpuMemArena = false;",
        "options.EnableMemoryPattern = false;",
        "options.ExecutionMode = ExecutionMode.ORT_PARALLEL;",
        'options.AddSessionConfigEntry("session.disable_prepacking", "1");',
    ):
        assert line in code["csharp"]
    for line in (
        "options.SetIntraOpNumThreads(2);",
        "options.SetGraphOptimizationLevel(ORT_ENABLE_EXTENDED);",
        "options.DisableCpuMemArena();",
        "options.DisableMemPattern();",
        "options.SetExecutionMode(ORT_PARALLEL);",
        'options.AddConfigEntry("session.intra_op.allow_spinning", "0");',
    ):
        assert line in code["cpp"]


def test_a_plugin_is_registered_by_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = ResolvedProvider("NpuExecutionProvider", {"k": "v"}, (SimpleNamespace(),))
    monkeypatch.setattr(module, "resolved_providers", lambda _: [plugin, ResolvedProvider(CPU)])
    monkeypatch.setattr(module, "library_of", lambda _: ("onnxruntime_ep_npu", "/somewhere/of/mine/libnpu.so"))
    code = code_of(SessionOptions("npu"), "m.onnx")
    assert "onnxruntime_ep_npu.get_library_path()" in code["python"]
    assert "options.add_provider_for_devices(devices[:1], {'k': 'v'})" in code["python"]
    assert 'RegisterExecutionProviderLibrary("NpuExecutionProvider", "libnpu.so")' in code["csharp"]
    assert "AppendExecutionProvider_V2" in code["cpp"]
    assert all("/somewhere" not in text for text in code.values()), "no folder of this machine"


def test_what_is_usual_is_left_out() -> None:
    assert set(settings_of(SessionOptions())) == {"providers", "intra_op_num_threads", "graph_optimization_level"}


def test_built_in_providers_go_by_their_short_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, expected in (("CUDA", "AppendExecutionProvider_CUDA(own)"), ("QNN", 'AppendExecutionProvider("QNN"')):
        built_in = ResolvedProvider(f"{name}ExecutionProvider", {"k": "v"})
        monkeypatch.setattr(module, "resolved_providers", lambda _, p=built_in: [p, ResolvedProvider(CPU)])
        assert expected in code_of(SessionOptions(name), "m.onnx")["csharp"]
