"""What inputs and outputs are made of: removing inputs, element types, order of dims."""

# ruff: noqa: ARG002  (every operation has the same methods)

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.graph_builder import find_input, free_name, split_pair, unknown
from onnxtool.editing.operation import Operation
from onnxtool.editing.proofs import converted_outputs, same_outputs
from onnxtool.errors import InputError, UnsupportedError, UsageError
from onnxtool.model.ir.editing import new_initializer, put_first
from onnxtool.model.ir.queries import value_spec
from onnxtool.model.spec import TensorSpec, dtype_name, parse_dtype
from onnxtool.report.edit import Proof
from onnxtool.runtime.data.archive import read_npy
from onnxtool.runtime.feeds import Feeds, Outputs

_MOST_BYTES = 1 << 28  # of an input that becomes a constant


class RemoveInput(Operation):
    """Remove an input that nothing reads, or give it a value for good (NAME=NUMBER or NAME=FILE.npy)."""

    name: ClassVar[str] = "remove-input"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.input, self._given, self._value = text.partition("=")
        self._array: np.ndarray | None = None

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        value = find_input(model, self.input, self.name)
        default = value.name in model.graph.initializers
        if not self._given and not default and (value.uses() or value.is_graph_output()):
            raise UsageError(
                f"--{self.name} {self.input}: {len(value.uses())} nodes read it; give it a value: {self.input}=NUMBER "
                f"or {self.input}=FILE.npy."
            )
        kept = [v for v in model.graph.inputs if v is not value]
        model.graph.inputs[:] = kept
        self.done = f"input {self.input} is gone"
        if self._given:
            self._array = self._read(value_spec(value))
            if default:
                model.graph.initializers.pop(self.input)
            value.const_value = ir.tensor(self._array, name=self.input)
            value.shape = ir.Shape(self._array.shape)
            model.graph.register_initializer(value)
            self.done = f"input {self.input} is a constant"
        elif not default and self.input in model.graph.initializers:
            model.graph.initializers.pop(self.input)
        return model

    def _read(self, spec: TensorSpec) -> np.ndarray:
        if isinstance(spec.dtype, str):
            raise UnsupportedError(f"{self.input!r} is a {spec.dtype}; only numbers can become constants.")
        if self._value.endswith(".npy"):
            array = read_numbers(Path(self._value))
        else:
            if spec.shape is None or not all(isinstance(d, int) for d in spec.shape):
                raise UsageError(
                    f"--{self.name}: {spec.info()} has no fixed shape; fix it with --set-shape first, or give a .npy."
                )
            if float(np.prod([float(d) for d in spec.shape if isinstance(d, int)])) * 16 > _MOST_BYTES:
                raise UsageError(f"--{self.name}: {spec.info()} is too large for a constant.")
            try:
                number = float(self._value) if spec.dtype.kind not in "iub" else int(self._value)
                array = np.full([d for d in spec.shape if isinstance(d, int)], number).astype(spec.dtype)
            except (ValueError, OverflowError) as error:
                raise UsageError(f"--{self.name} {self.text}: {self._value!r} is not a {spec.dtype}.") from error
        if not spec.has_shape(array.shape):
            raise UsageError(f"--{self.name}: {self._value} has shape {list(array.shape)}; the input is {spec.info()}.")
        if array.dtype != spec.dtype and not np.can_cast(array.dtype, spec.dtype, "same_kind"):
            raise UsageError(f"--{self.name}: {self._value} is {array.dtype}; the input is {spec.info()}.")
        return np.ascontiguousarray(array, spec.dtype).reshape(array.shape)

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        def without(feeds: Feeds) -> Feeds:
            return {n: a for n, a in feeds.items() if n != self.input}

        if self._array is None:
            return same_outputs(before, after, context, feeds=without)
        array = self._array
        return converted_outputs(
            before,
            after,
            context,
            "the outputs are equal to the last bit to those for this value",
            forward=without,
            back=lambda feeds: {**feeds, self.input: array},
            fixed={self.input: array.shape},
        )


def read_numbers(path: Path) -> np.ndarray:
    """An array of numbers; never a pickle.

    Raises:
        InputError: missing, damaged, or not numbers.
    """
    array = read_npy(path)
    if array.dtype.kind not in "biufc":
        raise InputError(f"{path}: holds no array of numbers.")
    return array


