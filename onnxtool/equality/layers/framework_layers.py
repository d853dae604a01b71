"""`compare --layers` of a framework model and an .onnx file: which of its layers come out wrong in the file?"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import onnx_ir as ir

from onnxtool.equality.equivalence_check import match_names
from onnxtool.equality.layers import tensor_stream
from onnxtool.equality.layers.compare_layers import measure
from onnxtool.equality.layers.graph import LayerGraph
from onnxtool.equality.layers.locate_wrong_node import Measured, difference, first_wrong
from onnxtool.equality.layers.tensor_stream import Sketch, TensorStream, sketch
from onnxtool.equality.reference import precision_of
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import UnsupportedError
from onnxtool.model.ir.queries import input_specs
from onnxtool.model.spec import TensorSpec
from onnxtool.report.layers import Culprit, Layers, Suspect
from onnxtool.runtime.session.session import SessionOptions

See = Callable[[str, str, np.ndarray], None]
# Channels last to channels first and back, by rank: exporters move the channels.
_LAYOUTS = {3: ((0, 2, 1),), 4: ((0, 3, 1, 2), (0, 2, 3, 1)), 5: ((0, 4, 1, 2, 3), (0, 2, 3, 4, 1))}
_SUSPECT_LAYERS = 3


@runtime_checkable
class LayeredRunner(Protocol):
    """A Runner that can show what its layers give: a framework model."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What `run` gives."""

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass."""

    def layers(self, feeds: Mapping[str, np.ndarray], see: See) -> None:
        """One forward pass; `see` is called with name, kind and value of every layer's output as it is made."""


@dataclass(frozen=True)
class _Layer:
    """A layer of the source; the sketches are of its output in every layout that it may have in the file."""

    name: str
    kind: str
    sketches: tuple[Sketch, ...]


def compare_source(
    a: LayeredRunner,
    b: Path,
    feeds: Mapping[str, np.ndarray],
    tolerance: Tolerance,
    options: SessionOptions,
    accepted: Collection[str] = (),
) -> Layers:
    """Match the outputs of a framework model's layers to tensors of an ONNX model, and name the first that is wrong.

    A layer's tensor is found by its content, whatever its name, shape and layout. Where no tensor has the content, the
    layer's name in names of nodes and weights tells where it should be.

    Args:
        a: the reference.
        b: an .onnx file.
        feeds: inputs in A's names.
        tolerance: as for `compare_layers`.
        options: how to run the file.
        accepted: as for `compare_sides`.

    Raises:
        InputError: a model does not run.
        UnsupportedError: the source shows no layers.
    """
    side = TensorStream.open(b, feeds, options)
    inputs = match_names(list(feeds), [s.name for s in input_specs(side.graph.model)], "inputs")
    side.feeds = {inputs[n]: array for n, array in feeds.items() if n in inputs}
    layers = _layers_of(a, feeds)
    for name, value in side.stream():
        found = sketch(value)
        if found is not None:
            side.sketches[name] = found
    by_value = _by_content(layers, side.sketches)
    by_name = _by_provenance([x for x in layers.values() if x.name not in by_value.values()], side, set(by_value))
    ends = match_names([s.name for s in a.outputs], side.graph.output_names(side.graph.model), "outputs")
    pairs = {**by_value, **by_name}
    measured = _measured(a, side, feeds, pairs, {y: x for x, y in ends.items()}, tolerance)
    measured |= {y: replace(measured[y], ok=True) for x, y in ends.items() if x in accepted and y in measured}
    return _judge(side.graph, layers, pairs, measured, set(by_value), side.parts)


def _layers_of(a: LayeredRunner, feeds: Mapping[str, np.ndarray]) -> dict[str, _Layer]:
    """The layers in order; of several with the same output (a container and its last layer) the first."""
    found: dict[str, _Layer] = {}
    last: list[Sketch] = []

    def see(name: str, kind: str, value: np.ndarray) -> None:
        own = sketch(value)
        if own is None or any(own.size == x.size and np.array_equal(own.places, x.places) for x in last[-1:]):
            return
        last.append(own)
        moved = (sketch(np.ascontiguousarray(value.transpose(p))) for p in _LAYOUTS.get(value.ndim, ()))
        found[name] = _Layer(name, kind, (own, *(s for s in moved if s is not None)))

    a.layers(feeds, see)
    if not found:
        raise UnsupportedError("--layers: this framework model shows no layers inside; convert it first.")
    return {x.name: x for x in found.values()}


def _by_content(layers: Mapping[str, _Layer], tensors: Mapping[str, Sketch]) -> dict[str, str]:
    """B's tensor -> the layer with its content; each layer once, at the tensor that is nearest."""
    sizes: dict[int, list[str]] = {}
    for name, own in tensors.items():
        sizes.setdefault(own.size, []).append(name)
    found: dict[str, str] = {}
    for layer in layers.values():
        near = [
            (min(s.distance(tensors[y]) for s in layer.sketches), i, y)
            for i, y in enumerate(sizes.get(layer.sketches[0].size, ()))
            if y not in found
        ]
        best = min(near, default=None)
        if best is not None and best[0] <= 1:
            found[best[2]] = layer.name
    return found


