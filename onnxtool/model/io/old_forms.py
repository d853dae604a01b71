"""Files of operator sets 1 to 6 as operator set 7, the oldest that ONNX Runtime is sure to run.

Caffe2, CNTK, MXNet, Chainer and Core ML's converter wrote them until 2018. Source: ONNX's docs/Changelog.md, and for
operators that were experimental, and went before version 1.5, docs/Operators.md of version 1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxtool.errors import InputError, UnsupportedError
from onnxtool.model.operators.table import STANDARD
from onnxtool.model.proto_nodes import all_nodes, inside_out
from onnxtool.model.shapes import infer, light_copy

OLDEST = 7
_FORMAT = 3  # IR version of its first files, which say their operator set
_COMPARISONS = ("Equal", "Less", "Greater")
_BROADCAST = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", *_COMPARISONS)
# Constants of Selu had other digits.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {"Selu": {"alpha": 1.6732, "gamma": 1.0507}, "Concat": {"axis": 1}}
_MOST_COPIES = 1024
# Attributes that operator set 7 does not have.
_DROPPED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_BROADCAST, ("broadcast", "axis")),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), ("output_sequence",)),
    "Gemm": ("broadcast",),
    "Dropout": ("is_test",),
    "BatchNormalization": ("is_test",),
}


def opset_of(model: onnx.ModelProto) -> int:
    """The standard operator set of a message; files of the first two formats do not say it, and are of the first."""
    said = [o.version for o in model.opset_import if o.domain in STANDARD]
    return said[0] if said else 1 if not model.opset_import and model.ir_version < _FORMAT else 0


def raise_old_forms(model: onnx.ModelProto) -> int:
    """Write a message of operator sets 1 to 6 as operator set 7, in place.

    Returns:
        Its operator set before; 0 where it is no such message and stays as it is.

    Raises:
        InputError: an attribute is not what its operator takes.
        UnsupportedError: a node computes something else in training, and is in that mode.
    """
    opset = opset_of(model)
    if not 0 < opset < OLDEST:
        return 0
    old = _OldModel(model, opset)
    imports = [o for o in model.opset_import if o.domain not in STANDARD]
    del model.opset_import[:], model.graph.value_info[:]
    model.opset_import.extend([helper.make_opsetid("", OLDEST), *imports])
    model.ir_version = _FORMAT
    try:
        for graph in inside_out(model):
            nodes = [new for node in graph.node for new in _OldNode(node, old).nodes]
            del graph.node[:]
            graph.node.extend(nodes)
        model.graph.initializer.extend(old.made)
        # Before IR version 4, a constant is an input as well.
        model.graph.input.extend(helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in old.made)
        old.align()
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise InputError(f"a node has attributes that operator set {opset} does not know: {error}") from error
    return opset


class _OldModel:
    """A message that is being rewritten.

    Attributes:
        opset: that it had.
        is_flat: there are no graphs inside of nodes.
        made: new constants.
        axes: output of a node -> the axis of its first input at which its second one stands.
    """

    def __init__(self, model: onnx.ModelProto, opset: int) -> None:
        self.opset, self._model = opset, model
        self.is_flat = len(inside_out(model)) == 1
        self.made: list[onnx.TensorProto] = []
        self.axes: dict[str, int] = {}
        self._constants = {t.name: t for t in model.graph.initializer}
        nodes = all_nodes(model.graph.node)
        taken = {name for n in nodes for name in (*n.input, *n.output)} | set(self._constants)
        self._names = (name for n in count() if (name := f"raised_{n}") not in taken)

    def name(self) -> str:
        """A new one."""
        return next(self._names)

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """A new one: its name."""
        self.made.append(numpy_helper.from_array(np.asarray(values, dtype), self.name()))
        return self.made[-1].name

    def integers(self, name: str) -> list[int] | None:
        """The numbers of a constant."""
        tensor = self._constants.get(name)
        return None if tensor is None else [int(v) for v in numpy_helper.to_array(tensor).reshape(-1)]

    def align(self) -> None:
        """Give second inputs the dims behind theirs that broadcasting from the last dim on asks for.

        Raises:
            UnsupportedError: how many dims the inputs have is not known.
        """
        ranks = self._ranks() if self.axes else {}
        for graph in inside_out(self._model) if self.axes else ():
            nodes = []
            for node in graph.node:
                axis = self.axes.get(node.output[0]) if node.output else None
                if axis is not None:
                    nodes += self._widened(node, axis, *(ranks.get(name) for name in node.input[:2]))
                nodes.append(node)
            del graph.node[:]
            graph.node.extend(nodes)

    def _widened(self, node: onnx.NodeProto, axis: int, first: int | None, second: int | None) -> list[onnx.NodeProto]:
        if first is None or second is None:
            raise UnsupportedError(f"{node.op_type} -> {node.output[0]!r}: it is not known how many dims it has.")
        behind = first - axis % max(first, 1) - second
        if not second or behind <= 0 or (node.op_type == "PRelu" and second > 1):
            return []
        widened = helper.make_node("Unsqueeze", node.input[1:2], [self.name()], axes=[*range(second, second + behind)])
        node.input[1] = widened.output[0]
        return [widened]

    def _ranks(self) -> dict[str, int]:
        """How many dims each tensor has, as far as inference knows: such a node gives the shape of its first input."""
        copy = light_copy(self._model)
        for node in all_nodes(copy.graph.node):
            if node.output and node.output[0] in self.axes:
                compares = node.op_type in _COMPARISONS
                node.op_type = "Cast" if compares else "Identity"
                del node.input[1:], node.attribute[:]
                node.attribute.extend([helper.make_attribute("to", onnx.TensorProto.BOOL)] * compares)
        found = {t.name: len(t.dims) for t in self._model.graph.initializer}
        with suppress(Exception):  # what it cannot infer is said where it is needed
            copy = infer(copy)
        for graph in inside_out(copy):
            for value in (*graph.input, *graph.value_info, *graph.output):
                if value.type.tensor_type.HasField("shape"):
                    found[value.name] = len(value.type.tensor_type.shape.dim)
        return found


class _OldNode:
    """What stands for one node.

    Attributes:
        nodes: these.
    """

    def __init__(self, node: onnx.NodeProto, old: _OldModel) -> None:
        self._node, self._old = node, old
        self._given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.nodes: list[onnx.NodeProto] = []
        form = _FORMS.get(node.op_type) if node.domain in STANDARD else None
        if node.domain in STANDARD:
            self._rename()
        if form is None:
            self.nodes = [node]
        else:
            form(self)

    def _rename(self) -> None:
        node = self._node
        for dropped in ("consumed_inputs", *_DROPPED.get(node.op_type, ())):
            self._drop(dropped)
        if node.op_type == "Pad":
            for attribute in node.attribute:
                attribute.name = {"paddings": "pads"}.get(attribute.name, attribute.name)
        for name, value in _DEFAULTS.get(node.op_type, {}).items():
            if name not in self._given and self._old.opset < 6:
                node.attribute.append(helper.make_attribute(name, value))
        if node.op_type == "PRelu" or (node.op_type in _BROADCAST and {"broadcast", "axis"} <= self._given.keys()):
            self._old.axes[node.output[0]] = int(self._given.get("axis", 1))

    def _drop(self, name: str) -> None:
        kept = [a for a in self._node.attribute if a.name != name]
        del self._node.attribute[:]
        self._node.attribute.extend(kept)

    def _add(self, kind: str, *inputs: str, last: bool = False, **attributes: Any) -> str:
        """A node; the `last` one gives what the old node gave."""
        output = self._node.output[0] if last else self._old.name()
        self.nodes.append(helper.make_node(kind, inputs, [output], self._node.name if last else "", **attributes))
        return output

    def _number(self, name: str, default: float) -> str:
        return self._old.constant(self._given.get(name, default))

    def _set(self, name: str, value: Any, *old: str) -> None:
        for each in (name, *old):
            self._drop(each)
        self._node.attribute.append(helper.make_attribute(name, value))

    def constant(self) -> None:
        """Of floats alone, by the letter; PyTorch wrote shapes all the same."""
        value = self._given.get("value")
        if isinstance(value, onnx.TensorProto) and self._old.is_flat:
            value.name = self._node.output[0]
            self._old.made.append(value)
        else:
            self.nodes.append(self._node)

    def reshape(self) -> None:
        """The shape was an attribute."""
        if "shape" in self._given:
            self._drop("shape")
            self._node.input.append(self._old.constant(self._given["shape"], np.int64))
        self.nodes.append(self._node)

    def cast(self) -> None:
        """The type was its name."""
        if isinstance(to := self._given.get("to"), bytes):
            self._set("to", onnx.TensorProto.DataType.Value(to.decode(errors="replace").upper()))
        self.nodes.append(self._node)

    def split(self) -> None:
        """The lengths could be an input."""
        lengths = self._old.integers(self._node.input[1]) if len(self._node.input) > 1 else None
        if lengths is not None:
            del self._node.input[1:]
            self._set("split", lengths)
        self.nodes.append(self._node)

    def upsample(self) -> None:
        """Of pictures alone, with two factors."""
        if "height_scale" in self._given:
            scales = [1.0, 1.0, float(self._given["height_scale"]), float(self._given["width_scale"])]
            self._set("scales", scales, "height_scale", "width_scale")
        if self._given.get("mode") == b"bilinear":
            self._set("mode", "linear")
        self.nodes.append(self._node)

    def pool(self) -> None:
        """The power of a norm was a float."""
        if isinstance(power := self._given.get("p"), float):
            self._set("p", int(power))
        self.nodes.append(self._node)

    def tile(self) -> None:
        """Along one axis: copies are laid one behind the other."""
        tiles, axis = (self._old.integers(name) for name in (*self._node.input[1:3], "", "")[:2])
        if self._old.opset >= 6 or not tiles or not axis or not 0 < tiles[0] <= _MOST_COPIES:
            self.nodes.append(self._node)
        else:
            self._add("Concat", *[self._node.input[0]] * tiles[0], last=True, axis=axis[0])

    def inference(self) -> None:
        """What it is outside training, where the node says so; its other outputs are of training."""
        if not self._given.get("is_test"):
            raise UnsupportedError(
                f"{self._node.op_type} {self._node.name or self._node.output[0]!r} is in training mode (is_test=0): "
                "export the model for inference."
            )
        if self._node.op_type == "BatchNormalization":
            del self._node.output[1:]
        self.nodes.append(self._node)

    def affine(self) -> None:
        """It is alpha x + beta."""
        product = self._add("Mul", self._node.input[0], self._number("alpha", 1.0))
        self._add("Add", product, self._number("beta", 0.0), last=True)

    def scale(self) -> None:
        """It is scale x."""
        self._add("Mul", self._node.input[0], self._number("scale", 1.0), last=True)

    def scale_image(self) -> None:
        """It is scale x + the bias of each channel."""
        product = self._add("Mul", self._node.input[0], self._number("scale", 1.0))
        bias = np.asarray(self._given.get("bias", [0.0]), np.float32).reshape(-1, 1, 1)
        self._add("Add", product, self._old.constant(bias), last=True)

    def scaled(self, kind: str) -> None:
        """It is alpha f(beta x)."""
        inner = self._add("Mul", self._node.input[0], self._number("beta", 1.0))
        self._add("Mul", self._add(kind, inner), self._number("alpha", 1.0), last=True)

    def crop(self) -> None:
        """Borders of a picture, left, top, right and bottom; of a given height and width from the first two on."""
        left, top, right, bottom = (int(v) for v in self._given["border"])
        if "scale" in self._given:
            high, wide = (int(v) for v in self._given["scale"])
            ends = [top + high, left + wide]
        else:
            ends = [-bottom or np.iinfo(np.int64).max, -right or np.iinfo(np.int64).max]
        self._add("Slice", self._node.input[0], last=True, axes=[2, 3], starts=[top, left], ends=ends)

    def above(self) -> None:
        """It is x where that is above alpha, else 0."""
        x, alpha = self._node.input[0], float(self._given.get("alpha", 1.0))
        is_above = self._add("Greater", x, self._old.constant(alpha))
        one = self._add("Cast", is_above, to=onnx.TensorProto.FLOAT)
        self._add("Mul", self._add("Clip", x, min=alpha), one, last=True)  # no infinity times zero


_FORMS: Mapping[str, Callable[[_OldNode], None]] = {
    "Constant": _OldNode.constant,
    "Reshape": _OldNode.reshape,
    "Cast": _OldNode.cast,
    "Split": _OldNode.split,
    "Upsample": _OldNode.upsample,
    "LpPool": _OldNode.pool,
    "GlobalLpPool": _OldNode.pool,
    "Tile": _OldNode.tile,
    "Dropout": _OldNode.inference,
    "BatchNormalization": _OldNode.inference,
    "Affine": _OldNode.affine,
    "Scale": _OldNode.scale,
    "ImageScaler": _OldNode.scale_image,
    "ParametricSoftplus": lambda old: old.scaled("Softplus"),
    "ScaledTanh": lambda old: old.scaled("Tanh"),
    "Crop": _OldNode.crop,
    "ThresholdedRelu": _OldNode.above,
}
