"""`compare --layers`: run two models with every tensor in sight, and find the first one that is wrong."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxtool import progress
from onnxtool.model import io
from onnxtool.model.graph import input_specs
from onnxtool.model.limits import DEFAULT
from onnxtool.model.shapes import bind_inputs, infer, known_shapes, light_copy
from onnxtool.model.tensors import all_tensors, external_ref
from onnxtool.report.layers import Layers
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session import EXACT, SessionOptions
from onnxtool.validate.equality import match_names
from onnxtool.validate.layer_graph import LayerGraph
from onnxtool.validate.layer_verdict import Measured, judge
from onnxtool.validate.tolerance import Tolerance

# Bytes of tensors held at one time, of both models together; what is beyond is fetched in further passes.
MEMORY = 256 << 20
# Least that is assumed for tensors whose shape inference does not know.
_UNKNOWN_BYTES = 1 << 17
# Rounding of float32 sums grows with the largest value in sight, not with the element's own.
_SCALE_TOLERANCE = 1e-5
_PROBES = 8


@dataclass
class Side:
    """One model: its graph, its inputs, what is known of its tensors."""

    path: Path
    graph: LayerGraph
    feeds: Mapping[str, np.ndarray]
    options: SessionOptions
    sizes: Mapping[str, int]
    inline: bool
    sketches: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, feeds: Mapping[str, np.ndarray], options: SessionOptions) -> Side:
        """Read a model once: its graph and, when there are inputs, the sizes of its tensors for them."""
        proto = io.read_proto(path)
        inline = all(external_ref(t) is None for t in all_tensors(proto, DEFAULT))
        graph = LayerGraph.of(io.from_proto(proto, path.parent))
        return cls(path, graph, feeds, options, _sizes(proto, feeds) if feeds else {}, inline)

    @cached_property
    def typical(self) -> int:
        """What is assumed for tensors whose shape is not known: the mean of the others, but no trifle."""
        return max(sum(self.sizes.values()) // max(len(self.sizes), 1), _UNKNOWN_BYTES)

    def size(self, name: str | None) -> int:
        """Bytes of a tensor, as far as can be told beforehand."""
        return 0 if name is None else self.sizes.get(name, self.typical)

    def fetch(self, names: Sequence[str]) -> dict[str, Any]:
        """Run the model with these tensors as its outputs."""
        if not names:
            return {}
        session = self._with_outputs(names)
        runner = OnnxRunner.open(session, self.options)
        fed = {s.name: self.feeds[s.name] for s in runner.inputs}
        wanted = set(names)
        runner.outputs = tuple(s for s in runner.outputs if s.name in wanted)
        return runner.run(fed)

    def _with_outputs(self, names: Sequence[str]) -> bytes | ir.Model:
        """The model with more outputs."""
        own = self.graph.output_names(self.graph.model)
        if self.inline:
            # Protobuf messages merge when their bytes are put one after the other: no need to write the weights anew.
            patch = onnx.ModelProto()
            patch.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in own)
            return self.path.read_bytes() + bytes(patch.SerializeToString())
        copy: ir.Model = self.graph.model.clone()
        values = {o.name: o for node in copy.graph for o in node.outputs}
        copy.graph.outputs.extend(values[n] for n in names if n not in own)
        return copy


Sides = tuple[Side, Side]


def compare_layers(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    feeds: Mapping[str, np.ndarray],
    tolerance: Tolerance,
    options: SessionOptions = EXACT,
) -> Layers:
    """Compare all tensors of two ONNX models in one run, and name the first that is wrong.

    Tensors are matched by name, and by value where names differ (a fusion may have renamed them). The runtime's own
    optimizations are off: it would fuse the tensors away. Memory is bounded: `MEMORY` bytes of tensors at a time.

    Args:
        a: the reference.
        b: what is judged.
        feeds: inputs in A's names.
        tolerance: for floats; grows with the largest value of a tensor, see `LayerDifference.ok`.
        options: provider, threads and custom-operator libraries.

    Raises:
        InputError: a model cannot be read, or fails to run.
    """
    exact = replace(options, optimization="off")
    return compare_sides(open_sides(Path(a), Path(b), feeds, exact), tolerance)


def open_sides(a: Path, b: Path, feeds: Mapping[str, np.ndarray], options: SessionOptions) -> Sides:
    """Two models, ready to be run with any of their tensors as outputs."""
    left = Side.open(a, feeds, options)
    right = Side.open(b, {}, options)
    inputs = match_names(list(feeds), [s.name for s in input_specs(right.graph.model)], "inputs")
    right.feeds = {inputs[n]: array for n, array in feeds.items() if n in inputs}
    right.sizes = left.sizes  # partners are as large, and the others are few
    return left, right


def compare_sides(sides: Sides, tolerance: Tolerance) -> Layers:
    """As `compare_layers`, of models that are open already."""
    left, right = sides
    partners = _partners(left.graph, right.graph)
    wanted: list[tuple[str | None, str | None]] = [(partners.get(name), name) for name in right.graph.producers]
    wanted += [(name, None) for name in left.graph.producers if name not in set(partners.values())]
    measured: dict[str, Measured] = {}
    passes = 0
    with progress.task("comparing layers", len(wanted)) as task:
        for group in _groups(wanted, left, right):
            passes += 1
            ours = left.fetch([x for x, _ in group if x is not None])
            theirs = right.fetch([y for _, y in group if y is not None])
            for x, y in group:
                if x is not None and y is not None:
                    found = measure(ours.get(x), theirs.get(y), tolerance)
                    if found is not None:
                        measured[y] = found
                elif x is not None:
                    _sketch(left, x, ours.get(x))
                elif y is not None:
                    _sketch(right, y, theirs.get(y))
                task.advance()
    by_value = _match_by_value(left, right)
    return judge(left.graph, right.graph, measured, partners, by_value, passes)


def _partners(a: LayerGraph, b: LayerGraph) -> dict[str, str]:
    """B's tensor -> A's tensor, by name; outputs that were renamed by position."""
    outputs = match_names(a.output_names(a.model), b.output_names(b.model), "outputs")
    partners = {name: name for name in b.producers if name in a.producers}
    partners |= {y: x for x, y in outputs.items() if x in a.producers and y in b.producers}
    return partners


def _groups(
    wanted: Sequence[tuple[str | None, str | None]], left: Side, right: Side
) -> Iterator[list[tuple[str | None, str | None]]]:
    """Parts of `wanted` whose tensors fit into MEMORY."""
    group: list[tuple[str | None, str | None]] = []
    held = 0
    for x, y in wanted:
        size = left.size(x) + right.size(y)
        if group and held + size > MEMORY:
            yield group
            group, held = [], 0
        group.append((x, y))
        held += size
    if group:
        yield group


def _sizes(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Bytes of every tensor whose shape can be inferred for these inputs, at four for each element."""
    model = light_copy(proto)
    bind_inputs(model, {name: tuple(array.shape) for name, array in feeds.items()})
    try:
        shapes = known_shapes(infer(model))
    except Exception:  # unknown sizes are assumed ones: nothing else depends on it
        return {}
    return {n: 4 * math.prod(s) for n, s in shapes.items() if all(isinstance(d, int) for d in s)}  # type: ignore[arg-type]


