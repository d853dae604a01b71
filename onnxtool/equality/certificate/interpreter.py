"""ONNX graphs, evaluated over a field: floats are its elements, what does not depend on floats stays exact."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxtool.equality.certificate.field import ONE, Field
from onnxtool.equality.certificate.values import (
    FAULTS,
    FILL,
    MOVED,
    WRAPS,
    Array,
    Attributes,
    DataShapeError,
    Item,
    NotCoveredError,
    TooManyStepsError,
    UndefinedError,
    Value,
    exact,
    is_float,
    largest,
    moved_tags,
    ordinary_type,
    other_numbers,
    plain,
    several,
    shared_tag,
    small_number,
    tag_of_each,
    type_of,
)
from onnxtool.errors import OnnxToolError
from onnxtool.model.operators.table import lookup
from onnxtool.model.proto_nodes import all_nodes
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT

_MOST_STEPS = 1300
_COPIED = 2**16  # elements of a tensor that is moved although only its shape is asked for
_SIZES = 64  # an input of as many integers may say a size
_DOMAINS = ("", "ai.onnx.ml", "com.microsoft")
# What ONNX raises where its inference does not know an operator, or refuses its inputs.
_NOT_INFERRED = (onnx.defs.SchemaError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError)

# Operators that only move elements, with the inputs whose elements they move.
_MOVES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            *(
                "Reshape",
                "Transpose",
                "Slice",
                "Squeeze",
                "Unsqueeze",
                "Expand",
                "Tile",
                "Identity",
                "Flatten",
                "Split",
            ),
            *("DepthToSpace", "SpaceToDepth", "Trilu", "ReverseSequence", "GatherElements", "GatherND", "Compress"),
            *("CenterCropPad",),
        ),
        (0,),
    ),
    "Pad": (0, 2),
    "ScatterND": (0, 2),
    "ScatterElements": (0, 2),
    "Scatter": (0, 2),
    "TensorScatter": (0, 1),
    "Where": (1, 2),
}


Handler = Callable[["Interpreter", list[Item], Attributes], Any]
_OPERATORS: dict[str, Handler] = {}
_ONE_KIND: dict[Handler, bool] = {}  # whether what a handler computes does not hang on the operator's name
Follower = Callable[["Interpreter", str, list[Item], Attributes, list[Item]], None]
_FOLLOWERS: tuple[list[Follower], list[Follower]] = ([], [])


def operator(*names: str, alike: bool = False) -> Callable[[Handler], Handler]:
    """Registers what computes operators of these names; unless they are alike, it has to look at `_kind`.

    A name that two domains have is given with the domain in front.
    """

    def register(handler: Handler) -> Handler:
        _OPERATORS.update(dict.fromkeys(names, handler))
        _ONE_KIND[handler] = alike or len(names) == 1
        return handler

    return register


def follow(follower: Follower, *, rows: bool = False) -> None:
    """Registers what sees each operator with its inputs, attributes and outputs, where NaN, or rows, are asked for."""
    _FOLLOWERS[rows].append(follower)


def moves(kind: str) -> bool:
    """Whether an operator only moves elements, of which it may leave some out."""
    return kind in _MOVES or kind == "Gather"


class _Noticed(dict[str, Any]):
    """Attributes that remember which of them a handler has looked at."""

    def __init__(self, attributes: Attributes) -> None:
        super().__init__(attributes)
        self.noticed: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.noticed.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.noticed.add(name)
        return super().get(name, default)

    def items(self) -> Any:
        self.noticed.update(self)
        return super().items()


class _NoticedInputs(list[Item]):
    """Inputs that remember which of them a handler has looked at."""

    def __init__(self, inputs: Sequence[Item]) -> None:
        super().__init__(inputs)
        self.noticed: set[int] = set()

    def __getitem__(self, place: Any) -> Any:
        chosen = range(len(self))[place]
        self.noticed.update(chosen if isinstance(place, slice) else (chosen,))
        return super().__getitem__(place)

    def __iter__(self) -> Iterator[Item]:
        self.noticed.update(range(len(self)))
        return super().__iter__()


@functools.cache
def _schema(kind: str, domain: str, version: int) -> tuple[object, Attributes]:
    """What an operator takes and gives by name, and its attributes that mean the same as if left out.

    A version that takes more types alone has the same names, one that computes something else has others: RoiAlign
    counts from other places since it has an attribute to say from where.
    """
    try:
        schema = onnx.defs.get_schema(kind, version, domain)
    except onnx.defs.SchemaError:
        return (), {}
    usual = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.name}
    defaults = {n: helper.get_attribute_value(value) for n, value in usual.items()}
    names = [sorted(schema.attributes), *([p.name for p in parts] for parts in (schema.inputs, schema.outputs))]
    return repr((names, sorted(defaults.items()))), defaults


def _domain(name: str) -> str:
    """Of the two names that ONNX's own domain has, the one that schemas have."""
    return "" if name == "ai.onnx" else name


