"""A folder with a small model and a build file, and a build of it in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnxtool.report.build import BuildReport
from onnxtool.workflow.build import build

Builder = Callable[..., BuildReport]


def tiny_model(value: float = 1.0) -> onnx.ModelProto:
    """x float32[batch,2] -> y = x + value."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "c"], ["y"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor("c", TensorProto.FLOAT, [2], [value, value])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a.onnx and b.onnx."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name, value in (("a", 1.0), ("b", 2.0)):
        (folder / f"{name}.onnx").write_bytes(tiny_model(value).SerializeToString())
    return folder


@pytest.fixture
def run(project: Path, tmp_path: Path) -> Builder:
    """`run(text)` writes the build file, unless it is None, and builds it in this process with a cache of its own."""

    def start(text: str | None = None, *targets: str, **settings: object) -> BuildReport:
        file = project / "onnxtool.toml"
        if text is not None:
            file.write_text(text, encoding="utf-8")
        given = {"executor": "local", "cache": tmp_path / "cache", **settings}
        return build(file, targets, **given)  # type: ignore[arg-type]

    return start
