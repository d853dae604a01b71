"""Weights: taken out of the file, put back, replaced, or stored in a file of their own."""

# ruff: noqa: ARG002  (every operation has the same methods)

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.graph_builder import split_pair, unknown
from onnxtool.editing.operation import Operation
from onnxtool.editing.operations.inputs import read_numbers
from onnxtool.editing.proofs import probes_of, same_graph, same_outputs
from onnxtool.editing.safetensors import STORED, TensorEntry, open_file, write_file
from onnxtool.equality.rule.difference import Difference
from onnxtool.errors import InputError, UnsupportedError, UsageError, VerdictError
from onnxtool.model import io
from onnxtool.model.byte_sizes import parse_bytes
from onnxtool.model.ir.editing import put_first
from onnxtool.report.edit import Proof
from onnxtool.runtime.feeds import flatten

STRIPPED_KEY = "onnxtool.stripped"
_LEAST = 1024  # bytes; smaller weights are shapes and scales, which optimizers want to see


class StripWeights(Operation):
    """Write the large weights to a .safetensors file and leave zeros of the same shape, which take no space."""

    name: ClassVar[str] = "strip-weights"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        if not text.endswith(".safetensors"):
            raise UsageError(f"--{self.name} {text}: name the file for the weights, WEIGHTS.safetensors.")
        self._entries: list[TensorEntry] = []

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        if STRIPPED_KEY in model.metadata_props:
            raise UsageError(f"--{self.name}: this model's weights are stripped already.")
        taken = [
            v
            for v in model.graph.initializers.values()
            if v.const_value is not None
            and v.const_value.nbytes >= _LEAST
            and v.const_value.dtype.name in STORED
            and not v.is_graph_input()
            and not v.is_graph_output()
        ]
        if not taken:
            raise UsageError(f"--{self.name}: the model has no weight of {_LEAST} bytes or more.")
        if model.opset_imports.get("", 0) < 9:
            raise UnsupportedError("this takes opset 9 or newer; raise it first (--opset 13).")
        sums = {}
        for value in taken:
            assert value.const_value is not None and value.name is not None
            entry = TensorEntry.of(value.name, value.const_value)
            self._entries.append(entry)
            sums[value.name] = entry.digest()
            _empty(model, value)
        model.metadata_props[STRIPPED_KEY] = json.dumps(sums, sort_keys=True)
        entries = list(self._entries)
        context.files.append((Path(self.text), lambda path: write_file(path, entries)))
        size = sum(e.size for e in entries)
        self.done = f"{len(taken)} weights of {size} bytes go to {self.text}"
        return model

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        whole = after.clone()
        tensors = {e.name: e.tensor for e in self._entries}
        _fill(whole, tensors)
        return same_outputs(before, whole, context, "with the weights put back, the outputs are equal to the last bit")


class Refit(Operation):
    """Put the weights of a .safetensors file back into a model that was stripped."""

    name: ClassVar[str] = "refit"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._sums: dict[str, str] = {}
        self._changed: list[str] = []

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        try:
            listed = json.loads(model.metadata_props.get(STRIPPED_KEY, "null"))
        except (ValueError, RecursionError):
            listed = None
        if not isinstance(listed, dict) or not all(isinstance(v, str) for v in listed.values()):
            raise UsageError(f"--{self.name}: this model is not stripped (see --strip-weights).")
        self._sums = listed
        found = open_file(Path(self.text))
        missing = [n for n in listed if n not in found]
        if missing:
            raise InputError(f"{self.text}: has no weight {missing[0]!r}, which the model needs.")
        fills = _stripped_nodes(model, set(listed))
        for name, (shape, dtype) in fills.items():
            entry = found[name]
            if entry.shape != shape or entry.dtype != dtype:
                told = f"{dtype.name.lower()}{list(shape)}"
                raise InputError(f"{self.text}: {name!r} is {entry.dtype.name.lower()}{list(entry.shape)}, not {told}.")
        self._changed = [n for n in fills if found[n].digest() != listed[n]]
        _fill(model, {n: found[n].tensor for n in fills})
        del model.metadata_props[STRIPPED_KEY]
        self.done = f"{len(fills)} weights are back"
        return model

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        probes = probes_of(after, context)
        if self._changed:
            context.warnings.append(f"{len(self._changed)} weights are not those that were stripped.")
            claim = f"the model runs; {len(self._changed)} weights differ from those that were stripped"
            return Proof(claim, len(probes), exact=False, unproven="the outputs: these are other weights")
        return Proof("every weight has the bytes (by SHA-256) that were stripped, and the model runs", len(probes))