class IoDtype(Operation):
    """Give an input or output another element type; a Cast converts."""

    name: ClassVar[str] = "io-dtype"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.tensor, kind = split_pair(self.name, text, ":", "NAME:DTYPE")
        try:
            found = parse_dtype(kind)
        except UsageError as error:
            raise UsageError(f"--{self.name} {text}: {error}") from error
        if isinstance(found, str) or found.kind in "cb":
            raise UsageError(f"--{self.name} {text}: a Cast converts between numbers only.")
        self.dtype = found
        self._input = True
        self._old: np.dtype = found

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        value, self._input = find_end(model, self.tensor, self.name)
        old = value_spec(value).dtype
        if isinstance(old, str) or old.kind == "c":
            raise UnsupportedError(f"{self.tensor!r} is a {dtype_name(old)}; a Cast converts between numbers only.")
        if old == self.dtype:
            raise UsageError(f"--{self.name}: {self.tensor!r} is {old} already.")
        self._old = old
        self.done = f"{self.tensor}: {dtype_name(old)} is now {dtype_name(self.dtype)}"
        target = ir.DataType.from_numpy(self.dtype if not self._input else old)
        if self._input:
            new = replace_input(model, value, ir.TensorType(ir.DataType.from_numpy(self.dtype)), value.shape)
            node = ir.node("Cast", [new], {"to": int(target)}, name=free_name(model, f"{self.tensor}_cast"))
            feed_readers(model, value, node)
            return model
        inner = replace_output(model, value, ir.TensorType(target), value.shape)
        source = inner[0]
        if self._is_cut(old):
            source = self._clipped(model, source, old)
        node = ir.node("Cast", [source], {"to": int(target)}, name=free_name(model, f"{self.tensor}_cast"))
        make_output(model, node, inner[1])
        return model

    def _is_cut(self, old: np.dtype) -> bool:
        """Whether numbers of the old type may lie beyond the range of an integer type."""
        return self.dtype.kind in "iu" and old.kind in "iuf" and not np.can_cast(old, self.dtype)

    def _clipped(self, model: ir.Model, source: ir.Value, old: np.dtype) -> ir.Value:
        low, high = cast_bounds(self.dtype, old)
        bounds = [
            new_initializer(model.graph, f"{self.tensor}_{n}", np.array(v, old))
            for n, v in (("low", low), ("high", high))
        ]
        if model.opset_imports.get("", 0) < 12:
            raise UnsupportedError("cutting numbers to an integer's range takes opset 12; raise it first (--opset 12).")
        node = ir.node("Clip", [source, *bounds], name=free_name(model, f"{self.tensor}_clip"))
        node.outputs[0].name = free_name(model, f"{self.tensor}_clipped")
        node.outputs[0].type = source.type
        model.graph.append(node)
        return node.outputs[0]

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        if self._input:
            generator = np.random.default_rng(context.seed)
            old, new = self._old, self.dtype

            def forward(feeds: Feeds) -> Feeds:
                array = feeds[self.tensor]
                if new.kind in "iu" and array.dtype.kind == "f":
                    high = min(256, np.iinfo(new).max + 1)
                    return {**feeds, self.tensor: generator.integers(0, high, array.shape).astype(new)}
                return {**feeds, self.tensor: array.astype(new)}

            def back(feeds: Feeds) -> Feeds:
                return {**feeds, self.tensor: feeds[self.tensor].astype(old)}

            claim = "the outputs are equal to the last bit on the converted inputs"
            return converted_outputs(before, after, context, claim, forward=forward, back=back)

        def expect(_: Feeds, outputs: Outputs) -> Outputs:
            array = outputs[self.tensor]
            if self._is_cut(array.dtype):
                array = np.clip(array, *cast_bounds(self.dtype, array.dtype))
            return {**outputs, self.tensor: array.astype(self.dtype)}

        claim = "the output is equal to the converted one, the others to the last bit"
        return same_outputs(before, after, context, claim, expect=expect)


def cast_bounds(kind: np.dtype, source: np.dtype) -> tuple[float, float]:
    """The largest range of an integer type that another type can hold without rounding beyond it."""
    info = np.iinfo(kind)
    if source.kind in "iu":
        return max(info.min, np.iinfo(source).min), min(info.max, np.iinfo(source).max)
    high = np.array(info.max).astype(source)
    if float(high) > info.max:
        high = np.nextafter(high, np.array(0, source))
    return float(info.min), float(high)


