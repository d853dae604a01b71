"""Small files that ask for time, memory or depth without end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.hostile.cases import EXCESSIVE, LIMIT, NO_ARRAY, QUICK, VALID, Case, file
from tests.hostile.graphs import FLOAT, INT64, model, sound


def cases() -> Iterator[Case]:
    """All of them."""
    for table, codes in ((excessive(), EXCESSIVE), (limits(), LIMIT), (ranks(), NO_ARRAY)):
        for name, make in table.items():
            yield Case(f"graph-{name}", file("m.onnx", make().SerializeToString()), codes)
    endless = looped([helper.make_node("Relu", ["s"], ["t"])], 1 << 62).SerializeToString()
    yield Case("graph-loop-for-years", file("m.onnx", endless), EXCESSIVE, limit=QUICK)
    yield Case("graph-a-terabyte-of-holes", holes(1 << 38), NO_ARRAY)
    yield Case("graph-a-few-bytes-of-a-terabyte-of-holes", holes(3), {**VALID, "compare": frozenset((0, 1))})


def holes(elements: int) -> Callable[[Path], Path]:
    """A weight in a sparse file, which takes no room and reads as zeros without end."""

    def write(folder: Path) -> Path:
        made = model([helper.make_node("Add", ["x", "w"], ["y"])], outputs={"y": [2, 3]})
        weight = made.graph.initializer.add(name="w", data_type=FLOAT, dims=[elements])
        weight.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "holes.bin"), ("offset", "0"), ("length", str(4 * elements))):
            weight.external_data.add(key=key, value=value)
        with open(folder / "holes.bin", "wb") as file_of_holes:
            file_of_holes.truncate(1 << 40)
        (folder / "m.onnx").write_bytes(made.SerializeToString())
        return folder / "m.onnx"

    return write


def looped(nodes: list[NodeProto], trips: int) -> ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), *nodes],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("t", FLOAT, None),
        ],
    )
    trip = helper.make_node("Constant", [], ["n"], value=numpy_helper.from_array(np.array(trips, np.int64)))
    return model([trip, helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)])


def excessive() -> dict[str, Callable[[], ModelProto]]:
    """Small files that ask for time or memory without end."""

    def constant(name: str, values: list[int]) -> NodeProto:
        return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(values, np.int64)))

    def doubling() -> ModelProto:
        nodes = [helper.make_node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=0) for i in range(40)]
        nodes[0].input[0] = nodes[0].input[1] = "x"
        nodes[-1].output[0] = "y"
        return model(nodes)

    def doubling_constants() -> ModelProto:
        nodes = [helper.make_node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=0) for i in range(40)]
        total = helper.make_node("ReduceSum", ["v40"], ["r"], keepdims=0)
        weights = {"v0": np.ones(1000, np.float32)}
        return model([*nodes, total, helper.make_node("Add", ["x", "r"], ["y"])], weights=weights)

    return {
        "expand-to-a-terabyte": lambda: model(
            [constant("s", [1 << 19, 1 << 19]), helper.make_node("ConstantOfShape", ["s"], ["y"])]
        ),
        "tile-to-a-terabyte": lambda: model(
            [constant("s", [1 << 19, 1 << 19]), helper.make_node("Tile", ["x", "s"], ["y"])]
        ),
        "pad-to-a-terabyte": lambda: model(
            [constant("s", [0, 0, 1 << 19, 1 << 19]), helper.make_node("Pad", ["x", "s"], ["y"])]
        ),
        "resize-to-a-terabyte": lambda: model(
            [constant("s", [1 << 19, 1 << 19]), helper.make_node("Resize", ["x", "", "", "s"], ["y"])]
        ),
        "doubling-forty-times": doubling,
        "doubling-constants-forty-times": doubling_constants,
        "loop-that-doubles": lambda: looped([helper.make_node("Concat", ["s", "s"], ["t"], axis=0)], 60),
    }


def limits() -> dict[str, Callable[[], ModelProto]]:
    """Nested beyond reason."""

    def nested(depth: int) -> ModelProto:
        graph = GraphProto(name="deepest")
        for _ in range(depth):
            outer = GraphProto(name="g")
            inner = outer.node.add(op_type="If", input=["c"], output=["o"])
            inner.attribute.add(name="then_branch", type=AttributeProto.GRAPH).g.CopyFrom(graph)
            graph = outer
        made = sound()
        made.graph.CopyFrom(graph)
        return made

    def expanding(depth: int, subgraphs: bool = False) -> ModelProto:
        """Each function calls the next one twice: 2^depth nodes in a few lines."""
        made = model([helper.make_node("f0", ["x"], ["y"], domain="d")])
        for index in range(depth):
            last = index == depth - 1
            kind, domain = ("Relu", "") if last else (f"f{index + 1}", "d")
            nodes = [helper.make_node(kind, [a], [b], domain=domain) for a, b in (("a", "m"), ("m", "z"))]
            if subgraphs:
                out = helper.make_tensor_value_info("t", FLOAT, None)
                bodies = [
                    helper.make_graph([helper.make_node(kind, ["a"], ["t"], domain=domain)], "g", [], [out])
                    for _ in range(2)
                ]
                condition = numpy_helper.from_array(np.array(True))
                nodes = [
                    helper.make_node("Constant", [], ["c"], value=condition),
                    helper.make_node("If", ["c"], ["z"], then_branch=bodies[0], else_branch=bodies[1]),
                ]
            imports = [helper.make_opsetid("", made.opset_import[0].version), helper.make_opsetid("d", 1)]
            made.functions.append(helper.make_function("d", f"f{index}", ["a"], ["z"], nodes, imports))
        made.opset_import.append(helper.make_opsetid("d", 1))
        return made

    return {
        "nested-70-deep": lambda: nested(70),
        "functions-that-call-two-forty-deep": lambda: expanding(40),
        "functions-that-call-two-in-branches": lambda: expanding(40, subgraphs=True),
        "functions-a-thousand-deep": lambda: expanding(1000),
    }


def ranks() -> dict[str, Callable[[], ModelProto]]:
    """Tensors of more dims than any array has."""

    def ranked(dims: int) -> ModelProto:
        made = model([helper.make_node("Add", ["x", "w"], ["y"])])
        made.graph.initializer.add(name="w", data_type=FLOAT, dims=[1] * dims, float_data=[1.0])
        return made

    return {f"a-tensor-of-{n}-dims": lambda n=n: ranked(n) for n in (65, 100_000)}  # type: ignore[misc]
