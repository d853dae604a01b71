"""Readable protobuf whose graph is wrong, monstrous, or merely odd."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.hostile.cases import INVALID, ODD, TOLERATED, UNREADABLE, VALID, Case, file

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Change = Callable[[ModelProto], object]


def model(
    nodes: list[NodeProto],
    *,
    inputs: dict[str, list[int | str]] | None = None,
    outputs: dict[str, list[int | str] | None] | None = None,
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 20,
    functions: list[onnx.FunctionProto] | None = None,
    domains: tuple[str, ...] = (),
) -> ModelProto:
    """A model of float inputs and outputs around some nodes."""
    given = {"x": [2, 3]} if inputs is None else inputs
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, FLOAT, s) for n, s in given.items()],
        [helper.make_tensor_value_info(n, FLOAT, s) for n, s in (outputs or {"y": None}).items()],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=functions or [])


def sound() -> ModelProto:
    """x float32[2,3] -> Gemm -> Relu -> y float32[2,4], with 12 weights and 4 biases."""
    weights = {
        "w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
        "b": np.linspace(0, 1, 4, dtype=np.float32),
    }
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="dense"), helper.make_node("Relu", ["h"], ["y"])]
    return model(nodes, weights=weights, outputs={"y": [2, 4]})


def changed(change: Change) -> Callable[[], ModelProto]:
    """The sound model after a change."""

    def make() -> ModelProto:
        made = sound()
        change(made)
        return made

    return make


def cases() -> Iterator[Case]:
    """All graphs."""
    for table, codes in (
        (unreadable(), UNREADABLE),
        (invalid(), INVALID),
        (tolerated(), TOLERATED),
        (odd(), ODD),
        (valid(), VALID),
    ):
        for name, make in table.items():
            yield Case(f"graph-{name}", file("m.onnx", make().SerializeToString()), codes)


def node(*arguments: object, **attributes: object) -> Change:
    """Replace the last node."""

    def change(m: ModelProto) -> None:
        m.graph.node[-1].CopyFrom(helper.make_node(*arguments, **attributes))  # type: ignore[arg-type]

    return change


def dim(index: int, value: int | str) -> Change:
    """Set a dim of the input (and, when symbolic, of the output)."""

    def change(m: ModelProto) -> None:
        if isinstance(value, str):
            m.graph.input[0].type.tensor_type.shape.dim[index].dim_param = value
            m.graph.output[0].type.tensor_type.shape.dim[index].dim_param = value
        else:
            m.graph.input[0].type.tensor_type.shape.dim[index].dim_value = value

    return change


def unreadable() -> dict[str, Callable[[], ModelProto]]:
    """Refused before any library sees them: the declared sizes do not fit the bytes."""

    def dims(*values: int) -> Change:
        def change(m: ModelProto) -> None:
            del m.graph.initializer[0].dims[:]
            m.graph.initializer[0].dims.extend(values)

        return change

    def raw(content: bytes) -> Change:
        return lambda m: setattr(m.graph.initializer[0], "raw_data", content)

    def typed(m: ModelProto) -> None:
        tensor = m.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.float_data.extend([1.0] * 5)

    def both(m: ModelProto) -> None:
        tensor = m.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.float_data.extend([1.0] * 12)
        tensor.int64_data.append(1)

    return {
        "dims-too-many": changed(dims(3, 5)),
        "dims-huge": changed(dims(1 << 40, 4)),
        "dims-overflow-64-bits": changed(dims(1 << 62, 4)),
        "dims-product-wraps-to-the-size": changed(dims(1 << 33, 1 << 33, 12)),
        "dims-negative": changed(dims(-3, -4)),
        "dims-zero-with-data": changed(dims(0, 4)),
        "raw-too-short": changed(raw(b"\0" * 44)),
        "raw-too-long": changed(raw(b"\0" * 52)),
        "raw-odd-length": changed(raw(b"\0" * 47)),
        "typed-field-too-short": changed(typed),
        "values-in-another-types-field": changed(lambda m: m.graph.initializer[0].int64_data.append(1)),
        "values-in-both-fields": changed(both),
        "no-data-at-all": changed(lambda m: m.graph.initializer[0].ClearField("raw_data")),
        "weights-without-type": changed(lambda m: setattr(m.graph.initializer[0], "data_type", 0)),
        "weights-of-unknown-type": changed(lambda m: setattr(m.graph.initializer[0], "data_type", 999)),
        "opset-beyond-32-bits": changed(lambda m: setattr(m.opset_import[0], "version", 1 << 31)),
        "ir-version-zero": changed(lambda m: setattr(m, "ir_version", 0)),
        "ir-version-negative": changed(lambda m: setattr(m, "ir_version", -1)),
    }


def invalid() -> dict[str, Callable[[], ModelProto]]:
    """Against the specification."""

    def cycle(m: ModelProto) -> None:
        m.graph.node[0].input[0] = "y"

    def imports(*versions: tuple[str, int]) -> Change:
        def change(m: ModelProto) -> None:
            del m.opset_import[:]
            m.opset_import.extend(helper.make_opsetid(d, v) for d, v in versions)

        return change

    def renamed(m: ModelProto) -> None:
        m.graph.node[1].output[0] = "h"

    def element_type(value: int) -> Change:
        return lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", value)

    function = helper.make_function(
        "local", "F", ["a"], ["c"], [helper.make_node("F", ["a"], ["c"], domain="local")], [helper.make_opsetid("", 20)]
    )
    function.opset_import.append(helper.make_opsetid("local", 1))
    g = helper.make_function(
        "local", "G", ["a"], ["c"], [helper.make_node("H", ["a"], ["c"], domain="local")], [helper.make_opsetid("", 20)]
    )
    h = helper.make_function(
        "local", "H", ["a"], ["c"], [helper.make_node("G", ["a"], ["c"], domain="local")], [helper.make_opsetid("", 20)]
    )
    for f in (g, h):
        f.opset_import.append(helper.make_opsetid("local", 1))

    def call(name: str) -> list[NodeProto]:
        return [helper.make_node(name, ["x"], ["y"], domain="local")]

    def itself() -> NodeProto:
        branch = helper.make_graph(
            [helper.make_node("Relu", ["y"], ["z"])], "b", [], [helper.make_empty_tensor_value_info("z")]
        )
        made = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
        made.input[0] = "x"
        return made

    return {
        "unknown-operator": changed(node("Frobnicate", ["h"], ["y"])),
        "empty-operator": changed(node("", ["h"], ["y"])),
        "unknown-domain": changed(node("Relu", ["h"], ["y"], domain="com.nowhere")),
        "constant-of-nothing": lambda: model([helper.make_node("Constant", [], ["y"])]),
        "branches-read-what-they-make": lambda: model([itself()], inputs={"x": []}),
        "missing-input": changed(node("Relu", ["nothing"], ["y"])),
        "too-many-inputs": changed(node("Relu", ["h", "h", "h"], ["y"])),
        "no-inputs": changed(node("Relu", [], ["y"])),
        "too-many-outputs": changed(node("Relu", ["h"], ["y", "z", "q"])),
        "unknown-attribute": changed(node("Relu", ["h"], ["y"], frob=3)),
        "attribute-of-wrong-type": changed(node("Softmax", ["h"], ["y"], axis="one")),
        "attribute-out-of-range": changed(node("Softmax", ["h"], ["y"], axis=99)),
        "transpose-of-wrong-rank": changed(node("Transpose", ["h"], ["y"], perm=[5, 4, 3])),
        "concat-without-axis": changed(node("Concat", ["h"], ["y"])),
        "cast-to-nowhere": changed(node("Cast", ["h"], ["y"], to=999)),
        "cycle": changed(cycle),
        "self-loop": changed(node("Relu", ["y"], ["y"])),
        "name-assigned-twice": changed(lambda m: m.graph.node.append(helper.make_node("Relu", ["h"], ["y"]))),
        "output-never-made": changed(renamed),
        "no-opset": changed(imports()),
        "opset-zero": changed(imports(("", 0))),
        "opset-negative": changed(imports(("", -5))),
        "ir-version-of-the-future": changed(lambda m: setattr(m, "ir_version", 9999)),
        "element-type-unknown": changed(element_type(9999)),
        "element-type-undefined": changed(element_type(0)),
        "input-without-type": changed(lambda m: m.graph.input[0].ClearField("type")),
        "output-without-name": changed(lambda m: setattr(m.graph.output[0], "name", "")),
        "no-outputs": changed(lambda m: m.graph.ClearField("output")),
        "gemm-shapes-clash": changed(dim(1, 7)),
        "if-without-branches": lambda: model([helper.make_node("If", ["x"], ["y"])], inputs={"x": []}),
        "loop-without-body": lambda: model([helper.make_node("Loop", ["", ""], ["y"])]),
        "function-calls-itself": lambda: model(call("F"), functions=[function], domains=("local",)),
        "functions-call-each-other": lambda: model(call("G"), functions=[g, h], domains=("local",)),
        "function-missing": lambda: model(call("Nowhere"), functions=[function], domains=("local",)),
        "reference-attribute-outside-a-function": changed(
            lambda m: m.graph.node[1].attribute.append(AttributeProto(name="alpha", ref_attr_name="a", type=1))
        ),
    }


def tolerated() -> dict[str, Callable[[], ModelProto]]:
    """Against the specification, yet the runtime takes them; nothing may be made of them."""

    def unsorted_nodes(m: ModelProto) -> None:
        first, second = NodeProto(), NodeProto()
        first.CopyFrom(m.graph.node[0])
        second.CopyFrom(m.graph.node[1])
        del m.graph.node[:]
        m.graph.node.extend([second, first])

    return {
        "unsorted": changed(unsorted_nodes),
        "constant-of-unknown-kind": lambda: model([helper.make_node("Constant", [], ["y"], frob=1.0)]),
        "constant-of-wrong-type": lambda: model([helper.make_node("Constant", [], ["y"], value=1.0)]),
        "initializer-twice": changed(lambda m: m.graph.initializer.append(m.graph.initializer[0])),
    }


def odd() -> dict[str, Callable[[], ModelProto]]:
    """Specification and runtime may disagree about these; the tool must stay whole."""

    def long_name(m: ModelProto) -> None:
        m.graph.node[0].name = "n" * 1_000_000

    def many(m: ModelProto) -> None:
        last = "h"
        for index in range(3000):
            m.graph.node.insert(1 + index, helper.make_node("Identity", [last], [f"i{index}"]))
            last = f"i{index}"
        m.graph.node[-1].input[0] = last

    return {
        "no-nodes": changed(lambda m: m.graph.ClearField("node")),
        "device-without-name": changed(lambda m: m.graph.node[0].device_configurations.add()),
        "no-graph-name": changed(lambda m: m.graph.ClearField("name")),
        "opset-twice": changed(lambda m: m.opset_import.append(helper.make_opsetid("", 19))),
        "opset-of-the-future": changed(lambda m: m.opset_import[0].__setattr__("version", 9999)),
        "opset-one": changed(lambda m: m.opset_import[0].__setattr__("version", 1)),
        "weights-nan": changed(lambda m: setattr(m.graph.initializer[0], "raw_data", b"\xff" * 48)),
        "input-of-a-gigabyte": changed(dim(0, 1 << 27)),
        "value-info-huge": changed(
            lambda m: m.graph.value_info.append(helper.make_tensor_value_info("h", FLOAT, [1 << 40, 1 << 40]))
        ),
        "value-info-of-unknown-value": changed(
            lambda m: m.graph.value_info.append(helper.make_tensor_value_info("nowhere", FLOAT, [-5]))
        ),
        "output-huge": changed(
            lambda m: setattr(m.graph.output[0].type.tensor_type.shape.dim[0], "dim_value", 1 << 62)
        ),
        "zero-rows": changed(dim(0, 0)),
        "negative-input-dim": changed(dim(0, -1)),
        "huge-input-dim": changed(dim(0, 1 << 40)),
        "name-of-a-million-letters": changed(long_name),
        "three-thousand-identities": changed(many),
        "output-is-an-input": changed(lambda m: m.graph.output.append(m.graph.input[0])),
        "output-twice": changed(lambda m: m.graph.output.append(m.graph.output[0])),
        "input-twice": changed(lambda m: m.graph.input.append(m.graph.input[0])),
        "input-twice-of-other-ranks": changed(
            lambda m: m.graph.input.append(helper.make_tensor_value_info("x", FLOAT, [2, "n", 3]))
        ),
        "metadata-twice": changed(
            lambda m: [m.metadata_props.add(key="k", value="1"), m.metadata_props.add(key="k", value="2")]
        ),
    }


def valid() -> dict[str, Callable[[], ModelProto]]:
    """Strange names and texts on a sound model."""

    def names(text: str) -> Change:
        def change(m: ModelProto) -> None:
            m.graph.name = m.graph.node[0].name = m.producer_name = m.doc_string = text
            m.graph.node[0].output[0] = m.graph.node[1].input[0] = text
            m.metadata_props.add(key=text, value=text)

        return change

    return {
        "sound": sound,
        "names-escape-sequences": changed(names("\x1b[31m\x1b]0;title\x07")),
        "names-markup": changed(names("[bold red]x[/bold red][link=file:///]")),
        "names-newlines": changed(names("a\nerror: b\r\tc")),
        "names-direction-override": changed(names("\u202egnp.exe\u2066")),
        "names-format-characters": changed(names("%s%n{0}{x}$(id)`id`;'\"\\")),
        "names-paths": changed(names("../../etc/passwd")),
        "names-not-latin": changed(names("模型-größe-🦊")),
        "unused-weights": changed(
            lambda m: m.graph.initializer.append(numpy_helper.from_array(np.ones(5, np.float32), "unused"))
        ),
        "dims-of-one-odd-name": changed(dim(0, "\x1b[2J")),
    }
