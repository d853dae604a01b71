"""One model of `compare --layers`: its graph, and the values of all its tensors, a part of the graph at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxtool.equality.layers.graph import LayerGraph
from onnxtool.errors import InputError, UnsupportedError
from onnxtool.model import io
from onnxtool.model.cut_model import cut_model
from onnxtool.model.safety.limits import DEFAULT
from onnxtool.model.safety.tensors import all_tensors, declared_bytes, external_ref
from onnxtool.model.shapes import bind_inputs, infer, known_shapes, light_copy
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

# Bytes of tensors held at one time, of both models together.
MEMORY = 256 << 20
# A part of the graph makes at most this share of them, and reads at most so many bytes of weights.
_PART = 4
# Weights from so many bytes on are handed over where they lie, if the runtime takes them as numpy has them.
_LARGE = 1 << 14
_PLAIN = {onnx.helper.np_dtype_to_tensor_dtype(np.dtype(d)) for d in ("f2", "f4", "f8", "i1", "u1", "i4", "i8")}
# Least that is assumed for tensors whose shape inference does not know.
_UNKNOWN_BYTES = 1 << 17


@dataclass
class TensorStream:
    """One model: its graph, its inputs, what is known of its tensors.

    Attributes:
        parts: how many parts `stream` has run.
        sketches: filled by whoever compares.
    """

    path: Path
    proto: onnx.ModelProto
    graph: LayerGraph
    feeds: Mapping[str, np.ndarray]
    options: SessionOptions
    sizes: Mapping[str, int]
    inline: bool
    parts: int = 0
    sketches: dict[str, Sketch] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, feeds: Mapping[str, np.ndarray], options: SessionOptions) -> TensorStream:
        """Read a model once: its graph and, when there are inputs, the sizes of its tensors for them."""
        proto = io.read_proto(path)
        inline = all(external_ref(t) is None for t in all_tensors(proto, DEFAULT))
        graph = LayerGraph.of(io.from_proto(proto, path.parent))
        return cls(path, proto, graph, feeds, options, _sizes(proto, feeds) if feeds else {}, inline)

    @cached_property
    def typical(self) -> int:
        """What is assumed for tensors whose shape is not known: the mean of the others, but no trifle."""
        return max(sum(self.sizes.values()) // max(len(self.sizes), 1), _UNKNOWN_BYTES)

    def size(self, name: str | None) -> int:
        """Bytes of a tensor, as far as can be told beforehand."""
        return 0 if name is None else self.sizes.get(name, self.typical)

    def stream(self) -> Iterator[tuple[str, Any]]:
        """Every tensor that a node of the main graph makes, in the order of the nodes.

        The graph is run part by part, each with its own weights only and fed with what the parts before it made: every
        node runs once, and no more is held than one part and what later parts read.

        Raises:
            InputError, UnsupportedError: the model does not run.
        """
        live: dict[str, Any] = dict(self.feeds)
        done: set[str] = set()
        for nodes in self._cuts():
            self.parts += 1
            try:
                made = self._run_part(nodes, live)
            except (InputError, UnsupportedError, LookupError, TypeError):
                # A value that cannot be fed again (a sequence, a map), or a model that is at fault itself.
                yield from self._from_whole([n for n in self.graph.producers if n not in done])
                return
            done |= made.keys()
            live = {n: v for n, v in {**live, **made}.items() if self._last_read.get(n, -1) > nodes[-1]}
            while made:
                name = next(iter(made))
                yield name, made.pop(name)

    def fetch(self, names: Sequence[str]) -> dict[str, Any]:
        """Run the whole model with these tensors as its outputs."""
        if not names:
            return {}
        session = self._with_outputs(names)
        runner = OnnxRunner.open(session, self.options)
        fed = {s.name: self.feeds[s.name] for s in runner.inputs}
        return _only(runner, names).run(fed)

    def groups(self, names: Sequence[str], limit: int) -> Iterator[list[str]]:
        """Parts of `names` whose tensors take at most `limit` bytes."""
        group: list[str] = []
        held = 0
        for name in names:
            if group and held + self.size(name) > limit:
                yield group
                group, held = [], 0
            group.append(name)
            held += self.size(name)
        if group:
            yield group

    def _from_whole(self, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
        for group in self.groups(names, MEMORY // _PART):
            self.parts += 1
            yield from self.fetch(group).items()

    def _cuts(self) -> Iterator[list[int]]:
        """Positions of the nodes of each part."""
        part: list[int] = []
        held, weights = 0, set[str]()
        for index, node in enumerate(self._nodes):
            if not self._is_run(node):
                continue
            made = sum(self.size(n) for n in node.output if n)
            read = {n for n in self._reads[index] if n in self._weights}
            if part and (held + made > MEMORY // _PART or self._bytes(weights | read) > MEMORY // _PART):
                yield part
                part, held, weights = [], 0, set()
            part.append(index)
            held += made
            weights |= read
        if part:
            yield part

    def _run_part(self, nodes: Sequence[int], live: Mapping[str, Any]) -> dict[str, Any]:
        """Run some nodes on what is there, and give all that they make."""
        part, weights = self._part(nodes, live)
        names = [n for i in nodes for n in self._nodes[i].output if n]
        runner = _only(OnnxRunner.open(part, self.options, weights), names)
        return runner.run({s.name: live[s.name] for s in runner.inputs})

    def _part(self, nodes: Sequence[int], live: Mapping[str, Any]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """A model of some nodes alone that gives all they make, and its large weights, which are not copied into it."""
        large = dict[str, np.ndarray]()
        made = [n for i in nodes for n in self._nodes[i].output if n]
        read = sorted({n for i in nodes for n in self._reads[i]}.difference(made, self._weights))
        fed = {n: _array(n, live[n]) for n in read}
        return cut_model(self.proto, made, fed, made, weight=lambda w: self._initializer(w, large)), large

    def _initializer(self, weight: onnx.TensorProto, large: dict[str, np.ndarray]) -> onnx.TensorProto:
        """The weight as it goes into a part; the values of a large one go into `large`."""
        if (declared_bytes(weight) or 0) >= _LARGE and weight.data_type in _PLAIN:
            large[weight.name] = self.graph.weights[weight.name].numpy()
            return _placeholder(weight)
        if external_ref(weight) is None:
            return weight
        return onnx.numpy_helper.from_array(self.graph.weights[weight.name].numpy(), weight.name)

    def _is_run(self, node: onnx.NodeProto) -> bool:
        return any(n in self.graph.producers for n in node.output)

    def _bytes(self, weights: set[str]) -> int:
        return sum(
            (declared_bytes(w) or 0) if isinstance(w := self._weights[n], onnx.TensorProto) else 0 for n in weights
        )

    @cached_property
    def _nodes(self) -> list[onnx.NodeProto]:
        return list(self.proto.graph.node)

    @cached_property
    def _weights(self) -> dict[str, onnx.TensorProto | onnx.SparseTensorProto | onnx.NodeProto]:
        """What needs no inputs: initializers, and the Constant nodes that count as such."""
        graph = self.proto.graph
        return {
            **{t.name: t for t in graph.initializer},
            **{s.values.name: s for s in graph.sparse_initializer},
            **{n.output[0]: n for n in graph.node if n.output and not self._is_run(n)},
        }

    @cached_property
    def _reads(self) -> list[list[str]]:
        """What each node reads, as far as the main graph has it."""
        known = {*self.graph.producers, *self._weights, *(v.name for v in self.proto.graph.input)}
        return [[n for n in self.graph.reads(node) if n in known] for node in self.graph.model.graph]

    @cached_property
    def _last_read(self) -> dict[str, int]:
        return {name: index for index, names in enumerate(self._reads) for name in names}

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


def _only(runner: OnnxRunner, names: Sequence[str]) -> OnnxRunner:
    """The runner with no other outputs than these."""
    wanted = set(names)
    runner.outputs = tuple(s for s in runner.outputs if s.name in wanted)
    return runner


def _placeholder(weight: onnx.TensorProto) -> onnx.TensorProto:
    """The weight without its values, as external data: the session gets these from memory."""
    made = onnx.TensorProto(name=weight.name, data_type=weight.data_type, dims=weight.dims)
    made.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "memory"), ("length", str(declared_bytes(weight)))):
        made.external_data.add(key=key, value=value)
    return made


def _array(name: str, value: Any) -> np.ndarray:
    """A value that can be fed again; raises TypeError when it is not a tensor."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} is not a tensor")
    return value.astype(object) if value.dtype.kind in "US" else value