def _opsets_of(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {_domain(o.domain): o.version for o in imports}


@dataclass(frozen=True)
class _Prepared:
    """What is read of a graph once, however often it is run.

    Attributes:
        constants: its initializers by name.
        nodes: in order, with their attributes; None for those of which some refer to a function's own.
        last: by the index of a node, what no later one reads.
        outputs: their names.
    """

    constants: Mapping[str, Item]
    nodes: Sequence[tuple[onnx.NodeProto, Attributes | None]]
    last: Mapping[int, Sequence[str]]
    outputs: Sequence[str]


class Interpreter:
    """Evaluates a model over a field.

    Args:
        model: the model, with the data of its weights.
        field: the random point.
        constants: elements for initializers and constants by name, in place of their own numbers.
        see: called with each node's outputs.
        memory: results of costly operators by what they are of, kept from one model to the next at the same point.
        weights: the model's initializers as they were read, kept from one point to the next.
        rows: whether one row depends on another is asked: what is known as a whole alone is not covered then.

    Attributes:
        reached: by the output of a convolution or pooling that was computed, the places of its window that met
            an element of the input and not padding alone; of a product with a constant, its rows that met no zero.
        output: the name of the first output of the operator that is computed.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        field: Field,
        constants: Mapping[str, Array] | None = None,
        see: Callable[[onnx.NodeProto, str, Item], None] | None = None,
        memory: dict[object, Item] | None = None,
        weights: dict[str, Value] | None = None,
        rows: bool = False,
    ) -> None:
        self.model, self.field, self._see, self.asks_rows = model, field, see, rows
        self._weights = {} if weights is None else weights
        self._constants = dict(constants or {})
        self._functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self._opsets = _opsets_of(model.opset_import)
        self._evaluators: dict[bytes, ReferenceEvaluator] = {}
        self._main = model.graph
        self._given: Attributes = {}  # to the function whose nodes are computed
        self._prepared: dict[int, tuple[onnx.GraphProto, _Prepared]] = {}
        self._draws, self._memory = 0, memory
        self.reached: dict[str, Array] = {}
        self.output = ""
        self._singles = {0, 1, field.p - 1}
        nodes = [*model.graph.node, *(n for f in model.functions for n in f.node)]
        kinds = {n.op_type for n in all_nodes(nodes)}
        self._asks = bool(kinds & {"IsNaN", "IsInf"})
        self._has_trees = any(kind.startswith("TreeEnsemble") for kind in kinds)

    def run(self, feeds: Mapping[str, Item]) -> dict[str, Item]:
        """The outputs by name.

        Raises:
            NotCoveredError: an operator, or what decides a shape, is not covered.
        """
        self._draws = 0
        env: dict[str, Item] = dict(feeds)
        results = self._graph(self._main, env)
        return dict(zip((o.name for o in self._main.output), results, strict=True))

    def elements(self, value: Value) -> Array:
        """A tensor as elements of the field."""
        if not value.exact:
            return value.data
        if is_float(value.dtype):
            if value.data.size != 1:
                return self.field.from_float(value.data)
            single = self.field.scalar(float(value.data.reshape(())))
            self._singles.add(int(single))
            return single.reshape(value.data.shape)
        if value.data.dtype.kind in "OUS":
            texts = [int(self.field.hash("text", attributes=str(t))) for t in value.data.reshape(-1)]
            return np.array(texts, np.int64).reshape(value.data.shape)
        return self.field.from_int(value.data)

    def is_constant(self, x: Array) -> bool:
        """Whether each element is a difference of two of 0, 1, -1 and the single numbers that the model names."""
        singles = np.array(sorted(self._singles), np.int64)
        return bool(np.isin(x, self.field.sub(singles[:, None], singles)).all())

    def note_choices(self, elements: Array, values: tuple[float, ...]) -> None:
        """Keep that each of some elements is one of a few numbers, in rising order: decisions of trees ask for that."""
        if self._has_trees:
            self.field.note_choices(elements, values)

    def reach(self, size: Sequence[int], kernel: Sequence[int], windows: Sequence[Sequence[int]]) -> None:
        """Note which places of a window meet the input.

        Args:
            size: of the input's spatial dims.
            kernel: of the window.
            windows: strides, dilations, and the pads before each dim and then behind each.
        """
        found = np.array(True)
        strides, dilations, pads = windows
        for d, n in enumerate(size):
            ahead = pads[d] - np.arange(kernel[d]) * dilations[d]  # of the input, for the first window
            steps = np.maximum(-(-ahead // strides[d]), 0)
            last = (n + pads[d] + pads[len(kernel) + d] - dilations[d] * (kernel[d] - 1) - 1) // strides[d]
            found = np.logical_and.outer(found, (steps <= last) & (steps * strides[d] - ahead < n))
        self._add_reached(found)

    def meet(self, values: Array, axis: int) -> None:
        """Note which rows of a constant matrix meet a number other than zero: zeros that pad an input read nothing.

        Args:
            values: elements that the matrix is multiplied with.
            axis: of these, that the product sums over.
        """
        if self.field.has_values and values.ndim:
            others = tuple(d for d in range(values.ndim) if d != axis % values.ndim)
            self._add_reached((values != 0).any(axis=others))

    def _add_reached(self, places: Array) -> None:
        self.reached[self.output] = places | self.reached.get(self.output, np.array(False))

    def symbol(self, data: Array, dtype: Any, tag: tuple[Any, ...] = ()) -> Value:
        """A tensor of elements."""
        return Value(np.asarray(data), np.dtype(dtype), False, tag)

    def _graph(self, graph: onnx.GraphProto, env: dict[str, Item]) -> list[Item]:
        if id(graph) not in self._prepared:
            self._prepared[id(graph)] = graph, self._prepare(graph)
        known = self._prepared[id(graph)][1]
        env.update({name: value for name, value in known.constants.items() if name not in env})
        for i, (node, own) in enumerate(known.nodes):
            attributes = _attributes_of(node, self._given) if own is None else own
            for name, value in zip(node.output, self._node(node, env, attributes), strict=False):
                if name:
                    env[name] = value
                    if self._see is not None:
                        self._see(node, name, value)
            for name in known.last.get(i, ()):
                env.pop(name, None)
        return [env[name] for name in known.outputs]

    def _prepare(self, graph: onnx.GraphProto) -> _Prepared:
        for sparse in graph.sparse_initializer:
            raise NotCoveredError(f"sparse initializer {sparse.values.name!r}")
        read = self._weights if graph is self._main else {}
        for tensor in graph.initializer:
            if tensor.name not in read:
                read[tensor.name] = exact(numpy_helper.to_array(tensor))
        constants = {t.name: self._constant(t.name, read[t.name]) for t in graph.initializer}
        refers = [any(a.ref_attr_name for a in node.attribute) for node in graph.node]
        nodes = [(node, None if r else _attributes_of(node, {})) for node, r in zip(graph.node, refers, strict=True)]
        return _Prepared(constants, nodes, self._last_uses(graph), [o.name for o in graph.output])

    @staticmethod
    def _last_uses(graph: onnx.GraphProto) -> dict[int, list[str]]:
        """By the index of a node, what no later one reads; subgraphs read what they like, so only without them."""
        if any(a.HasField("g") for n in graph.node for a in n.attribute):
            return {}
        last = {name: i for i, node in enumerate(graph.node) for name in node.input}
        kept = {o.name for o in graph.output} | {t.name for t in graph.initializer}
        found: dict[int, list[str]] = {}
        for name, i in last.items():
            if name and name not in kept:
                found.setdefault(i, []).append(name)
        return found

    @property
    def version(self) -> int:
        """Of ONNX's operators."""
        return self._opset("")

    def _opset(self, domain: str) -> int:
        """Which version of a domain's operators the model means."""
        return self._opsets.get(domain, 1)

    def constant(self, name: str, array: Array) -> Array:
        """Floats that an operator has as an attribute, as elements: those that stand for them, or their own."""
        return self._constants[name] if name in self._constants else self.field.from_float(array)

    def factor(self, attributes: Attributes, name: str) -> Array:
        """A single number of the operator that is computed, an attribute, likewise; 1 where it is left out."""
        own, known = attributes.get(name, 1.0), self._constants.get(f"{self.output}.{name}")
        return self.field.scalar(own) if known is None else known.reshape(())

    def _constant(self, name: str, own: Value) -> Value:
        if name not in self._constants:
            return own
        value = self.symbol(self._constants[name].reshape(own.data.shape), own.dtype)
        value.bound = largest(own.data) if is_float(own.dtype) else None
        return value

    def _node(self, node: onnx.NodeProto, env: dict[str, Item], attributes: Attributes) -> list[Item]:
        inputs = [env[n] if n else None for n in node.input]
        key = (node.domain, node.op_type, node.overload)
        if key in self._functions:
            return self._function(self._functions[key], inputs, attributes)
        if node.op_type in ("If", "Loop", "Scan"):
            steps = {"If": self._if, "Loop": self._loop, "Scan": self._scan}
            return steps[node.op_type](inputs, attributes, env)
        if node.op_type == "Constant":
            return [self._constant(node.output[0], exact(_constant_of(attributes)))]
        self.output = node.output[0]
        try:
            found = self._remembered(node, inputs, attributes)
        except NotCoveredError:
            raise
        except FAULTS as error:
            raise UndefinedError(f"{node.op_type} ({node.name or node.output[0]}): {error}") from error
        outputs = list(found) if isinstance(found, tuple) else [found]
        for follower in (*(_FOLLOWERS[0] if self._asks else ()), *(_FOLLOWERS[1] if self.asks_rows else ())):
            follower(self, node.op_type, inputs, attributes, outputs)
        return outputs

    def _remembered(self, node: onnx.NodeProto, inputs: list[Item], attributes: Attributes) -> Any:
        """One operator's outputs; those of a costly one are kept, and found again by marks of its inputs."""
        key = None
        if (
            self._memory is not None
            and node.op_type in _COSTLY
            and all(v is None or isinstance(v, Value) for v in inputs)
        ):
            marks = tuple(None if v is None else self.mark(v) for v in inputs)
            named = tuple(sorted((k, repr(v)) for k, v in attributes.items()))
            key = (node.domain, node.op_type, self.version, len(node.output), marks, named)
            if key in self._memory:
                return self._memory[key]
        found = self._applied(node.op_type, inputs, attributes, len(node.output), _domain(node.domain))
        if key is not None and self._memory is not None and isinstance(found, Value) and found.data.size <= _KEPT:
            self._memory[key] = found
        return found

    def mark(self, value: Value) -> object:
        """What tells a tensor from others: a hash of its bytes, or of its elements."""
        if value.mark is None:
            if value.exact and value.data.dtype.kind not in "OUS" and value.data.size:
                digest = hashlib.blake2b(value.data.tobytes(), digest_size=16).digest()
                value.mark = (value.dtype.name, value.data.shape, digest)
            else:
                value.mark = (value.dtype.name, self.field.fingerprint(self.elements(value)), value.tag[:1])
        return value.mark

    def _function(self, function: onnx.FunctionProto, inputs: list[Item], attributes: Attributes) -> list[Item]:
        defaults = {a.name: helper.get_attribute_value(a) for a in function.attribute_proto}
        env = dict(zip(function.input, [*inputs, *[None] * len(function.input)], strict=False))
        opsets, self._opsets = self._opsets, _opsets_of(function.opset_import)
        constants, self._constants = self._constants, {}  # names are the function's own
        given, self._given = self._given, {**defaults, **attributes}
        try:
            for node in function.node:
                outputs = self._node(node, env, _attributes_of(node, self._given))
                env.update(zip(node.output, outputs, strict=False))
        finally:
            self._opsets, self._constants, self._given = opsets, constants, given
        return [env.get(name) for name in function.output]

    def _applied(self, kind: str, inputs: list[Item], attributes: Attributes, count: int, domain: str) -> Any:
        """One operator's outputs by its formula; in a form that this has none for, as an uninterpreted function.

        What has no formula at some sizes alone stays without: elsewhere a formula may tell that others are equal to it.
        """
        try:
            return self.apply(kind, inputs, attributes, count, domain)
        except (DataShapeError, TooManyStepsError, UndefinedError):
            raise
        except NotCoveredError:
            if self.asks_rows:
                raise
            try:
                return self.opaque(kind, inputs, attributes, count, domain, by_rows=False)
            except (NotCoveredError, *FAULTS):
                pass
            raise

    def _without_defaults(self, kind: str, domain: str, attributes: Attributes) -> Attributes:
        usual = _schema(kind, domain, self._opset(domain))[1]
        return {k: v for k, v in attributes.items() if k not in usual or usual[k] != v}

    def apply(self, kind: str, inputs: list[Item], attributes: Attributes, count: int = 1, domain: str = "") -> Any:
        """One operator's outputs; attributes that say the default are as good as left out."""
        values = [v for i in inputs for v in (i if isinstance(i, list) else [i]) if isinstance(v, Value)]
        attributes = self._without_defaults(kind, domain, attributes)
        if kind == "Size":
            return exact(np.int64(inputs[0].data.size))
        if kind == "Shape":
            return exact(np.array(inputs[0].data.shape[attributes.get("start", 0) : attributes.get("end")], np.int64))
        if domain in _DOMAINS:
            known = all(v.exact for v in values)
            floats = any(is_float(v.dtype) for v in values)
            if kind == "Identity" and not isinstance(inputs[0], Value):
                return inputs[0]
            if kind in _MOVES and not any(isinstance(v, list) for v in inputs):
                moved = self._move(kind, inputs, attributes, count)
                if moved is not None:
                    return moved
            single = all(isinstance(v, Value) for v in inputs)
            small = floats and single and all(small_number(v) is not None for v in values)
            keeps = small and kind == "Cast" and helper.tensor_dtype_to_np_dtype(attributes["to"]) == inputs[0].dtype
            if small and kind in _ROUNDS and not keeps:
                return self.by_reference(kind, [exact(small_number(v)) for v in values], attributes, count, domain)
            if known and floats and kind in ("Add", "Sub", "Mul") and (made := _unrounded(kind, values)) is not None:
                return exact(made)
            handler = f"{domain}.{kind}" if f"{domain}.{kind}" in _OPERATORS else kind
            if handler in _OPERATORS and (floats or not known or kind in _ALWAYS) and not (known and kind in _EXACT):
                own = {"_kind": kind, "_outputs": count, "_version": self.version}
                read = inputs if kind in _MODULAR else [self.modulo(v) for v in inputs]
                found = self._handled(handler, read, {**attributes, **own})
                if kind in _WRAPPING or (kind in _MODULAR and any(v.tag == WRAPS for v in values)):
                    for made in several(found):
                        self._wrap(made, kind in _WRAPPING, values)
                if small and isinstance(found, Value) and not found.exact:
                    numbers = self.by_reference(
                        kind, [exact(small_number(v)) for v in values], attributes, count, domain
                    )
                    found.number = numbers.data
                return found
            if known and (not floats or kind in _EXACT) and kind not in _DRAWS:
                return self.by_reference(kind, inputs, attributes, count, domain)
            body = self._body(kind, inputs, attributes, count, domain)
            if body is not None:
                return tuple(body)
        return self.opaque(kind, inputs, attributes, count, domain)

    def _handled(self, kind: str, inputs: list[Item], attributes: Attributes) -> Any:
        """What a handler makes of an operator, if it has looked at all that the operator is told.

        Raises:
            NotCoveredError: it took no notice of an input or an attribute, so it may compute something else.
        """
        seen, values = _Noticed(attributes), _NoticedInputs(inputs)
        found = _OPERATORS[kind](self, values, seen)
        missed = sorted(attributes.keys() - seen.noticed - _WITHOUT_EFFECT - {"_outputs", "_version", "_name"})
        if _ONE_KIND[_OPERATORS[kind]]:
            missed = [name for name in missed if name != "_kind"]
        if missed:
            raise NotCoveredError(f"{attributes['_kind']} with {missed[0]}")
        if any(v is not None and i not in values.noticed for i, v in enumerate(inputs)):
            raise NotCoveredError(f"{attributes['_kind']} of {len(inputs)} inputs")
        return found

    def _wrap(self, value: Item, arithmetic: bool, inputs: Sequence[Value]) -> None:
        """Integers that arithmetic made of others: short ones are taken modulo 2^n, long ones are marked."""
        if isinstance(value, Value) and not value.exact and value.dtype.kind in "iu":
            same = [v for v in inputs if value.dtype == v.dtype and np.array_equal(value.data, v.data)]
            if arithmetic and same and all(v.tag != WRAPS for v in same):
                return  # nothing was added
            value.tag = WRAPS
            if arithmetic and (value.dtype.itemsize < 4 or value.dtype.kind == "u"):
                value.data, value.tag = self.modulo(value).data, ()

    def modulo(self, value: Item) -> Item:
        """Integers as they are when those that arithmetic made have wrapped around: their order hangs on it."""
        if not isinstance(value, Value) or value.tag != WRAPS or value.ends is not None:
            return value
        found = self.symbol(self.field.hash("modulo", value.data, attributes=value.dtype.name), value.dtype)
        found.number = value.number
        return found

    def _body(
        self, kind: str, inputs: list[Item], attributes: Attributes, count: int, domain: str
    ) -> list[Item] | None:
        if domain or not all(isinstance(v, Value) or v is None for v in inputs):
            return None
        version = self._opset(domain)
        try:
            schema: Any = onnx.defs.get_schema(kind, version, "")
        except onnx.defs.SchemaError:
            return None
        if schema.has_function:
            function = schema.function_body
        elif schema.has_context_dependent_function:
            node = self._as_node(kind, inputs, attributes, count, domain)
            types = [type_of(v).SerializeToString() for v in inputs]
            body = schema.get_context_dependent_function(node.SerializeToString(), types)
            function = onnx.FunctionProto.FromString(body)
        else:
            return None
        if not function.node:
            return None
        defaults = _schema(kind, domain, version)[1]
        if not function.opset_import:
            function = onnx.FunctionProto.FromString(function.SerializeToString())
            function.opset_import.append(helper.make_opsetid("", version))
        return self._function(function, inputs, {**defaults, **attributes})

    @staticmethod
    def _as_node(kind: str, inputs: list[Item], attributes: Attributes, count: int, domain: str) -> onnx.NodeProto:
        names = ["" if v is None else f"i{i}" for i, v in enumerate(inputs)]
        return helper.make_node(kind, names, [f"o{i}" for i in range(count)], domain=domain, **attributes)

    def by_reference(
        self, kind: str, inputs: list[Item], attributes: Attributes, count: int = 1, domain: str = "", opset: int = 0
    ) -> Any:
        """By ONNX's own implementation, on numbers."""
        if kind == "GatherElements":
            return _gather_elements(inputs[0], inputs[1], attributes.get("axis", 0))
        if kind == "Slice" and len(inputs) > 4 and inputs[4] is not None:
            inputs = _begun(*inputs)
        if kind == "Expand":  # a view, which takes no memory
            data, shape = inputs[0].data, tuple(map(int, inputs[1].data))
            return exact(np.broadcast_to(data, np.broadcast_shapes(data.shape, shape)))
        node = self._as_node(kind, inputs, attributes, count, domain)
        versions = {"": 1, **self._opsets, **({"": opset} if opset else {})}
        key = node.SerializeToString() + repr(versions).encode()
        if key not in self._evaluators:
            opsets = [helper.make_opsetid(d, v) for d, v in versions.items()]
            names = [n for n in node.input if n]
            body = helper.make_function("onnxtool", "f", names, list(node.output), [node], opsets)
            self._evaluators[key] = ReferenceEvaluator(body)
        feeds = {f"i{i}": plain(v) for i, v in enumerate(inputs) if v is not None}
        found = self._evaluators[key].run(None, feeds, attributes={})
        results = tuple(
            None if a is None else [exact(x) for x in a] if isinstance(a, list) else exact(a) for a in found
        )
        return results if len(results) > 1 else results[0]

    def numbers(self, value: Value, what: str) -> Array:
        """A tensor's own numbers.

        Raises:
            NotCoveredError: they are symbols.
        """
        if value.exact:
            return value.data
        if value.number is None:
            raise NotCoveredError(f"{what} depends on the inputs' values")
        return value.number

    def _move(self, kind: str, inputs: list[Item], attributes: Attributes, count: int) -> Any:
        """Elements in other places; None where this is more than that."""
        if kind == "Identity":
            same = inputs[0]
            return Value(same.data, same.dtype, same.exact, same.tag, same.number)
        data = [i for i in _MOVES[kind] if i < len(inputs) and inputs[i] is not None]
        if attributes.get("reduction") not in (None, b"none") or all(inputs[i].exact for i in data):
            if all(v is None or v.exact for v in inputs) and attributes.get("reduction") in (None, b"none"):
                return self.by_reference(kind, inputs, attributes, count)
            if attributes.get("reduction") not in (None, b"none"):
                return None
        inputs = [
            v if i in data or v is None or v.exact or v.number is None else exact(v.number)
            for i, v in enumerate(inputs)
        ]
        if any(v is not None and not v.exact for i, v in enumerate(inputs) if i not in data):
            if kind in ("Where", "GatherElements", "GatherND", "ScatterND", "ScatterElements"):
                return None
            raise NotCoveredError(f"how {kind} moves values depends on the inputs' values")
        inputs, data = _with_pads(inputs, attributes, data) if kind == "Pad" else (inputs, data)
        source = inputs[data[0]]
        plain = [exact(self.elements(v)) if i in data else v for i, v in enumerate(inputs)]
        if kind == "Split":
            sizes = attributes.get("split") if len(plain) < 2 or plain[1] is None else plain[1].data
            if sizes is not None and sum(map(int, sizes)) != source.data.shape[attributes.get("axis", 0)]:
                raise UndefinedError("Split into other sizes than there are")
        if kind == "Pad":
            found: tuple[Item, ...] = (exact(self._padded(_cut(plain), attributes.get("mode", b"constant").decode())),)
        else:
            found = self._moved_shapes(kind, inputs, attributes, count, source)
            found = found or several(self.by_reference(kind, plain, attributes, count))

        def move(array: Array) -> list[Array]:
            if array is not source.number and not self.field.has_values:  # other elements move as those that did
                return [v.data for v in found]
            given = [*inputs[: data[0]], exact(array), *inputs[data[0] + 1 :]]
            return [v.data for v in several(self.by_reference(kind, given, attributes, count))]

        tag = shared_tag([inputs[i] for i in data])
        if tag[:1] in MOVED and (len(_MOVES[kind]) > 1 or kind in FILL):
            tag = ()
        tags = moved_tags(tag, source.data.shape, move, len(found))
        results = tuple(self.symbol(v.data, source.dtype, t) for v, t in zip(found, tags, strict=True))
        if len(data) == 1 and source.number is not None:
            for value, number in zip(results, move(source.number), strict=True):
                value.number = number
        return results if len(results) > 1 else results[0]

    def _moved_shapes(
        self, kind: str, inputs: list[Item], attributes: Attributes, count: int, source: Value
    ) -> tuple[Item, ...]:
        """What stands for large tensors where shapes alone are asked for; none where they have to be moved."""
        if self.field.has_values or source.number is not None or source.data.size <= _COPIED:
            return ()
        with suppress(DataShapeError):
            shapes = self._inferred(kind, inputs, attributes, count, "") or ()
            return tuple(exact(np.broadcast_to(np.int64(0), shape)) for shape, _ in shapes)
        return ()

    def _padded(self, inputs: list[Any], mode: str) -> Array:
        """As the field pads, which has no need of the elements where it computes shapes alone."""
        data, pads = inputs[0].data, inputs[1].data
        widths = [(0, 0)] * data.ndim
        for axis, first, last in zip(_axes_of(inputs), *pads.reshape(2, -1), strict=True):
            widths[axis] = (int(first), int(last))
        return self.field.pad(data, widths, mode, inputs[2].data if len(inputs) > 2 and inputs[2] is not None else 0)

    def opaque(
        self, kind: str, inputs: list[Item], attributes: Attributes, count: int, domain: str, by_rows: bool = True
    ) -> Any:
        """Nothing is known but that equal arguments give equal results, of the shape that zeros give.

        Args:
            kind: the operator.
            inputs: its inputs.
            attributes: its attributes.
            count: how many outputs it has.
            domain: where it is from.
            by_rows: rows may be apart where the table of operators says so of its usual form.

        Raises:
            NotCoveredError: what it gives hangs on more, or nothing tells its shape.
        """
        if kind in _DRAWS:
            return self._drawn(kind, inputs, attributes)
        own = lookup(kind, domain)
        if own.random:
            raise NotCoveredError(f"{kind}, which draws random numbers")
        if self.asks_rows and domain == "com.microsoft" and own.by_rows == ():
            raise NotCoveredError(f"operator {domain}.{kind}")
        if any(not isinstance(v, Value) and v is not None for v in inputs):
            raise NotCoveredError(f"{kind} of a sequence")
        if any(isinstance(v, onnx.GraphProto) for v in attributes.values()):
            raise NotCoveredError(f"{kind}, whose graphs may read more than its inputs")
        form = _schema(kind, domain, self._opset(domain))[0]  # in another the same words may mean something else
        given = self._without_defaults(kind, domain, attributes).items()
        kinds = [
            None if v is None else "float" if is_float(v.dtype) and v.dtype.itemsize > 1 else v.dtype.name
            for v in inputs
        ]
        names = form, kinds, sorted((k, repr(v)) for k, v in given if not k.startswith("_"))
        seen = [np.array(-1) if v is None else self._seen_as_whole(v) for v in inputs]
        shapes = self._opaque_shapes(kind, inputs, attributes, count, domain)
        by_rows = by_rows and self.field.has_values
        split = [i for i, v in enumerate(inputs) if by_rows and v is not None and own.has_rows(i)]
        rows = {np.shape(seen[i])[0] if np.ndim(seen[i]) > 1 else -1 for i in split}
        rows |= {s[0] if s else -1 for s, _ in shapes}
        apart = max(rows) if split and len(rows) == 1 else -1

        def result(name: str, shape: Sequence[int]) -> Array:
            if apart < 1:
                return self.field.opaque(name, names, seen, shape)
            parts = ([a[r] if i in split else a for i, a in enumerate(seen)] for r in range(apart))
            return np.stack([self.field.opaque(name, names, part, shape[1:]) for part in parts])

        found = [self.symbol(result(f"{domain}.{kind}.{i}", s), dtype) for i, (s, dtype) in enumerate(shapes)]
        return tuple(found) if len(found) > 1 else found[0]

    def _seen_as_whole(self, value: Value) -> Array:
        """A tensor's elements; of many known integers (weights in blocks) one element that tells them apart."""
        if value.exact and value.dtype.kind in "iu" and value.data.size > _SIZES:
            return self.field.hash("integers", attributes=self.mark(value))
        return self.elements(value)

    def _opaque_shapes(
        self, kind: str, inputs: list[Item], attributes: Attributes, count: int, domain: str
    ) -> list[tuple[Sequence[int], np.dtype[Any]]]:
        """Shapes and types of an operator's outputs: by ONNX's inference, by the runtime's for operators of its own,
        or else as it gives for some numbers.
        """
        infers = self._inferred_by_runtime if domain == "com.microsoft" else self._inferred
        inferred = infers(kind, inputs, attributes, count, domain)
        if inferred is not None:
            return inferred
        trial = [None if v is None else Value(_some_numbers(v), v.dtype) for v in inputs]
        try:
            shapes = several(self.by_reference(kind, trial, attributes, count, domain))
            others = several(self.by_reference(kind, [other_numbers(v) for v in trial], attributes, count, domain))
        except Exception as error:
            raise NotCoveredError(f"operator {domain + '.' if domain else ''}{kind}") from error
        if [s.data.shape for s in shapes] != [s.data.shape for s in others]:
            raise DataShapeError(kind)
        return [(s.data.shape, s.data.dtype) for s in shapes]

    def _inferred(
        self, kind: str, inputs: list[Item], attributes: Attributes, count: int, domain: str
    ) -> list[tuple[Sequence[int], np.dtype[Any]]] | None:
        """By ONNX's inference, where it knows the operator and tells all.

        Raises:
            NotCoveredError: it leaves a dim open although all shapes, and what is exact, are known.
        """
        try:
            schema = onnx.defs.get_schema(kind, self._opset(domain), domain)
            node = self._as_node(kind, inputs, attributes, count, domain)
            values = {f"i{i}": v for i, v in enumerate(inputs) if v is not None}
            data = {n: numpy_helper.from_array(v.data) for n, v in values.items() if v.exact and not is_float(v.dtype)}
            types = {n: type_of(v) for n, v in values.items()}
            imports = [helper.make_opsetid(d, v) for d, v in self._opsets.items()]
            found = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=imports)
        except (*_NOT_INFERRED, ValueError, TypeError, RuntimeError):
            return None
        tensors = [found[name].tensor_type for name in node.output if name in found]
        if any(not d.HasField("dim_value") for t in tensors if t.HasField("shape") for d in t.shape.dim):
            raise DataShapeError(kind)
        if len(tensors) < count or not all(t.HasField("shape") and t.elem_type for t in tensors):
            return None
        return [
            ([d.dim_value for d in t.shape.dim], np.dtype(helper.tensor_dtype_to_np_dtype(t.elem_type)))
            for t in tensors
        ]

    def _inferred_by_runtime(
        self, kind: str, inputs: list[Item], attributes: Attributes, count: int, domain: str
    ) -> list[tuple[Sequence[int], np.dtype[Any]]] | None:
        """As the runtime says when it loads the operator alone; nothing is computed. None where it leaves one open."""
        node = self._as_node(kind, inputs, attributes, count, domain)
        given = {f"i{i}": v for i, v in enumerate(inputs) if v is not None}
        sizes = {n: v for n, v in given.items() if v.exact and not is_float(v.dtype) and v.data.size <= _SIZES}
        graph = helper.make_graph(
            [node],
            "operator",
            [helper.make_value_info(n, type_of(v)) for n, v in given.items() if n not in sizes],
            [onnx.ValueInfoProto(name=name) for name in node.output],
            [numpy_helper.from_array(v.data, n) for n, v in sizes.items()],
        )
        imports = [helper.make_opsetid(d, v) for d, v in self._opsets.items()]
        return _shapes_when_loaded(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())

    def _drawn(self, kind: str, inputs: list[Item], attributes: Attributes) -> Value:
        """The n-th random operator draws the same in each model, if it is of the same kind."""
        self._draws += 1
        shape = attributes.get("shape") or inputs[0].data.shape
        types = [v.dtype for v in inputs if isinstance(v, Value)]
        dtype = (
            helper.tensor_dtype_to_np_dtype(attributes["dtype"])
            if "dtype" in attributes
            else (types or [np.dtype("f4")])[0]
        )
        names = sorted((k, repr(v)) for k, v in attributes.items() if k != "shape")
        seen = [self.elements(v) for v in inputs if isinstance(v, Value) and kind in ("Bernoulli", "Multinomial")]
        if kind == "Multinomial":
            shape = (inputs[0].data.shape[0], attributes.get("sample_size", 1))
        return self.symbol(self.field.opaque(kind, (self._draws, names), seen, shape), dtype)

    def _inner(self, graph: onnx.GraphProto, env: dict[str, Item]) -> list[Item]:
        """A graph inside a node; exact values stand for constants of the main graph alone."""
        constants, self._constants = self._constants, {}
        own = {tensor.name for tensor in graph.initializer}
        try:
            return self._graph(graph, {name: value for name, value in env.items() if name not in own})
        finally:
            self._constants = constants

    def _if(self, inputs: list[Item], attributes: Attributes, env: dict[str, Item]) -> list[Item]:
        condition = inputs[0]
        if condition.exact:
            branch = attributes["then_branch" if condition.data.reshape(-1)[0] else "else_branch"]
            return self._inner(branch, dict(env))
        draws = self._draws
        first = self._inner(attributes["then_branch"], dict(env))
        self._draws, behind = draws, self._draws
        second = self._inner(attributes["else_branch"], dict(env))
        self._draws = max(behind, self._draws)
        chosen = self.symbol(condition.data.reshape(()), condition.dtype)
        found = []
        for a, b in zip(first, second, strict=True):
            if not (isinstance(a, Value) and isinstance(b, Value)) or a.data.shape != b.data.shape:
                raise NotCoveredError("If whose branches differ in shape")
            found.append(self.apply("Where", [chosen, a, b], {}))
        return found

    def _loop(self, inputs: list[Item], attributes: Attributes, env: dict[str, Item]) -> list[Item]:
        body = attributes["body"]
        limit = (
            None if inputs[0] is None else int(self.numbers(inputs[0], "the number of steps of a Loop").reshape(-1)[0])
        )
        condition = inputs[1] if len(inputs) > 1 and inputs[1] is not None else exact(True)
        carried, scanned = list(inputs[2:]), []
        step = 0
        while (limit is None or step < limit) and self.numbers(condition, "how long a Loop goes on").reshape(-1)[0]:
            if step >= _MOST_STEPS:
                raise TooManyStepsError(f"Loop of more than {_MOST_STEPS} steps")
            names = [i.name for i in body.input]
            results = self._inner(
                body, {**env, **dict(zip(names, [exact(np.int64(step)), condition, *carried], strict=False))}
            )
            condition, carried = results[0], results[1 : 1 + len(carried)]
            scanned.append(results[1 + len(carried) :])
            step += 1
        outputs = len(body.output) - 1 - len(carried)
        if outputs and not scanned:
            raise NotCoveredError("Loop of no steps with collected outputs")
        return [*carried, *(self.stack([s[i] for s in scanned], 0) for i in range(outputs))]

    def _scan(self, inputs: list[Item], attributes: Attributes, env: dict[str, Item]) -> list[Item]:
        body, count = attributes["body"], attributes["num_scan_inputs"]
        states, series = list(inputs[:-count]), inputs[-count:]
        axes = attributes.get("scan_input_axes") or [0] * count
        backwards = attributes.get("scan_input_directions") or [0] * count
        length = series[0].data.shape[axes[0]]
        if length > _MOST_STEPS:
            raise TooManyStepsError(f"Scan of {length} steps")
        if not length or self.version < 9:
            raise NotCoveredError(f"Scan of {length} steps")
        if not self.field.has_values:  # weights, say, whose numbers are no sizes
            series = [v if v.data.dtype.kind != "f" else self.symbol(self.elements(v), v.dtype) for v in series]
        collected: list[list[Item]] = []
        before: list[Item] = []
        for step in range(length):
            if step > 1 and not self.field.has_values and _are_shapes_alone([*before, *states, *series]):
                # Each further step is as the last one: of the same shapes, and nothing else is asked for.
                collected += [collected[-1]] * (length - step)
                break
            before = states
            parts = [
                Value(np.take(v.data, length - 1 - step if back else step, axis), v.dtype, v.exact, tag_of_each([v]))
                for v, axis, back in zip(series, axes, backwards, strict=True)
            ]
            results = self._inner(
                body, {**env, **dict(zip((i.name for i in body.input), [*states, *parts], strict=True))}
            )
            states = results[: len(states)]
            collected.append(results[len(states) :])
        outputs = len(body.output) - len(states)
        axes = attributes.get("scan_output_axes") or [0] * outputs
        order = attributes.get("scan_output_directions") or [0] * outputs
        return [
            *states,
            *(self.stack([c[i] for c in collected][:: -1 if order[i] else 1], axes[i]) for i in range(outputs)),
        ]

    def stack(self, values: Sequence[Value], axis: int) -> Value:
        """Tensors beside each other, along a new axis."""
        if all(v.exact for v in values):
            return exact(np.stack([v.data for v in values], axis))
        return self.symbol(np.stack([self.elements(v) for v in values], axis), values[0].dtype, tag_of_each(values))


