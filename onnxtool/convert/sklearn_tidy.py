"""What skl2onnx leaves crooked in its graphs: label shapes, output types, the locale of text."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnxtool.convert.sklearn_model import SklearnModel
from onnxtool.convert.sklearn_prepare import steps_of
from onnxtool.convert.sklearn_schema import trees_of
from onnxtool.errors import OnnxToolError
from onnxtool.model.domains import Domain
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session import EXACT, create_session


def tidy(proto: onnx.ModelProto, model: SklearnModel) -> None:
    """Straighten the graph, in place."""
    _set_types(proto, model)
    if model.doubles:
        _double_trees(proto, rounds=any(trees_of(step) for step in steps_of(model.estimator)))
    _set_locale(proto, model)
    _set_shapes(proto, model)


def _set_types(proto: onnx.ModelProto, model: SklearnModel) -> None:
    """Outputs that were left without an element type are floats; inner values need no type."""
    del proto.graph.value_info[:]
    kind = TensorProto.DOUBLE if model.doubles else TensorProto.FLOAT
    for value in proto.graph.output:
        known = value.type.WhichOneof("value")
        if known is None or (known == "tensor_type" and value.type.tensor_type.elem_type == TensorProto.UNDEFINED):
            value.type.tensor_type.elem_type = kind


def _double_trees(proto: onnx.ModelProto, rounds: bool) -> None:
    """Tree operators on doubles: what they give is float32 all the same, which skl2onnx declares wrongly.

    Args:
        rounds: scikit-learn's trees see float32. They round their input, whatever it was computed in, and compare that
            with thresholds in float64; so must these. Histogram boosting does not round.
    """
    nodes: list[onnx.NodeProto] = []
    consumed = {name for node in proto.graph.node for name in node.input}
    for number, node in enumerate(proto.graph.node):
        if not node.op_type.startswith("TreeEnsemble"):
            nodes.append(node)
            continue
        narrow, wide, raw = (f"tree_{number}_{what}" for what in ("rounded", "input", "raw"))
        if rounds:
            nodes.append(helper.make_node("Cast", [node.input[0]], [narrow], to=TensorProto.FLOAT))
            nodes.append(helper.make_node("Cast", [narrow], [wide], to=TensorProto.DOUBLE))
            node.input[0] = wide
        scores = node.output[-1]
        nodes.append(node)
        if scores in consumed:
            node.output[len(node.output) - 1] = raw
            nodes.append(helper.make_node("Cast", [raw], [scores], to=TensorProto.DOUBLE))
        for output in proto.graph.output:
            if output.name == scores:
                output.type.tensor_type.elem_type = TensorProto.DOUBLE if scores in consumed else TensorProto.FLOAT
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def _set_shapes(proto: onnx.ModelProto, model: SklearnModel) -> None:
    """One label for each row, [batch], and columns of scores: some converters give [batch, 1] for the one, [1, batch]
    or [batch] for the other."""
    wanted = {i: len(s.shape) for i, s in enumerate(model.outputs) if s.shape is not None}
    try:
        runner = OnnxRunner.open(proto, EXACT)
        feeds = random_feeds(runner.inputs, batch=2, domains=_domains(model, runner))
        found = list(runner.run(feeds).values())
    except OnnxToolError:
        return  # the comparison will say what is wrong
    for index, rank in wanted.items():
        output = proto.graph.output[index]
        if np.ndim(found[index]) == rank or output.type.WhichOneof("value") != "tensor_type":
            continue
        names = f"{output.name}_shape", f"{output.name}_shaped"
        shape = [-1] if rank == 1 else [-1, 1]
        proto.graph.initializer.append(helper.make_tensor(names[0], TensorProto.INT64, [len(shape)], shape))
        proto.graph.node.append(helper.make_node("Reshape", [output.name, names[0]], [names[1]]))
        kind = output.type.tensor_type.elem_type
        output.CopyFrom(helper.make_tensor_value_info(names[1], kind, [None] * rank))


def _domains(model: SklearnModel, runner: OnnxRunner) -> dict[str, Domain]:
    known = dict(model.feeds_hint or {})
    return {b.name: known[a.name] for a, b in zip(model.inputs, runner.inputs, strict=False) if a.name in known}


def _set_locale(proto: onnx.ModelProto, model: SklearnModel) -> None:
    """Lower-casing of text: the runtime's default locale, en_US.UTF-8, is missing on many machines, and the file then
    does not load there."""
    nodes = [n for n in proto.graph.node if n.op_type == "StringNormalizer"]
    nodes = [n for n in nodes if not any(a.name == "locale" for a in n.attribute)]
    if not nodes:
        return
    locale = next((name for name in ("C.UTF-8", "C") if _has_locale(name)), "C")
    for node in nodes:
        node.attribute.append(helper.make_attribute("locale", locale))
    if locale == "C":
        model.notes.append("text is lower-cased by ASCII rules only: this machine has no C.UTF-8 locale")


def _has_locale(name: str) -> bool:
    """Whether the runtime can make the locale here."""
    node = helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="LOWER", locale=name)
    values = [helper.make_tensor_value_info(n, TensorProto.STRING, [None]) for n in ("x", "y")]
    graph = helper.make_graph([node], "probe", values[:1], values[1:])
    try:
        create_session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    except OnnxToolError:
        return False
    return True
