"""`compare --bisect`: the smallest part of two models that still differs, as files to attach to a bug report."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxtool.equality.compare_runners import compare_runners
from onnxtool.equality.layers.compare_layers import Sides
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import ResourceError, UsageError
from onnxtool.model.file import ModelFile
from onnxtool.model.io.atomic import write_atomic
from onnxtool.model.model_view import ModelView
from onnxtool.model.proto_nodes import inner_graphs
from onnxtool.report.layers import Layers, Reproducer
from onnxtool.runtime.output_files import write_npz
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT


def reproduce(layers: Layers, sides: Sides, folder: Path, tolerance: Tolerance) -> Reproducer | None:
    """Cut out the nodes that make the first wrong tensor, with the tensors that they read as inputs.

    Writes a.onnx, b.onnx and inputs.npz; what the two give is compared before anything is said.

    Args:
        layers: what `compare_layers` found.
        sides: the two models as it ran them.
        folder: made when it is not there.
        tolerance: as for the comparison.

    Returns:
        None when there is no wrong tensor.

    Raises:
        UsageError: `folder` is a file.
        ResourceError: the files cannot be written.
    """
    if layers.culprit is None:
        return None
    partner = {t.other_name: t.name for t in layers.tensors}
    wrong = next(t for t in layers.tensors if t.name == layers.culprit.tensor and not t.ok)
    agreeing = {t.other_name for t in layers.tensors if t.ok}
    left, right = sides
    nodes_b, ends_b = right.graph.behind(wrong.other_name, agreeing)
    nodes_a, ends_a = left.graph.behind(wrong.name, {partner[y] for y in agreeing})
    other = {x: y for y, x in partner.items()}
    # Both parts take the same inputs, in the same order: what either reads. Unused ones do no harm.
    inside = sorted({*ends_a, *(partner[y] for y in ends_b)})
    outer = sorted(n for n in left.feeds if _reads(left.graph, nodes_a, n) or _reads(right.graph, nodes_b, n))
    values = {**{n: left.feeds[n] for n in outer}, **left.fetch(inside)}
    names_b = {**{n: n for n in outer}, **{x: other[x] for x in inside}}
    part_a = _part(left.path, [o for n in nodes_a for o in _made(n)], values, {n: n for n in values}, wrong.name)
    part_b = _part(right.path, [o for n in nodes_b for o in _made(n)], values, names_b, wrong.other_name)
    _write(folder, part_a, part_b, values)
    report = compare_runners(
        OnnxRunner.open(part_a, EXACT), OnnxRunner.open(part_b, EXACT), [values], tolerance, names=("a.onnx", "b.onnx")
    )
    quoted = shlex.quote(str(folder))
    return Reproducer(
        folder=str(folder),
        nodes_a=len(part_a.graph.node),
        nodes_b=len(part_b.graph.node),
        differs=report.differs,
        max_abs=report.outputs[0].max_abs,
        command=(f"cd {quoted}", "onnxtool compare a.onnx b.onnx --data inputs.npz --opt-level off"),
    )


def _made(node: Any) -> list[str]:
    return [o.name for o in node.outputs if o.name]


def _reads(graph: Any, nodes: Iterable[Any], name: str) -> bool:
    return any(name in graph.reads(node) for node in nodes)


def _part(
    path: Path,
    tensors: Sequence[str],
    values: Mapping[str, np.ndarray],
    names: Mapping[str, str],
    result: str,
) -> onnx.ModelProto:
    """The nodes of a model that make `tensors`, as a model of its own.

    Args:
        path: the model.
        tensors: what the wanted nodes make.
        values: what goes in, by A's names.
        names: A's name -> this model's name of each of them.
        result: the one output.
    """
    view = ModelFile(path).view
    source = view.proto
    wanted = set(tensors)
    nodes = [n for n in source.graph.node if wanted & set(n.output)]
    read = {name for node in nodes for name in _captured(node)}
    constants = [n for n in source.graph.node if n.op_type == "Constant" and set(n.output) & read]
    inputs = [
        onnx.helper.make_tensor_value_info(names[n], onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in values.items()
    ]
    taken = set(names.values())
    graph = onnx.helper.make_graph(
        [*constants, *nodes],
        "first_difference",
        inputs,
        [onnx.helper.make_empty_tensor_value_info(result)],
        [_whole(view, t) for t in source.graph.initializer if t.name in read and t.name not in taken],
    )
    part = onnx.helper.make_model(graph, opset_imports=source.opset_import, ir_version=source.ir_version)
    part.functions.extend(source.functions)
    part.producer_name = "onnxtool"
    return onnx.shape_inference.infer_shapes(part)


def _captured(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, those inside its subgraphs included."""
    names = set(node.input)
    for graph in inner_graphs(node):
        names |= {name for inner in graph.node for name in _captured(inner)}
        names |= {value.name for value in graph.output}
    return names


def _whole(view: ModelView, tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The initializer with its bytes in it."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return tensor
    values = view.values(tensor)
    return tensor if values is None else numpy_helper.from_array(np.asarray(values), tensor.name)


def _write(folder: Path, a: onnx.ModelProto, b: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "a.onnx", a.SerializeToString())
        write_atomic(folder / "b.onnx", b.SerializeToString())
    except FileExistsError as error:
        raise UsageError(f"--bisect {folder}: is a file, not a folder.") from error
    except OSError as error:
        raise ResourceError(f"--bisect {folder}: cannot be written ({error.strerror}).") from error
    write_npz(folder / "inputs.npz", values)
