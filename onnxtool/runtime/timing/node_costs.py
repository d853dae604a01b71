"""What each node that the runtime ran computes and moves: its original nodes, operations and bytes."""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxtool.errors import OnnxToolError, UsageError
from onnxtool.model.operators.cost import Shape, elementwise, macs
from onnxtool.model.proto_nodes import all_nodes, inner_graphs
from onnxtool.model.safety.tensors import declared_bytes
from onnxtool.model.spec import parse_dtype
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.fused_node_names import label, original_nodes
from onnxtool.runtime.session.session import SessionOptions

SUFFIX = "_kernel_time"
Key = tuple[str, str]


@dataclass(frozen=True)
class NodeCost:
    """Fields as in `NodeTime`."""

    originals: tuple[str, ...] = ()
    macs: int | None = None
    flops: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class _Tensor:
    shape: Shape
    bytes: int | None


def event_key(event: Mapping[str, Any]) -> Key | None:
    """(node, operator) of a kernel's event; None for any other event."""
    name = str(event.get("name", ""))
    if event.get("cat") != "Node" or not name.endswith(SUFFIX):
        return None
    return name.removesuffix(SUFFIX), str(event.get("args", {}).get("op_name", ""))


def profiled_events(session: Any) -> list[dict[str, Any]]:
    """End a session's profiling, and read what its profiler wrote; raises ValueError where that is damaged."""
    written = Path(session.end_profiling())
    events: list[dict[str, Any]] = json.loads(written.read_text(encoding="utf-8", errors="replace"))
    return events


def node_costs(
    source: onnx.ModelProto,
    run: onnx.ModelProto,
    events: Sequence[Mapping[str, Any]],
    feeds: Mapping[str, np.ndarray],
    counted: Mapping[str, int],
) -> dict[Key, NodeCost]:
    """Costs by event key.

    Args:
        source: the file.
        run: the graph that the runtime made of it.
        events: the profiler's, with the shapes that were really there.
        feeds: the inputs of the run.
        counted: multiply-accumulates of the file's nodes, by label.
    """
    nodes = list(all_nodes(run.graph.node))
    originals = original_nodes(source, run)
    first: dict[Key, Mapping[str, Any]] = {}
    for event in events:
        key = event_key(event)
        if key is not None:
            first.setdefault(key, event.get("args", {}))
    tensors = {**_weights(run), **{n: _Tensor(a.shape, a.nbytes) for n, a in feeds.items()}}
    found: dict[Key, NodeCost] = {}
    for key, position in _positions(first, nodes).items():
        node = nodes[position]
        made = _outputs(first[key].get("output_type_shape"))
        tensors |= dict(zip((n for n in node.output if n), made, strict=False))
        ordered = sorted(originals[position], key=lambda n: (label(n) not in counted, n.op_type != node.op_type))
        names = [label(n) for n in ordered]
        found[key] = _cost(node, tensors, tuple(names), counted)
    return found


def _cost(
    node: onnx.NodeProto, tensors: Mapping[str, _Tensor], originals: tuple[str, ...], counted: Mapping[str, int]
) -> NodeCost:
    inputs = [tensors.get(n, _Tensor(None, None)).shape for n in node.input]
    outputs = [tensors.get(n, _Tensor(None, None)).shape for n in node.output]
    # The runtime pads channels to whole vectors: what the file asks for is the honest number.
    known = [counted[n] for n in originals if n in counted]
    products = sum(known) if known else macs(node, inputs, outputs)
    operations = elementwise(node, inputs, outputs) if products is None else 2 * products
    touched = [tensors[n].bytes if n in tensors else None for n in (*dict.fromkeys(node.input), *node.output) if n]
    return NodeCost(originals, products, operations, _sum(touched))


def _sum(sizes: Iterable[int | None]) -> int | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


def _positions(events: Mapping[Key, object], nodes: Sequence[onnx.NodeProto]) -> dict[Key, int]:
    """Event -> position of its node. Unnamed nodes are called by type and number: told apart by their order."""
    named: dict[Key, int] = {}
    unnamed: dict[str, list[int]] = {}
    for position, node in enumerate(nodes):
        if node.name:
            named.setdefault((node.name, node.op_type), position)
        else:
            unnamed.setdefault(node.op_type, []).append(position)
    found: dict[Key, int] = {}
    rest: dict[str, list[Key]] = {}
    for key in events:
        if key in named:
            found[key] = named[key]
        else:
            rest.setdefault(key[1], []).append(key)
    for operator, keys in rest.items():
        if len(keys) == len(unnamed.get(operator, ())):
            found |= dict(zip(keys, unnamed[operator], strict=True))
    order = {key: i for i, key in enumerate(events)}
    return dict(sorted(found.items(), key=lambda item: order[item[0]]))


def _weights(run: onnx.ModelProto) -> dict[str, _Tensor]:
    found = {t.name: _Tensor(tuple(t.dims), declared_bytes(t)) for t in run.graph.initializer}
    for node in all_nodes(run.graph.node):
        for graph in inner_graphs(node):
            found |= {t.name: _Tensor(tuple(t.dims), declared_bytes(t)) for t in graph.initializer}
    return found


def _outputs(described: object) -> Iterator[_Tensor]:
    """[{"float": [1, 3]}, ...] as the profiler writes it."""
    for item in described if isinstance(described, list) else ():
        kind, dims = next(iter(item.items()), ("", None)) if isinstance(item, dict) else ("", None)
        if not isinstance(dims, list):
            yield _Tensor(None, None)
            continue
        width = _width(kind)
        yield _Tensor(tuple(dims), None if width is None else math.prod(dims) * width)


def _width(kind: str) -> int | None:
    with suppress(UsageError):
        dtype = parse_dtype(kind)
        return None if isinstance(dtype, str) else dtype.itemsize
    return None


# OpenVINO names its kernels "brgconv_avx512_amx_bf16", "jit_avx512_f16", "jit_uni_f32".
_TYPE = re.compile(r"_(bf16|f16|f32)$")
_NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


def kernel_precision(model: Path, feeds: Mapping[str, np.ndarray], options: SessionOptions) -> str:
    """The smallest float format that the kernels of one profiled run have; "" where they do not tell."""
    with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
        try:
            runner = OnnxRunner.open(model, replace(options, profile_prefix=str(Path(scratch) / "profile")))
            runner.run(feeds)
            events = profiled_events(runner.session)
        except (OnnxToolError, ValueError, OSError):
            return ""
    return precision_of_events(events)


def precision_of_events(events: Iterable[Mapping[str, Any]]) -> str:
    """The same of a profile's events: bfloat16 before float16 before float32, as they keep fewer digits."""
    found = set()
    for event in events:
        match = (
            _TYPE.search(str(event.get("args", {}).get("ov_exec_type", ""))) if event.get("cat") == "Kernel" else None
        )
        if match is not None:
            found.add(match[1])
    return next((_NAMES[t] for t in ("bf16", "f16", "f32") if t in found), "")
