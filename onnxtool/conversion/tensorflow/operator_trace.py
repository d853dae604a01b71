"""What a TensorFlow function computes, written down as ONNX nodes while its graph is walked at fixed sizes.

This is the source's side of a certificate: no exporter takes part. TensorFlow runs each operation of the graph on an
example, so that sizes, loops and branches that no input decides are known, and `graph_operators` has an ONNX form for
those that inputs or weights reach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

from onnxtool.conversion.tensorflow.environment import quiet
from onnxtool.conversion.tensorflow.graph_operators import (
    MOVES,
    OPERATORS,
    GraphTensor,
    GraphWriter,
    UnknownOperationError,
    run,
)
from onnxtool.errors import OnnxToolError, UnsupportedError, one_line
from onnxtool.model.spec import TensorSpec

_MOST_STEPS = 1300
_SAME = frozenset(
    ("Identity", "IdentityN", "StopGradient", "PreventGradient", "EnsureShape", "Snapshot", "CheckNumerics")
)
_CALLS = frozenset(("PartitionedCall", "StatefulPartitionedCall"))
_SIZES = frozenset(("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"))
_CHANGES = ("Assign", "ResourceScatter", "ResourceApply")  # of variables
Item = GraphTensor | list[GraphTensor | None]


def operator_trace(
    concrete: Any, arrays: Sequence[np.ndarray], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> ir.Model:
    """The operations of a function that was traced at these sizes, as an ONNX graph of these sizes.

    Args:
        concrete: a `ConcreteFunction`.
        arrays: an input for each of its arguments.
        inputs, outputs: their names.

    Returns:
        A graph whose initializers are the variables and constants, bit by bit. What TensorFlow itself computes of
        these, which its converter folds, stands at the values of the nodes.

    Raises:
        UnsupportedError: in one line: a loop that the data ends, or an operation without a form here.
    """
    writer = GraphWriter()
    graph = concrete.graph
    try:
        with quiet(), tf.device("/cpu:0"):
            given: dict[str, Item] = {}
            for tensor, spec, array in zip(graph.inputs, inputs, arrays, strict=False):  # what is captured follows
                given[tensor.name] = writer.input(spec.name, tf.constant(array))
            for outside, inside in graph.captures:
                given[inside.name] = GraphTensor(outside, known=outside.dtype not in (tf.resource, tf.variant))
            walk = _GraphWalk(writer)
            results = walk.graph(graph, given)
            ends = [r for r in results if isinstance(r, GraphTensor) and r.example.dtype != tf.resource]
            model = writer.model(list(zip((s.name for s in outputs), ends, strict=True)))
    except OnnxToolError:
        raise
    except Exception as error:
        raise UnsupportedError(f"its graph cannot be written down: {one_line(error, 120)}") from error
    trace = ir.from_proto(onnx.shape_inference.infer_shapes(model))
    for node in trace.graph:
        for value in node.outputs:
            if value.name in walk.made:
                value.const_value = ir.tensor(walk.made[value.name])
    return trace


@dataclass
class _GraphWalk:
    """Follows a graph and the functions that it calls.

    Attributes:
        writer: of the nodes.
        made: what TensorFlow computes of weights and constants alone, by the names of the nodes.
    """

    writer: GraphWriter
    made: dict[str, np.ndarray] = field(default_factory=dict)

    def graph(self, graph: Any, env: dict[str, Item]) -> list[Item]:
        """Its outputs; `env` has its inputs by name."""
        needed, pending = set[str](), [t.op for t in graph.outputs]
        while pending:
            operation = pending.pop()
            if operation.name not in needed:
                needed.add(operation.name)
                pending += [t.op for t in operation.inputs]
        for operation in graph.get_operations():
            if operation.type.startswith(_CHANGES):
                raise UnsupportedError("it changes its own variables")
            if operation.name not in needed or all(t.name in env for t in operation.outputs):
                continue
            found = self._operation(operation, [env[t.name] for t in operation.inputs])
            env.update(zip((t.name for t in operation.outputs), found, strict=True))
        return [env[t.name] for t in graph.outputs]

    def _function(self, name: str, inputs: Sequence[Item]) -> list[Item]:
        graph = function_def_to_graph(context.context().get_function_def(name))
        return self.graph(graph, dict(zip((t.name for t in graph.inputs), inputs, strict=True)))

    def _operation(self, operation: Any, inputs: list[Any]) -> Sequence[Item]:
        kind = operation.type
        if kind in _SAME:
            return inputs
        if kind == "Const":
            return [GraphTensor(tf.constant(tf.make_ndarray(operation.get_attr("value"))), known=True)]
        if kind in _CALLS:
            return self._function(operation.get_attr("f").name, inputs)
        if kind in ("If", "StatelessIf"):
            branch = "then_branch" if self._decided(inputs[0], "a branch") else "else_branch"
            return self._function(operation.get_attr(branch).name, inputs[1:])
        if kind in ("While", "StatelessWhile"):
            return self._loop(operation, inputs)
        if kind in _LISTS:
            return [_LISTS[kind](self.writer, *inputs)]
        return self._called(operation, inputs)

    def _decided(self, condition: GraphTensor, what: str) -> bool:
        if not condition.known:
            raise UnsupportedError(f"{what} of its graph is decided by the data")
        return bool(condition.example.numpy())

    def _loop(self, operation: Any, state: Sequence[Item]) -> Sequence[Item]:
        test, body = operation.get_attr("cond").name, operation.get_attr("body").name
        for _ in range(_MOST_STEPS):
            condition = self._function(test, state)[0]
            assert isinstance(condition, GraphTensor)
            if not self._decided(condition, "the end of a loop"):
                return state
            state = self._function(body, state)
        raise UnsupportedError(f"a loop of more than {_MOST_STEPS} steps")

    def _called(self, operation: Any, inputs: Sequence[GraphTensor]) -> Sequence[Item]:
        """What an operation gives: numbers where no input or weight reaches it, else a node."""
        kind, writer = operation.type, self.writer
        if operation.op_def.is_stateful and kind not in ("ReadVariableOp", "ResourceGather"):
            raise UnsupportedError(f"operation {kind} draws random numbers or keeps a state")
        try:
            examples = run(operation, [i.example for i in inputs])
            if kind in _SIZES or (all(i.known for i in inputs) and _is_exact(kind, examples)):
                return [GraphTensor(e, known=True) for e in examples]
            if kind == "ReadVariableOp":
                return [GraphTensor(examples[0])]
            if kind not in OPERATORS and kind not in MOVES:
                raise UnknownOperationError
            names = writer.written(operation, inputs, examples)
        except Exception as error:
            why = f" ({one_line(error, 80)})" if error.args else ""
            raise UnsupportedError(f"operation {kind} has no exact form here{why}") from error
        known, fixed = (all(getattr(i, n) for i in inputs) for n in ("known", "fixed"))
        if fixed:
            self.made |= {n: np.asarray(e) for e, n in zip(examples, names, strict=True) if e.dtype.is_floating}
        return [GraphTensor(e, n, known, fixed) for e, n in zip(examples, names, strict=True)]


def _is_exact(kind: str, examples: Sequence[Any]) -> bool:
    """Whether numbers follow from known ones without being rounded, or are whole ones all the same."""
    if kind in MOVES or kind == "Fill":
        return True
    if kind in ("Cast", "Range"):
        return all(
            not e.dtype.is_floating or bool((np.rint(np.asarray(e, np.float64)) == np.asarray(e, np.float64)).all())
            for e in examples
        )
    return not any(e.dtype.is_floating or e.dtype.is_complex for e in examples)


def _whole(value: GraphTensor) -> int:
    if not value.known:
        raise UnsupportedError("a place in a list of tensors is decided by the data")
    return int(value.example.numpy())


def _of_tensor(write: GraphWriter, tensor: GraphTensor, _: GraphTensor) -> list[GraphTensor | None]:
    axis = write.ints([0])
    return [
        GraphTensor(row, write.add("Squeeze", write.add("Gather", tensor, write.ints([k]), axis=0), axis), tensor.known)
        for k, row in enumerate(tf.unstack(tensor.example))
    ]


def _stacked(write: GraphWriter, items: list[GraphTensor | None], *_: GraphTensor) -> GraphTensor:
    held = [i for i in items if i is not None]
    if not held or len(held) != len(items):
        raise UnsupportedError("a list of tensors is stacked before all are there")
    rows = [write.add("Unsqueeze", i, write.ints([0])) for i in held]
    return GraphTensor(
        tf.stack([i.example for i in held]), write.add("Concat", *rows, axis=0), all(i.known for i in held)
    )


def _item(_: GraphWriter, items: list[GraphTensor | None], at: GraphTensor, *__: GraphTensor) -> GraphTensor:
    found = items[_whole(at)]
    if found is None:
        raise UnsupportedError("an item of a list of tensors is read before it is there")
    return found


def _with_item(
    _: GraphWriter, items: list[GraphTensor | None], at: GraphTensor, item: GraphTensor
) -> list[GraphTensor | None]:
    return [item if k == _whole(at) else old for k, old in enumerate(items)]


_LISTS: dict[str, Callable[..., Any]] = {
    "TensorListReserve": lambda _, __, count: [None] * _whole(count),
    "EmptyTensorList": lambda _, __, ___: [],
    "TensorListFromTensor": _of_tensor,
    "TensorListStack": _stacked,
    "TensorListGetItem": _item,
    "TensorListSetItem": _with_item,
    "TensorListPushBack": lambda _, items, item: [*items, item],
    "TensorListLength": lambda _, items: GraphTensor(tf.constant(len(items)), known=True),
}