class Layout(Operation):
    """Take an input, or give an output, in another order of dims: nhwc where the model has nchw, and back."""

    name: ClassVar[str] = "layout"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.tensor, self.layout = split_pair(self.name, text, ":", "NAME:nhwc or NAME:nchw")
        if self.layout.lower() not in ("nhwc", "nchw"):
            raise UsageError(f"--{self.name} {text}: write NAME:nhwc or NAME:nchw.")
        self.layout = self.layout.lower()
        self._input = True
        self._rank = 4

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        value, self._input = find_end(model, self.tensor, self.name)
        spec = value_spec(value)
        if spec.shape is None or len(spec.shape) < 3 or isinstance(spec.dtype, str):
            raise UnsupportedError(f"{spec.info()}: a layout belongs to a tensor of 3 dims or more.")
        self._rank = len(spec.shape)
        outside, inside = self._permutations()
        shape = ir.Shape([spec.shape[i] for i in outside])
        self.done = f"{self.tensor} is {self.layout} now"
        if self._input:
            new = replace_input(model, value, value.type, shape)
            node = ir.node("Transpose", [new], {"perm": inside}, name=free_name(model, f"{self.tensor}_transpose"))
            feed_readers(model, value, node)
        else:
            source, fresh = replace_output(model, value, value.type, shape)
            node = ir.node("Transpose", [source], {"perm": outside}, name=free_name(model, f"{self.tensor}_transpose"))
            make_output(model, node, fresh)
        return model

    def _permutations(self) -> tuple[list[int], list[int]]:
        """Dims of the new layout by place in the model's; and the other way round."""
        last = [0, *range(2, self._rank), 1]
        first = [0, self._rank - 1, *range(1, self._rank - 1)]
        return (last, first) if self.layout == "nhwc" else (first, last)

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        outside, _ = self._permutations()

        def turned(arrays: Outputs) -> Outputs:
            return {
                n: np.ascontiguousarray(np.transpose(a, outside)) if n == self.tensor else a for n, a in arrays.items()
            }

        if self._input:
            return same_outputs(before, after, context, feeds=turned)
        return same_outputs(before, after, context, expect=lambda _, outputs: turned(outputs))


def find_end(model: ir.Model, name: str, option: str) -> tuple[ir.Value, bool]:
    """An input or output by name, and whether it is an input.

    Raises:
        UsageError: neither.
    """
    for value in model.graph.inputs:
        if value.name == name:
            return value, True
    for value in model.graph.outputs:
        if value.name == name:
            return value, False
    known = [v.name or "" for v in (*model.graph.inputs, *model.graph.outputs)]
    raise unknown(option, "input or output", name, known)


def replace_input(model: ir.Model, old: ir.Value, kind: ir.TypeProtocol | None, shape: ir.Shape | None) -> ir.Value:
    """A new input in the place and with the name of an old one, which gets another name and still has its readers."""
    name = old.name or ""
    if name in model.graph.initializers:
        raise UnsupportedError(f"the input {name!r} has a default; remove it first (--remove-input {name}).")
    if old.is_graph_output():
        raise UnsupportedError(f"the input {name!r} is an output as it is, and has one name for both.")
    old.name = free_name(model, f"{name}_inner")
    new = _described(name, kind, shape, old)
    inputs = [new if v is old else v for v in model.graph.inputs]
    model.graph.inputs[:] = inputs
    return new


def feed_readers(model: ir.Model, old: ir.Value, node: ir.Node) -> None:
    """Put a node at the start of the graph, and let it make what the old input was."""
    made = node.outputs[0]
    made.name, made.type, made.shape = old.name, old.type, old.shape
    old.replace_all_uses_with(made, replace_graph_outputs=True)
    put_first(model.graph, node)


def replace_output(
    model: ir.Model, old: ir.Value, kind: ir.TypeProtocol | None, shape: ir.Shape | None
) -> tuple[ir.Value, ir.Value]:
    """What made an output, under another name, and a description of the output that takes its place."""
    name = old.name or ""
    if old.is_graph_input() or old.is_initializer():
        raise UnsupportedError(f"the output {name!r} is an input or a weight as it is.")
    old.name = free_name(model, f"{name}_inner")
    return old, _described(name, kind, shape, old)


def _described(name: str, kind: ir.TypeProtocol | None, shape: ir.Shape | None, like: ir.Value) -> ir.Value:
    """A value with what the file says of another one."""
    return ir.Value(
        name=name, type=kind, shape=shape, doc_string=like.doc_string, metadata_props=dict(like.metadata_props)
    )


def make_output(model: ir.Model, node: ir.Node, described: ir.Value) -> None:
    """Put a node at the end of the graph; its result takes the place of the output that it reads, at last."""
    made = node.outputs[0]
    made.name, made.type, made.shape = described.name, described.type, described.shape
    made.doc_string = described.doc_string
    made.metadata_props.update(described.metadata_props)
    model.graph.append(node)
    sources = {id(v) for v in _upstream(node)}
    for index, output in enumerate(model.graph.outputs):
        if id(output) in sources:
            model.graph.outputs[index] = made


def _upstream(node: ir.Node) -> list[ir.Value]:
    """The inputs of a node, and those of a Clip before it."""
    found = [v for v in node.inputs if v is not None]
    maker = found[0].producer() if found else None
    return found + ([v for v in maker.inputs if v is not None] if maker is not None and maker.op_type == "Clip" else [])
