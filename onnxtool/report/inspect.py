"""What looking into a model gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxtool.report.base import Report, TensorInfo


@dataclass(frozen=True)
class OperatorUse:
    """One operator type.

    Attributes:
        name: "Conv", "com.microsoft.FusedConv".
        since: the opset that brought the version of the operator in use; None for unknown operators.
        count: number of nodes.
        macs: multiply-accumulates of all its nodes; None when it has none of the counted operators.
        parameters: elements of the initializers that its nodes read first.
    """

    name: str
    since: int | None
    count: int
    macs: int | None
    parameters: int


@dataclass(frozen=True)
class WeightInfo:
    """One initializer."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    bytes: int
    external: bool = False


@dataclass(frozen=True)
class NodeInfo:
    """One node.

    Attributes:
        graph: where it is, "main" or the path of the subgraph.
        output_shapes: as inferred; None where unknown.
        macs: multiply-accumulates; None when not counted or when a shape is unknown.
    """

    index: int
    name: str
    operator: str
    graph: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    output_shapes: tuple[tuple[int | str | None, ...] | None, ...]
    attributes: Mapping[str, Any]
    macs: int | None = None


@dataclass(frozen=True, repr=False)
class InspectReport(Report, kind="inspect"):
    """A model's anatomy.

    Attributes:
        bytes: size on disk, external data included.
        opsets: domain -> version.
        metadata: the model's metadata_props, without onnxtool's own history.
        history: the steps recorded by onnxtool, oldest first.
        functions: names of model-local functions.
        dynamic_dims: symbolic dims of the inputs.
        assumed_dims: the numbers put in for them, to count `macs`.
        parameters: elements of all floating-point and quantized initializers with at least one dim.
        parameter_bytes: bytes of all initializers.
        dtypes: bytes of initializers by element type.
        operators: most frequent first.
        macs: multiply-accumulates of Conv, ConvTranspose, Gemm, MatMul and their quantized and fused kin, for the
            assumed dims; bodies of loops count once.
        flops: two for each multiply-accumulate.
        uncounted: nodes of those operators with an unknown shape.
        largest: the largest initializers.
        nodes: all nodes, when asked for.
    """

    model: str
    bytes: int
    sha256: str
    ir_version: int
    opsets: Mapping[str, int]
    producer: str
    domain: str
    graph_name: str
    doc: str
    metadata: Mapping[str, str]
    history: tuple[Mapping[str, Any], ...]
    functions: tuple[str, ...]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    dynamic_dims: tuple[str, ...]
    assumed_dims: Mapping[str, int]
    node_count: int
    initializer_count: int
    parameters: int
    parameter_bytes: int
    dtypes: Mapping[str, int]
    operators: tuple[OperatorUse, ...]
    macs: int
    flops: int
    uncounted: int
    largest: tuple[WeightInfo, ...]
    nodes: tuple[NodeInfo, ...] = ()
    warnings: tuple[str, ...] = ()
