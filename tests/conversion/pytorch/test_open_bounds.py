"""Clamps of one bound keep infinity, which ONNX's Clip does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch

import onnxtool
from onnxtool.conversion.pytorch.patches.open_bounds import keep_infinities

ENDS = np.array([[np.nan, -np.inf, -1, 0, 1, np.inf]] * 5, np.float32)


class Function(torch.nn.Module):
    def __init__(self, compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute(x)


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x.clamp(min=-0.5),
        lambda x: torch.clamp_max(x, 0.5),
        lambda x: x.clamp(torch.tensor(-0.5), None),
        lambda x: x.clamp(-0.5, 0.5),
    ],
    ids=["least", "most", "a tensor", "both"],
)
def test_infinity_stays(compute: Callable[[torch.Tensor], torch.Tensor], exporter: str, tmp_path: Path) -> None:
    module, path = Function(compute).eval(), tmp_path / "m.onnx"
    onnxtool.convert(module, path, input_shapes={"x": ("batch", 6)}, exporter=exporter, verify_result=False)
    (found,) = ort.InferenceSession(path).run(None, {"x": ENDS})
    np.testing.assert_array_equal(found, module(torch.from_numpy(ENDS)).numpy())


@pytest.mark.parametrize(
    ("kind", "node", "kept"),
    [
        ("float", "Clip(x, bound)", "Max(x, bound)"),
        ("float", "Clip(x, , bound)", "Min(x, bound)"),
        ("float", "Clip(x, bound, bound)", "Clip(x, bound, bound)"),
        ("float", "Clip(x)", "Clip(x)"),
        ("int8", "Clip(x, bound)", "Clip(x, bound)"),  # the runtime has no Max of int8, and int8 no infinity
    ],
)
def test_only_one_bound_of_floats_is_written_otherwise(kind: str, node: str, kept: str) -> None:
    text = f'<ir_version: 10, opset_import: ["" : 20]> g ({kind}[n] x, {kind} bound) => ({kind}[n] y) {{ y = %s }}'
    made = ir.from_onnx_text(text % node)
    assert isinstance(made, ir.Model)
    assert keep_infinities(made) == (node != kept)
    wanted = onnx.parser.parse_model(text % kept).graph.node[0]
    found = ir.to_proto(made).graph.node[0]
    assert (found.op_type, list(found.input)) == (wanted.op_type, list(wanted.input))