def _by_provenance(layers: Iterable[_Layer], side: TensorStream, taken: set[str]) -> dict[str, str]:
    """B's tensor -> the layer whose name is in the node that makes it, or in a weight that this reads."""
    named: dict[str, list[str]] = {}
    for tensor in side.sketches:
        for word in words(side.graph, side.graph.producers[tensor]):
            named.setdefault(word, []).append(tensor)
    found: dict[str, str] = {}
    for layer in layers:
        sizes = {s.size for s in layer.sketches}
        fitting = [y for y in named.get(layer.name, ()) if side.sketches[y].size in sizes and y not in taken]
        if fitting:
            found.setdefault(max(fitting, key=side.graph.order.__getitem__), layer.name)
    return found


def words(graph: LayerGraph, node: ir.Node) -> set[str]:
    """The names of layers that a node may come from: parts of its own name and of its weights' names.

    torch.onnx names weights "block.0.weight" and nodes "/block/block.0/Conv"; tf2onnx names nodes "model/conv1_1/Conv".
    """
    parts = [part for part in (node.name or "").split("/") if part]
    for name in graph.reads(node):
        if name in graph.weights:
            parts += [name.rpartition(".")[0], *name.split("/")[:-1]]
    return {p for part in parts if part for p in (part, re.sub(r"_\d+$", "", part))}


def _measured(
    a: LayeredRunner,
    side: TensorStream,
    feeds: Mapping[str, np.ndarray],
    pairs: Mapping[str, str],
    ends: Mapping[str, str],
    tolerance: Tolerance,
) -> dict[str, Measured]:
    """How far every matched tensor is from its layer, in further runs that hold a bounded number of them each."""
    found: dict[str, Measured] = {}
    precision = precision_of(side.graph.model)
    for group in side.groups(list(pairs), tensor_stream.MEMORY // 2):
        wanted = {pairs[y] for y in group}
        values: dict[str, np.ndarray] = {}
        _watch(a, feeds, wanted, values)
        for y, value in side.fetch(group).items():
            result = measure(_laid_out(values[pairs[y]], value, side.sketches[y]), value, tolerance, precision)
            if result is not None:
                found[y] = result
    results = a.run(feeds)
    for y, value in side.fetch([y for y in ends if y in side.graph.producers]).items():
        result = measure(results[ends[y]], value, tolerance, precision)
        if result is not None:
            found[y] = result
    return found


def _watch(a: LayeredRunner, feeds: Mapping[str, np.ndarray], wanted: set[str], values: dict[str, np.ndarray]) -> None:
    def see(name: str, _: str, value: np.ndarray) -> None:
        if name in wanted:
            values.setdefault(name, value.copy())

    a.layers(feeds, see)


def _laid_out(layer: np.ndarray, tensor: np.ndarray, known: Sketch) -> np.ndarray:
    """The layer's output in the layout and shape of the file's tensor."""
    moved = [layer, *(layer.transpose(p) for p in _LAYOUTS.get(layer.ndim, ()))]
    fitting = [m for m in moved if m.shape == tensor.shape] or moved
    sketched = [(sketch(np.ascontiguousarray(m)), m) for m in fitting]
    best = min(sketched, key=lambda pair: np.inf if pair[0] is None else pair[0].distance(known))[1]
    return np.ascontiguousarray(best).reshape(tensor.shape)


def _judge(
    b: LayerGraph,
    layers: Mapping[str, _Layer],
    pairs: Mapping[str, str],
    measured: Mapping[str, Measured],
    by_value: set[str],
    parts: int,
) -> Layers:
    """Put the layers together in B's order, and find the first that is wrong."""
    agreeing = {y for y, m in measured.items() if m.ok}
    first, reused = first_wrong(b, measured, agreeing)
    how = {y: "value" if y in by_value else "provenance" if y in pairs else "name" for y in measured}
    tensors = [difference(b, pairs.get(y, y), y, m, how[y], reused=y in reused) for y, m in measured.items()]
    return Layers(
        tensors=tuple(sorted(tensors, key=lambda t: t.depth)),
        unmatched_a=len(layers.keys() - set(pairs.values())),
        unmatched_b=len(b.producers.keys() - measured.keys()),
        culprit=None if first is None else _culprit(b, layers, pairs, first, agreeing),
        passes=parts,
    )


def _culprit(
    b: LayerGraph, layers: Mapping[str, _Layer], pairs: Mapping[str, str], first: str, agreeing: set[str]
) -> Culprit:
    """The nodes that make the first wrong tensor, and the layers that come after those that agree."""
    nodes, ends = b.behind(first, agreeing)
    order = list(layers)
    right = {pairs[y] for y in agreeing if y in pairs}
    start = max((order.index(pairs[y]) for y in ends if y in pairs), default=-1)
    after = [name for name in order[start + 1 :] if name not in right][:_SUSPECT_LAYERS]
    if first in pairs:
        after = [*(n for n in after if order.index(n) <= order.index(pairs[first]))] or [pairs[first]]
    position = {id(node): i for i, node in enumerate(b.model.graph)}
    known = set(after)
    nodes.sort(key=lambda node: (not words(b, node) & known, position[id(node)]))
    suspects = [*b.suspects(nodes, "B", set()), *_told(layers[name] for name in after)]
    return Culprit(pairs.get(first, first), tuple(suspects), tuple(sorted(ends)))


def _told(layers: Iterable[_Layer]) -> Iterator[Suspect]:
    for layer in layers:
        yield Suspect("A", layer.name, layer.kind, ())