class ReplaceWeight(Operation):
    """Give a weight other numbers, of the same shape and type, from a .npy file."""

    name: ClassVar[str] = "replace-weight"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        name, found, file = text.rpartition("=")
        self.weight, self.file = split_pair(self.name, f"{name}={file}" if found else text, form=self.value)

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        value = model.graph.initializers.get(self.weight)
        if value is None or value.const_value is None:
            raise unknown(self.name, "weight", self.weight, model.graph.initializers)
        old = value.const_value
        array = read_numbers(Path(self.file))
        if array.shape != tuple(old.shape):
            raise UsageError(
                f"--{self.name}: {self.file} has shape {list(array.shape)}; {self.weight!r} has {list(old.shape)}."
            )
        wanted = old.dtype.numpy()
        floats = array.dtype.kind == "f" and np.dtype(wanted).kind in "fV"
        if array.dtype != wanted and not floats:
            raise UsageError(
                f"--{self.name}: {self.file} is {array.dtype}; {self.weight!r} is {old.dtype.name.lower()}."
            )
        with np.errstate(over="ignore"):
            fresh = np.ascontiguousarray(array, wanted).reshape(array.shape)
        if np.isfinite(array).all() and not np.isfinite(fresh.astype(np.float64)).all():
            raise UsageError(f"--{self.name}: {self.file} has numbers that are infinite in {old.dtype.name.lower()}.")
        if array.dtype != wanted:
            off = np.abs(fresh.astype(np.float64) - array).max(initial=0.0)
            context.warnings.append(
                f"{self.file} is {array.dtype}; they are rounded to {old.dtype.name.lower()}, by up to {off:.3g}."
            )
        value.const_value = ir.tensor(fresh, name=self.weight)
        self.done = f"{self.weight} has the numbers of {self.file}"
        return model

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        for name, value in after.graph.initializers.items():
            if name != self.weight and before.graph.initializers[name].const_value is not value.const_value:
                raise VerdictError(f"the proof fails: the weight {name!r} changed too.")
        # With the old numbers put back it is the old model, so nothing else has changed.
        back = after.clone()
        back.graph.initializers[self.weight].const_value = before.graph.initializers[self.weight].const_value
        same_outputs(before, back, context)
        probes = probes_of(before, context)
        cases = context.runner(after)
        largest = 0.0
        for probe in probes:
            given = flatten(cases.run(probe.feeds))
            for name, array in flatten(probe.outputs).items():
                entry = Difference(name, context.tolerance)
                entry.add(array, given[name])
                largest = max(largest, entry.max_abs)
        context.warnings.append(f"the outputs change, by up to {largest:.3g} on random inputs.")
        return Proof(f"only {self.weight!r} differs", len(probes), largest == 0.0, largest)


def _empty(model: ir.Model, value: ir.Value) -> None:
    """Zeros in place of a weight: a ConstantOfShape, whose shape is all that is stored."""
    tensor = value.const_value
    assert tensor is not None and value.name is not None
    name = value.name
    sizes = ir.tensor(np.array(tensor.shape, np.int64), name=f"{name}_shape")
    shape = ir.Value(
        name=f"{name}_shape",
        const_value=sizes,
        type=ir.TensorType(ir.DataType.INT64),
        shape=ir.Shape([len(tensor.shape)]),
    )
    while shape.name in model.graph.initializers:
        shape.name = f"{shape.name}_"
    zero = ir.tensor(np.zeros(1, tensor.dtype.numpy()))
    node = ir.Node("", "ConstantOfShape", [shape], [ir.AttrTensor("value", zero)], name=f"{name}_stripped")
    made = node.outputs[0]
    ir.convenience.replace_all_uses_with(value, made)
    del model.graph.initializers[name]
    made.name, made.type, made.shape = name, ir.TensorType(tensor.dtype), _shape(tensor)
    model.graph.register_initializer(shape)
    put_first(model.graph, node)


def _stripped_nodes(model: ir.Model, names: set[str]) -> dict[str, tuple[tuple[int, ...], ir.DataType]]:
    """Stripped weight -> its shape and type.

    Raises:
        InputError: the file says of a weight that it is stripped, and it is not there.
    """
    found = {}
    for node in model.graph:
        name = node.outputs[0].name if node.outputs else None
        if name not in names or node.op_type != "ConstantOfShape" or node.domain not in ("", "ai.onnx"):
            continue
        shape = node.inputs[0].const_value if node.inputs and node.inputs[0] is not None else None
        fill = node.attributes.get("value")
        if shape is not None and fill is not None and fill.type == ir.AttributeType.TENSOR:
            found[name] = (tuple(int(d) for d in shape.numpy().reshape(-1)), fill.as_tensor().dtype)
    lost = names - set(found)
    if lost:
        raise InputError(f"the model says that {min(lost)!r} is stripped, but has no such tensor any more.")
    return found


def _fill(model: ir.Model, tensors: dict[str, ir.TensorProtocol]) -> None:
    for node in list(model.graph):
        name = node.outputs[0].name if node.outputs else None
        if name not in tensors or node.op_type != "ConstantOfShape":
            continue
        tensor = tensors[name]
        old, shape = node.outputs[0], node.inputs[0]
        value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=_shape(tensor))
        ir.convenience.replace_all_uses_with(old, value)
        model.graph.remove(node, safe=True)
        old.name = f"{name}_zeros"
        model.graph.register_initializer(value)
        if shape is not None and not shape.uses() and shape.name in model.graph.initializers:
            model.graph.initializers.pop(shape.name or "")


def _shape(tensor: ir.TensorProtocol) -> ir.Shape:
    return ir.Shape([d for d in tensor.shape if isinstance(d, int)])


_LEAST_CHUNK = 1000


class ExternalData(Operation):
    """Write the weights beside the model (always), in it (never), or beside it from some size on."""

    name: ClassVar[str] = "external-data"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._limit = None if text in ("always", "never") else parse_bytes(text, f"--{self.name} {text}")

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        size = io.weight_bytes(model)
        outside = self.text == "always" or (self._limit is not None and size > self._limit)
        if not outside and size > io.INLINE_LIMIT:
            raise UnsupportedError(f"the weights take {size} bytes; a model file holds less than 2 GB.")
        context.external, context.chunk = outside, None
        self.done = f"weights {'beside' if outside else 'in'} the model file"
        return model

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        return same_graph(before, after)


class Chunk(Operation):
    """Write the weights beside the model, in files of up to this size."""

    name: ClassVar[str] = "chunk"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._limit = parse_bytes(text, f"--{self.name} {text}")
        if self._limit < _LEAST_CHUNK:
            raise UsageError(f"--{self.name} {text}: a file holds at least {_LEAST_CHUNK} bytes.")

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        context.external, context.chunk = True, self._limit
        self.done = f"weights beside the model file, in files of up to {self._limit} bytes"
        return model

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        return same_graph(before, after)