@functools.lru_cache(maxsize=1024)
def _shapes_when_loaded(model: bytes) -> list[tuple[Sequence[int], Any]] | None:
    """Shapes and types of a model's outputs, as the runtime infers them from those of its inputs."""
    try:
        outputs = OnnxRunner.open(model, EXACT).outputs
    except OnnxToolError:
        return None
    shapes = [[d for d in s.shape or () if isinstance(d, int)] for s in outputs]
    # An operator whose shapes the runtime cannot infer has none, as a scalar has.
    if any(not known or len(known) < len(s.shape or ()) for known, s in zip(shapes, outputs, strict=True)):
        return None
    return [(known, s.dtype) for known, s in zip(shapes, outputs, strict=True)]


def _are_shapes_alone(values: Sequence[Item]) -> bool:
    """Whether nothing is known of some tensors but their shapes."""
    return all(isinstance(v, Value) and not v.exact and v.number is None for v in values)


def _attributes_of(node: onnx.NodeProto, outer: Attributes) -> Attributes:
    """Of a node by name; those that refer to a function's own are taken from there."""
    found: Attributes = {}
    for a in node.attribute:
        if not a.ref_attr_name:
            found[a.name] = helper.get_attribute_value(a)
        elif a.ref_attr_name in outer:
            found[a.name] = outer[a.ref_attr_name]
    if node.op_type in TREES:
        found["_name"] = node.output[-1]
    return found