def _sizes(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Bytes of every tensor whose shape can be inferred for these inputs, at four for each element."""
    model = light_copy(proto)
    bind_inputs(model, {name: tuple(array.shape) for name, array in feeds.items()})
    try:
        shapes = known_shapes(infer(model))
    except Exception:  # unknown sizes are assumed ones: nothing else depends on it
        return {}
    return {n: 4 * math.prod(s) for n, s in shapes.items() if all(isinstance(d, int) for d in s)}  # type: ignore[arg-type]


_PROBES = 8
_WIDTH = 4096
# Projections of equal tensors differ by rounding only: so much of the tensor's norm, for directions of such length.
_ROUNDING = 1e-5 * 64


@dataclass(frozen=True)
class Sketch:
    """What is left of a float tensor.

    Attributes:
        shape: of the tensor.
        norm: its 2-norm.
        places: its projections on fixed directions; the same ones for every tensor of as many elements.
    """

    shape: tuple[int, ...]
    norm: float
    places: np.ndarray

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    def distance(self, other: Sketch) -> float:
        """0 for the same content, up to 1 for content that is the same but for rounding, infinite without a content."""
        if not (0 < self.norm < np.inf and 0 < other.norm < np.inf):
            return np.inf
        return float(np.abs(self.places - other.places).max()) / (_ROUNDING * max(self.norm, other.norm))


def sketch(value: Any) -> Sketch | None:
    """Sketch a tensor; None for what is not a float tensor, or a single number."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.size < 2:
        return None
    flat = value.astype(np.float32, copy=False).ravel()
    block = _directions(min(flat.size, _WIDTH))
    whole = flat.size // block.shape[1] * block.shape[1]
    rows = flat[:whole].reshape(-1, block.shape[1])
    with np.errstate(all="ignore"):
        weights = np.arange(1, len(rows) + 1, dtype=np.float32) / len(rows)
        places = block @ (weights @ rows)
        places += block[:, : flat.size - whole] @ flat[whole:]
        return Sketch(value.shape, float(np.linalg.norm(flat)), places)


@lru_cache(maxsize=16)
def _directions(width: int) -> np.ndarray:
    return np.random.default_rng(width).standard_normal((_PROBES, width), dtype=np.float32)
