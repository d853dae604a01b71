"""Small models written as ONNX text, edited, and run before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxtool.editing.edit import edit
from onnxtool.report.edit import EditReport
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT

Arrays = Mapping[str, np.ndarray]


class Edited:
    """A model before and after.

    Attributes:
        source, output: the files.
        report: what `edit` said.
    """

    def __init__(self, source: Path, output: Path, report: EditReport) -> None:
        self.source, self.output, self.report = source, output, report

    def before(self, **feeds: Any) -> dict[str, Any]:
        return OnnxRunner.open(self.source, EXACT).run({n: np.asarray(a) for n, a in feeds.items()})

    def run(self, **feeds: Any) -> dict[str, Any]:
        return OnnxRunner.open(self.output, EXACT).run({n: np.asarray(a) for n, a in feeds.items()})

    @property
    def proto(self) -> onnx.ModelProto:
        return onnx.load(self.output)


def write(path: Path, text: str, weights: Arrays | None = None, opset: int = 18) -> Path:
    """A checked model file: graph text and named weights."""
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}')
    for name, array in (weights or {}).items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    for index, node in enumerate(proto.graph.node):
        node.name = node.name or f"node_{index}"
    onnx.checker.check_model(proto)
    onnx.save(proto, path)
    return path


Editor = Callable[..., Edited]


@pytest.fixture
def edited(tmp_path: Path) -> Editor:
    """`edited(text, "rename-input=x=image", weights={...})`: write the model, edit it, give both."""

    def run(text: str, *operations: str, weights: Arrays | None = None, opset: int = 18, **options: Any) -> Edited:
        source, output = tmp_path / "source.onnx", tmp_path / "output.onnx"
        write(source, text, weights, opset)
        return Edited(source, output, edit(source, output, list(operations), **options))

    return run
