"""What can be said of a model from its protobuf alone, quickly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from onnxtool.model.safety.limits import DEFAULT
from onnxtool.model.safety.tensors import graphs
from onnxtool.model.spec import ONNX_TO_NUMPY, Dim, TensorSpec


@dataclass(frozen=True)
class ModelHeader:
    """The outside of a model.

    Attributes:
        inputs: graph inputs that a caller must feed (initializers with defaults left out).
        operators: operator name ("Conv", "com.microsoft.FusedConv") -> number of nodes, subgraphs included.
    """

    ir_version: int
    opsets: Mapping[str, int]
    producer: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    metadata: Mapping[str, str]
    operators: Mapping[str, int]

    @property
    def nodes(self) -> int:
        """Number of nodes, subgraphs included."""
        return sum(self.operators.values())


def read_header(model: onnx.ModelProto) -> ModelHeader:
    """Summarise a ModelProto."""
    initialized = {t.name for t in model.graph.initializer} | {s.values.name for s in model.graph.sparse_initializer}
    counts: Counter[str] = Counter()
    for graph in graphs(model, DEFAULT):
        counts.update(operator_name(n.domain, n.op_type) for n in graph.node)
    producer = " ".join(filter(None, (model.producer_name, model.producer_version)))
    return ModelHeader(
        ir_version=model.ir_version,
        opsets={o.domain or "ai.onnx": o.version for o in model.opset_import},
        producer=producer,
        inputs=specs(v for v in model.graph.input if v.name not in initialized),
        outputs=specs(model.graph.output),
        metadata={p.key: p.value for p in model.metadata_props},
        operators=dict(counts.most_common()),
    )


def operator_name(domain: str, op_type: str) -> str:
    """ "Conv" for the standard domain, "domain.Op" for every other."""
    return op_type if domain in ("", "ai.onnx") else f"{domain}.{op_type}"


def specs(values: Iterable[onnx.ValueInfoProto]) -> tuple[TensorSpec, ...]:
    """TensorSpecs of value infos."""
    return tuple(_spec(v) for v in values)


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return TensorSpec(value.name, (kind or "unknown").removesuffix("_type"), None)
    tensor = value.type.tensor_type
    shape = tuple(_dim(d) for d in tensor.shape.dim) if tensor.HasField("shape") else None
    return TensorSpec(value.name, element_type(tensor.elem_type), shape)


def element_type(number: int) -> np.dtype | str:
    """What numpy calls an element type of the file; its name in lower case where numpy has none."""
    try:
        name = onnx.TensorProto.DataType.Name(number)
    except ValueError:  # a number that the specification does not know
        name = f"type_{number}"
    return ONNX_TO_NUMPY.get(name, name.lower())


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value") and dim.dim_value >= 0:  # old exporters write -1 for a dynamic dim
        return dim.dim_value
    return dim.dim_param or None
