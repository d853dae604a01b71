"""A network with a matrix inverse, which ONNX has no operator for, but the library of onnxruntime-extensions has."""

from __future__ import annotations

import torch


class Whiten(torch.nn.Module):
    """x[3, 3] -> the inverse of a shifted, weighted x."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One pass: the operator by its name in the runtime's library while exporting, torch's own otherwise."""
        shifted = 0.1 * self.linear(x) + torch.eye(3)
        if torch.onnx.is_in_onnx_export():
            return torch.onnx.ops.symbolic(
                "ai.onnx.contrib::Inverse", (shifted,), dtype=shifted.dtype, shape=shifted.shape, version=1
            )
        return torch.linalg.inv(shifted)
