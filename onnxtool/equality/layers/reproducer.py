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
from onnxtool.model.cut_model import cut_model
from onnxtool.model.file import ModelFile
from onnxtool.model.io.atomic import write_atomic
from onnxtool.model.model_view import ModelView
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
    path: Path, tensors: Sequence[str], values: Mapping[str, np.ndarray], names: Mapping[str, str], result: str
) -> onnx.ModelProto:
    """The nodes of a model that make `tensors`; `values` go in by A's names, of which `names` gives this model's."""
    view = ModelFile(path).view
    own = {names[n]: a for n, a in values.items()}
    return cut_model(view.proto, tensors, own, [result], weight=lambda tensor: _whole(view, tensor))


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
