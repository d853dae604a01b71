"""Small random models for `fuzz_equality.py`, each with inputs that drive it everywhere it can go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Feeds = dict[str, np.ndarray]
ROWS, WIDTH = 23, 8
ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "Elu", "Softplus", "HardSwish", "LeakyRelu", "Softsign")


@dataclass
class Graph:
    """A graph that grows node by node.

    Attributes:
        nodes, weights, inputs, outputs: as in the model.
        feeds: makes inputs from a generator, a batch and a length: of all the kinds that the model knows.
    """

    generator: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    feeds: Callable[[np.random.Generator, int, int], Feeds] = lambda *_: {}

    def add(self, operator: str, inputs: Sequence[str], outputs: int = 1, **attributes: object) -> str:
        """A node; gives the name of its first output."""
        number = len(self.nodes)
        names = [f"t{number}_{i}" if i else f"t{number}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, f"node{number}", **attributes))
        return names[0]

    def weight(self, array: np.ndarray | float | Sequence[int], dtype: str = "float32") -> str:
        """A constant; gives its name."""
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array, dtype)
        return name

    def normal(self, *shape: int) -> str:
        """Random weights that keep the size of what they multiply."""
        spread = max(1, int(np.prod(shape[:-1] if len(shape) == 2 else shape[1:]))) ** -0.5
        return self.weight(self.generator.normal(size=shape) * spread * 1.5)

    def input(self, name: str, kind: int, shape: Sequence[int | str]) -> str:
        """A graph input."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, value: str, kind: int = TensorProto.FLOAT) -> None:
        """A graph output."""
        self.outputs.append(helper.make_tensor_value_info(value, kind, None))

    def pick(self, choices: Sequence[str]) -> str:
        """One of several."""
        return str(choices[int(self.generator.integers(len(choices)))])

    def model(self) -> onnx.ModelProto:
        """What has been built."""
        constants = [numpy_helper.from_array(a, n) for n, a in self.weights.items()]
        graph = helper.make_graph(self.nodes, "fuzz", self.inputs, self.outputs, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def picture(g: Graph) -> None:
    """Convolutions with padding, pooling, a linear layer."""
    x = g.input("image", TensorProto.FLOAT, ["n", 3, "h", "w"])
    g.feeds = lambda r, n, s: {"image": r.normal(size=(n, 3, s + 4, s + 7)).astype(np.float32)}
    channels = 3
    for _ in range(int(g.generator.integers(1, 4))):
        more = int(g.generator.integers(4, 9))
        pads = [1, 1, 1, 1]
        x = g.add("Conv", [x, g.normal(more, channels, 3, 3), g.normal(more)], pads=pads, kernel_shape=[3, 3])
        if g.generator.random() < 0.5:
            constants = [np.ones(more) * 1.3, np.zeros(more) + 0.2, g.generator.normal(size=more) * 0.1, np.ones(more)]
            x = g.add("BatchNormalization", [x, *(g.weight(c) for c in constants)])
        x = g.add(g.pick(ACTIVATIONS), [x])
        channels = more
    if g.generator.random() < 0.5:
        g.output(g.add("Softmax", [x], axis=1))
    pooled = g.add("Flatten", [g.add("GlobalAveragePool", [x])])
    g.output(g.add("Gemm", [pooled, g.normal(channels, 5), g.normal(5)]))


def sentence(g: Graph) -> None:
    """An embedding, attention under a mask, normalisation, a pooled vector."""
    ids, mask = (g.input(n, TensorProto.INT64, ["batch", "sequence"]) for n in ("input_ids", "attention_mask"))

    def feeds(r: np.random.Generator, n: int, s: int) -> Feeds:
        shown = np.ones((n, s), np.int64)
        for row in shown:
            row[int(r.integers(1, s + 1)) :] = 0
        return {"input_ids": r.integers(0, ROWS, (n, s)), "attention_mask": shown}

    g.feeds = feeds
    x = g.add("Gather", [g.weight(g.generator.normal(size=(ROWS, WIDTH))), ids])
    scores = g.add("MatMul", [x, g.add("Transpose", [g.add("MatMul", [x, g.normal(WIDTH, WIDTH)])], perm=[0, 2, 1])])
    shown = g.add("Unsqueeze", [g.add("Cast", [mask], to=1), g.weight([1], "int64")])
    hidden = g.add("Mul", [g.add("Sub", [g.weight(1.0), shown]), g.weight(-1e4)])
    share = g.add("Softmax", [g.add("Add", [scores, hidden])], axis=-1)
    mixed = g.add("Add", [x, g.add("MatMul", [share, g.add("MatMul", [x, g.normal(WIDTH, WIDTH)])])])
    x = g.add("LayerNormalization", [mixed, g.weight(np.ones(WIDTH)), g.weight(np.zeros(WIDTH))], axis=-1)
    x = g.add(g.pick(ACTIVATIONS), [g.add("MatMul", [x, g.normal(WIDTH, WIDTH)])])
    if g.generator.random() < 0.5:  # heads, whose shape is computed
        shape = g.add("Shape", [ids])
        parts = [g.add("Gather", [shape, g.weight([i], "int64")]) for i in (0, 1)]
        target = g.add("Concat", [*parts, g.weight([2, WIDTH // 2], "int64")], axis=0)
        turned = g.add("Transpose", [g.add("Reshape", [x, target])], perm=[0, 2, 1, 3])
        g.output(g.add("Softmax", [turned], axis=-1))
    weighted = g.add("Mul", [x, g.add("Unsqueeze", [g.add("Cast", [mask], to=1), g.weight([2], "int64")])])
    total = g.add("ReduceSum", [weighted, g.weight([1], "int64")], keepdims=0)
    g.output(g.add("Gemm", [total, g.normal(WIDTH, 4), g.normal(4)]))


def table(g: Graph) -> None:
    """Columns of several units, layers, a threshold, the best class."""
    x = g.input("rows", TensorProto.FLOAT, ["n", WIDTH])
    g.feeds = lambda r, n, _: {"rows": (r.normal(size=(n, WIDTH)) * r.choice([0.1, 1, 10])).astype(np.float32)}
    width = WIDTH
    for _ in range(int(g.generator.integers(1, 5))):
        more = int(g.generator.integers(4, 12))
        x = g.add(g.pick(ACTIVATIONS), [g.add("Gemm", [x, g.normal(width, more), g.normal(more)])])
        width = more
    if g.generator.random() < 0.5:
        high = g.add("Greater", [x, g.weight(float(g.generator.uniform(-0.5, 0.8)))])
        x = g.add("Where", [high, g.add("Mul", [x, g.weight(2.5)]), x])
    x = g.add("Gemm", [x, g.normal(width, 4), g.normal(4)])
    if g.generator.random() < 0.5:
        x = g.add("Mul", [x, g.weight([1e6, 1.0, 1.0, 1e-3])])
    g.output(x)
    g.output(g.add("ArgMax", [x], axis=1, keepdims=0), TensorProto.INT64)


def whole_numbers(g: Graph) -> None:
    """Integer arithmetic in one of the integer types."""
    name = g.pick(("int32", "int64", "uint8", "int8"))
    dtype = np.dtype(name)
    x = g.input("numbers", helper.np_dtype_to_tensor_dtype(dtype), ["n", WIDTH])
    low = 0 if dtype.kind == "u" else -100
    g.feeds = lambda r, n, _: {"numbers": r.integers(low, 120, (n, WIDTH)).astype(dtype)}
    x = g.add("Cast", [x], to=TensorProto.INT32)
    for _ in range(int(g.generator.integers(2, 6))):
        kind = g.pick(("Add", "Mul", "Mod", "Max", "CumSum"))
        if kind == "CumSum":
            x = g.add(kind, [x, g.weight(1, "int64")])
        else:
            x = g.add(kind, [x, g.weight(g.generator.integers(2, 9, WIDTH), "int32")])
    g.output(g.add("Gather", [x, g.weight(g.generator.permutation(WIDTH), "int64")], axis=1), TensorProto.INT32)


def fork(g: Graph) -> None:
    """An If on a value or on a length."""
    x = g.input("x", TensorProto.FLOAT, ["n", "length"])
    g.feeds = lambda r, n, s: {"x": (r.normal(size=(n, s)) + r.choice([-6, -1, 0, 1, 6])).astype(np.float32)}
    if g.generator.random() < 0.5:
        value = g.add("ReduceMean", [x], keepdims=0)
        condition = g.add("Greater", [value, g.weight(float(g.generator.choice([-3.0, 0.0, 3.0])))])
    else:
        size = g.add("Gather", [g.add("Shape", [x]), g.weight(1, "int64")])
        condition = g.add("Greater", [size, g.weight(int(g.generator.choice([4, 12, 40])), "int64")])
    bodies = []
    for i, kind in enumerate((g.pick(ACTIVATIONS), "Neg")):
        node = helper.make_node(kind, [x], [f"branch{i}"])
        bodies.append(helper.make_graph([node], f"b{i}", [], [helper.make_tensor_value_info(f"branch{i}", 1, None)]))
    x = g.add("If", [condition], then_branch=bodies[0], else_branch=bodies[1])
    g.output(g.add("Add", [x, g.weight(0.5)]))


def sizes(g: Graph) -> None:
    """Reshapes, slices and pads with computed sizes."""
    x = g.input("x", TensorProto.FLOAT, ["n", "h", "w"])
    g.feeds = lambda r, n, s: {"x": r.normal(size=(n, s, s + 3)).astype(np.float32)}
    shape = g.add("Shape", [x])
    n, h, w = (g.add("Gather", [shape, g.weight([i], "int64")]) for i in range(3))
    kind = g.pick(("swap", "merge", "tile"))
    if kind == "swap":
        x = g.add("Reshape", [x, g.add("Concat", [n, w, h], axis=0)])
    elif kind == "merge":
        x = g.add("Reshape", [x, g.add("Concat", [n, g.add("Mul", [h, w])], axis=0)])
    else:
        x = g.add("Expand", [x, g.add("Concat", [g.weight([2], "int64"), n, h, w], axis=0)])
    x = g.add(g.pick(ACTIVATIONS), [x])
    if g.generator.random() < 0.5:
        x = g.add("CumSum", [x, g.weight(1, "int64")])
    g.output(g.add("Softmax", [x], axis=-1))
    g.output(x)


FAMILIES: Mapping[str, Callable[[Graph], None]] = {
    "picture": picture,
    "sentence": sentence,
    "table": table,
    "integers": whole_numbers,
    "fork": fork,
    "sizes": sizes,
}


def random_model(generator: np.random.Generator) -> tuple[str, Graph]:
    """A model of one of the families."""
    name = str(generator.choice(list(FAMILIES)))
    graph = Graph(generator)
    FAMILIES[name](graph)
    return name, graph