def measure(expected: Any, actual: Any, tolerance: Tolerance) -> Measured | None:
    """How far a tensor of B is from its partner in A; None when they are no tensors (sequences, maps)."""
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        return None
    if expected.shape != actual.shape or (expected.dtype.kind in "OUS") != (actual.dtype.kind in "OUS"):
        return Measured(np.inf, np.inf, False, actual.shape, other=True)
    if expected.size == 0:
        return Measured(0.0, 0.0, True, actual.shape)
    if expected.dtype.kind in "OUSbiu" and actual.dtype.kind in "OUSbiu":
        return _exact(expected, actual)
    # float32 is enough for telling tensors apart, and four times as fast as the care that outputs get.
    a, b = (x.astype(np.float32, copy=False).ravel() for x in (expected, actual))
    with np.errstate(all="ignore"):
        error = np.abs(a - b)
        finite = np.isfinite(error).all()
        if not finite:
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            error = np.where(same, 0, np.where(np.isnan(error), np.inf, error))
        largest = float(error.max())
        scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
        allowed = tolerance.atol + _SCALE_TOLERANCE * scale
        ok = largest <= allowed or bool((error <= allowed + tolerance.rtol * np.abs(a)).all())
        norm = float(np.linalg.norm(a)) if finite else np.inf
        noise = float(np.linalg.norm(error)) if np.isfinite(largest) else np.inf
    relative = 0.0 if largest == 0 else (noise / norm if 0 < norm < np.inf and noise < np.inf else np.inf)
    return Measured(largest, relative, ok, actual.shape)


def _exact(expected: np.ndarray, actual: np.ndarray) -> Measured:
    different = int(np.count_nonzero(expected != actual))
    if expected.dtype.kind in "OUS":
        largest = np.inf if different else 0.0
    else:
        largest = float(np.abs(expected.astype(np.float64) - actual.astype(np.float64)).max())
    return Measured(largest, different / expected.size, different == 0, actual.shape)


def _sketch(side: Side, name: str, value: Any) -> None:
    """Keep a few random projections of a tensor, so that it can be known again when it is gone."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size > 1:
        flat = value.astype(np.float32, copy=False).ravel()
        generator = np.random.default_rng(value.size)  # the same directions for every tensor of this size
        block = generator.standard_normal((_PROBES, min(flat.size, 4096)), dtype=np.float32)
        usable = flat[: flat.size // block.shape[1] * block.shape[1]].reshape(-1, block.shape[1])
        with np.errstate(all="ignore"):
            weights = np.arange(1, len(usable) + 1, dtype=np.float32) / len(usable)
            side.sketches[name] = np.concatenate([[*value.shape, np.linalg.norm(flat)], block @ (weights @ usable)])


def _match_by_value(left: Side, right: Side) -> dict[str, str]:
    """B's tensor -> A's tensor of the same shape and, as far as the sketches tell, the same content."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for y, sketch in right.sketches.items():
        for x, other in left.sketches.items():
            if x not in taken and sketch.shape == other.shape and _alike(sketch, other):
                found[y] = x
                taken.add(x)
                break
    return found


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    rank = a.size - 1 - _PROBES
    scale = float(np.abs(b[rank])) * 64
    return bool(
        np.array_equal(a[:rank], b[:rank])
        and np.isfinite(scale)
        and scale > 0
        and np.all(np.abs(a[rank:] - b[rank:]) <= 1e-5 * scale)
    )
