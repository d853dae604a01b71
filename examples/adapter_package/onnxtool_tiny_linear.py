"""An adapter of a third party: `{"format": "tiny-linear", "weights": [[...]], "bias": [...]}` -> ONNX.

It has the three methods that every adapter has. `onnxtool convert` does the rest: it names the dynamic dim, compares
this model's `run` with the ONNX file at three batch sizes, and writes the file only if they agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.extension import Adapter, ConvertOptions, InputError, Source, SourceModel, TensorSpec

FORMAT = "tiny-linear"


class TinyLinear(SourceModel):
    """y = x weights + bias."""

    form = "tiny-linear model (JSON)"
    framework = "tiny-linear 1.0"

    def __init__(self, weights: np.ndarray, bias: np.ndarray) -> None:
        self.weights, self.bias = weights, bias
        self.inputs = (TensorSpec("x", np.dtype("float32"), ("batch", weights.shape[0])),)
        self.outputs = (TensorSpec("y", np.dtype("float32"), ("batch", weights.shape[1])),)
        self.notes = []

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {"y": feeds["x"] @ self.weights + self.bias}


class TinyLinearAdapter(Adapter):
    """Recognises by content, loads, exports."""

    name = FORMAT
    extra = FORMAT

    def recognises(self, source: Source, options: ConvertOptions) -> bool:  # noqa: ARG002
        document = source.json()
        return isinstance(document, dict) and document.get("format") == FORMAT

    def load(self, source: Source, options: ConvertOptions) -> TinyLinear:  # noqa: ARG002
        document = source.json()
        try:
            weights = np.array(document["weights"], np.float32)
            bias = np.array(document["bias"], np.float32)
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(f"{source}: weights and bias must be lists of numbers.") from error
        if weights.ndim != 2 or bias.shape != weights.shape[1:]:
            raise InputError(f"{source}: weights {list(weights.shape)} and bias {list(bias.shape)} do not fit.")
        return TinyLinear(weights, bias)

    def export(self, model: TinyLinear, options: ConvertOptions) -> ir.Model:  # noqa: ARG002
        x = ir.Value(name="x", shape=ir.Shape(["batch", model.weights.shape[0]]), type=ir.TensorType(ir.DataType.FLOAT))
        weights = ir.Value(name="weights", const_value=ir.tensor(model.weights, name="weights"))
        bias = ir.Value(name="bias", const_value=ir.tensor(model.bias, name="bias"))
        node = ir.node("Gemm", [x, weights, bias])
        y = node.outputs[0]
        y.name, y.type = "y", ir.TensorType(ir.DataType.FLOAT)
        graph = ir.Graph([x], [y], nodes=[node], initializers=[weights, bias], opset_imports={"": 20}, name=FORMAT)
        return ir.Model(graph, ir_version=10, producer_name="onnxtool-tiny-linear")