def _constant_of(attributes: Attributes) -> Array:
    name, value = next(iter(attributes.items()))
    if name == "value":
        return numpy_helper.to_array(value)
    if name == "sparse_value":
        raise NotCoveredError("sparse constant")
    kind = {"f": np.float32, "i": np.int64, "s": object}[name.split("_")[1][0]]
    if kind is object:
        value = [v.decode() for v in value] if isinstance(value, list) else value.decode()
    return np.array(value, kind)


def _unrounded(kind: str, values: Sequence[Value]) -> Array | None:
    """What arithmetic of float32 numbers gives where it rounds none of them, as of masks that whole numbers make.

    Source: the error of a sum is by Knuth, The Art of Computer Programming 2, section 4.2.2; products of two float32
    numbers are exact in float64.
    """
    x, y = (v.data for v in values)
    if x.dtype != np.float32 or y.dtype != np.float32:
        return None
    y = -y if kind == "Sub" else y
    with np.errstate(all="ignore"):
        if kind == "Mul":
            made = x * y
            is_exact = made == np.multiply(x, y, dtype=np.float64)
        else:
            made = x + y
            rest = made - x
            is_exact = (x - (made - rest)) + (y - rest) == 0  # not so where one is not finite
    return np.asarray(made) if is_exact.all() else None


