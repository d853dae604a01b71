"""Small files that ask for time, memory or depth without end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.hostile.cases import EXCESSIVE, LIMIT, Case, file
from tests.hostile.graphs import FLOAT, INT64, model, sound


def cases() -> Iterator[Case]:
    """All of them."""
    for table, codes in ((excessive(), EXCESSIVE), (limits(), LIMIT)):
        for name, make in table.items():
            yield Case(f"graph-{name}", file("m.onnx", make().SerializeToString()), codes)


def excessive() -> dict[str, Callable[[], ModelProto]]:
    """Small files that ask for time or memory without end."""

    def constant(name: str, values: list[int]) -> NodeProto:
        return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(values, np.int64)))

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
        "loop-for-years": lambda: looped([helper.make_node("Relu", ["s"], ["t"])], 1 << 62),
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

    return {"nested-70-deep": lambda: nested(70)}
