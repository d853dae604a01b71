"""What paddle2onnx gets wrong: in the program that it reads, or in the graph that it writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.conversion.patches import Patch
from onnxtool.model.ir.editing import add_tensor, append, as_tensor, new_initializer

Program = dict[str, Any]  # a program's JSON
_LEAST_BIAS = 1e-5


@dataclass(frozen=True)
class ProgramFacts:
    """What the program has and its graph does not.

    Attributes:
        biases: the name of a value in the graph, and what is to be added to it.
        are_scalars: of each output, whether it has no dims.
    """

    biases: Mapping[str, float]
    are_scalars: Sequence[bool]


def _narrow_attributes(program: Program) -> None:
    for operator in _operators(program):
        if operator["#"].startswith("1.full"):  # whose values are read as doubles
            continue
        for attribute in operator.get("A", ()):
            if not isinstance(attribute, dict):
                continue
            value = attribute["AT"]
            for single in (value, *(value["D"] if isinstance(value.get("D"), list) else ())):
                if isinstance(single, dict) and single.get("#") == "0.a_f64":
                    single["#"] = "0.a_f32"


def _plain_same(program: Program) -> None:
    for operator in _operators(program):
        options = {a["N"]: a["AT"] for a in operator.get("A", ()) if isinstance(a, dict)}
        if options.get("padding_algorithm", {}).get("D") == "SAME":
            for dilation in options.get("dilations", {}).get("D", ()):
                dilation["D"] = 1


def lost_biases(program: Program) -> dict[str, float]:
    """`ProgramFacts.biases` of a program.

    Source: paddle2onnx's mapper of `scale` takes a bias up to 1e-5 for none; it numbers the operators of a kind.
    """
    found: dict[str, float] = {}
    numbers: Counter[str] = Counter()
    for operator in _operators(program):
        kind = operator["#"].removeprefix("1.")
        if kind == "scale":
            options = {a["N"]: a["AT"]["D"] for a in operator["A"]}
            bias = float(options.get("bias", 0.0))
            if 0 < abs(bias) <= _LEAST_BIAS and options.get("bias_after_scale", True):
                found[f"p2o.pd_op.scale.{numbers[kind]}.0"] = bias
        numbers[kind] += 1
    return found


def _operators(program: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for region in program["regions"] if "regions" in program else program["program"]["regions"]:
        for block in region["blocks"]:
            for operator in block["ops"]:
                yield operator
                if operator.get("regions"):
                    yield from _operators(operator)


def _add_biases(model: ir.Model, program: ProgramFacts) -> None:
    for node in list(model.graph):
        value = node.outputs[0]
        number = program.biases.get(value.name or "")
        if number is None or value.dtype not in (None, ir.DataType.FLOAT):
            continue
        bias = add_tensor(model.graph, as_tensor(np.array(number, np.float32), f"{value.name}_bias"))
        total = ir.node("Add", [value, bias])
        value.replace_all_uses_with(total.outputs[0])
        total.replace_input_with(0, value)
        model.graph.insert_after(node, total)


def _clip_log_softmax(model: ir.Model, _: ProgramFacts) -> None:
    for node in list(model.graph):
        if node.op_type != "LogSoftmax" or node.inputs[0] is None:
            continue
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
        name = node.outputs[0].name
        axes = add_tensor(model.graph, as_tensor(np.array([axis], np.int64), f"{name}_axis"))
        least = add_tensor(model.graph, as_tensor(np.array(-64, np.float32), f"{name}_least"))
        highest = ir.node("ReduceMax", [node.inputs[0], axes], {"keepdims": 1})
        below = ir.node("Sub", [node.inputs[0], highest.outputs[0]])
        clipped = ir.node("Max", [below.outputs[0], least])
        node.replace_input_with(0, clipped.outputs[0])
        model.graph.insert_before(node, [highest, below, clipped])


def _name_grid_modes(model: ir.Model, _: ProgramFacts) -> None:
    renamed = {"bilinear": "linear", "bicubic": "cubic"}
    for node in model.graph.all_nodes():
        if node.op_type == "GridSample" and (mode := node.attributes.get("mode")) is not None:
            node.attributes["mode"] = ir.AttrString("mode", renamed.get(mode.as_string(), mode.as_string()))


def _drop_rows(model: ir.Model, program: ProgramFacts) -> None:
    outputs = model.graph.outputs
    for i in (i for i, is_scalar in enumerate(program.are_scalars) if is_scalar):
        value, name = outputs[i], outputs[i].name or ""
        value.name = f"{name}_row"
        shape = new_initializer(model.graph, f"{name}_shape", np.array([], np.int64))
        number = append(model.graph, "Reshape", [value, shape], name)
        number.type, number.shape = value.type, ir.Shape(())
        outputs[i] = number


PROGRAM_PATCHES: list[Patch[[Program], None]] = [
    Patch(
        "paddle2onnx",
        "",
        "attributes that Paddle 3.1 and later write in double precision are read as 0: the slope of a LeakyReLU, the "
        "epsilon of a GroupNorm, the scale of an interpolation",
        _narrow_attributes,
    ),
    Patch(
        "paddle2onnx",
        "",
        "a convolution with dilations and padding SAME is refused, though Paddle takes its dilations for 1",
        _plain_same,
    ),
]
GRAPH_PATCHES: list[Patch[[ir.Model, ProgramFacts], None]] = [
    Patch("paddle2onnx", "", "a scale with a bias up to 1e-5 loses it: the epsilon of a normalization", _add_biases),
    Patch("paddle2onnx", "", "Paddle's logarithm of a softmax ends at -64 below the largest", _clip_log_softmax),
    Patch("paddle2onnx", "", "the modes of GridSample have the names of opset 16 at opset 20", _name_grid_modes),
    Patch("paddle2onnx", "", "an output without dims (a reduction over all axes) is a row of one", _drop_rows),
]