def _some_numbers(value: Value) -> Array:
    """A tensor's own numbers, or zeros where they are not known."""
    if value.exact:
        return value.data
    return np.zeros(value.data.shape, ordinary_type(value.dtype)) if value.number is None else value.number


def _gather_elements(data: Value, indices: Value, axis: int) -> Value:
    """ONNX's own implementation fails where the indices have fewer rows than the data."""
    kept = tuple(slice(None) if d == axis % data.data.ndim else slice(n) for d, n in enumerate(indices.data.shape))
    return exact(np.take_along_axis(data.data[kept], indices.data.astype(np.int64), axis))


def _begun(data: Value, starts: Value, ends: Value, axes: Value | None, steps: Value) -> list[Item]:
    """A Slice that goes back from before the first element begins there; ONNX's own implementation gives nothing."""
    along = np.arange(len(starts.data)) if axes is None else axes.data
    least = -np.array(data.data.shape, starts.dtype)[along]
    begun = np.where(steps.data < 0, np.maximum(starts.data, least), starts.data)
    return [data, exact(begun), ends, axes, steps]


def _with_pads(inputs: list[Any], attributes: Attributes, data: list[int]) -> tuple[list[Any], list[int]]:
    """Inputs of a Pad, and which of them it moves, as they are since opset 11: before, all but one are attributes."""
    if len(inputs) > 1:
        return inputs, data
    pads = attributes.get("pads") or attributes["paddings"]
    return [*inputs, exact(np.array(pads)), exact(np.float32(attributes.get("value", 0.0)))], [0, 2]


def _axes_of(inputs: list[Any]) -> Array:
    """Those that a Pad pads."""
    rank = inputs[0].data.ndim
    given = inputs[3] if len(inputs) > 3 else None
    return np.arange(rank) if given is None else np.asarray(given.data % rank)


def _cut(inputs: list[Any]) -> list[Any]:
    """A Pad whose pads are below zero, with its data cut before."""
    data, pads = inputs[0].data, inputs[1].data.astype(np.int64)
    if (pads >= 0).all():
        return inputs
    for axis, first, last in zip(_axes_of(inputs), *np.minimum(pads, 0).reshape(2, -1), strict=True):
        data = np.take(data, np.arange(-first, max(data.shape[axis] + last, -first)), axis=int(axis))
    return [exact(data), exact(np.maximum(pads, 0)), *inputs[2:]]


_DRAWS = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
)
TREES = ("TreeEnsembleRegressor", "TreeEnsembleClassifier")
_WRAPPING = frozenset((*("Add", "Sub", "Mul", "Neg", "Abs", "Sum", "MatMul", "Gemm", "Einsum", "CumSum", "PRelu"),))
_ALWAYS = frozenset(
    (
        *("Gather", "Concat", "Cast", "SequenceConstruct", "SequenceAt", "SequenceEmpty", "SequenceInsert"),
        *("Optional", "OptionalGetElement", "OptionalHasElement"),
    )
)
# Which give the same modulo 2^n for integers that are the same modulo 2^n.
_MODULAR = (_WRAPPING - {"PRelu"}) | _ALWAYS | {"CastLike", "Equal", "Where", *_MOVES}
_EXACT = frozenset(
    (
        "Less",
        "Greater",
        "LessOrEqual",
        "GreaterOrEqual",
        "Equal",
        "ConstantOfShape",
        "IsNaN",
        "IsInf",
        "NonZero",
        "Unique",
        "Range",
        "EyeLike",
        *("Max", "Min", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"),  # a choice rounds nothing
        "OneHot",
    )
)

# Attributes that change no number: how a sum is rounded, what training keeps, the order of indices that nobody reads.
_WITHOUT_EFFECT = frozenset(
    (
        *("stash_type", "precision", "momentum", "ratio", "seed", "storage_order", "consumed_inputs"),
        *("nodes_hitrates", "nodes_hitrates_as_tensor"),
    )
)
_COSTLY = frozenset(
    ("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "Softmax", "LayerNormalization", "Gelu", "Gather")
)
_KEPT = 2**23  # elements of one result
_ROUNDS = frozenset(("Floor", "Ceil", "Round", "Cast", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"))

__all__ = [
    "ONE",
    "TREES",
    "Interpreter",
    "follow",
    "moves",
    "operator",
]
