"""Two models one after the other."""

# ruff: noqa: ARG002  (every operation has the same methods)

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.graph_builder import split_pair, taken_names, unknown
from onnxtool.editing.operation import Operation
from onnxtool.editing.proofs import compare, probes_of
from onnxtool.errors import InputError, UnsupportedError, UsageError, VerdictError
from onnxtool.model import io
from onnxtool.model.ir.queries import value_spec, walk
from onnxtool.model.spec import dtype_name
from onnxtool.optimization.opset import convert_opset
from onnxtool.report.edit import Proof
from onnxtool.runtime.feeds import flatten


class _Join(Operation):
    """What append and prepend share."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        if not text:
            raise UsageError(f"--{self.name}: name the other model.")
        self.path = Path(text)
        self.connections: list[tuple[str, str]] = []
        self._renamed: dict[str, str] = {}
        self._links: list[tuple[str, str]] = []
        self._other: ir.Model | None = None

    def modify(self, name: str, text: str) -> bool:
        if name != "connect":
            return False
        self.connections.append(split_pair("connect", text, form="OUTPUT=INPUT"))
        return True

    def _joined(self, first: ir.Model, second: ir.Model) -> ir.Model:
        """Put the second model's graph behind the first one's, in place; names that clash get a prefix."""
        first, second = _same_opset(first, second)
        _share_folder(first, second)
        self._links = self._matched(first, second)
        self._renamed = _rename_clashes(first, second, self.path.stem)
        outputs = {v.name: v for v in first.graph.outputs}
        inputs = {v.name: v for v in second.graph.inputs}
        consumed = []
        for out, given in self._links:
            target = inputs[self._renamed.get(given, given)]
            _verify_fit(outputs[out], target, given)
            _through_identity(second, target)
            ir.convenience.replace_all_uses_with(target, outputs[out])
            consumed.append(target)
        rest = [v for v in second.graph.inputs if v not in consumed]
        for value in rest:
            _through_identity(second, value)
        results = list(second.graph.outputs)
        weights = list(second.graph.initializers.values())
        nodes = list(second.graph)
        second.graph.outputs.clear()
        second.graph.inputs.clear()
        second.graph.initializers.clear()
        second.graph.remove(nodes)
        first.graph.inputs.extend(rest)
        for value in weights:
            if value not in consumed:
                first.graph.register_initializer(value)
        first.graph.extend(nodes)
        used = {out for out, _ in self._links}
        kept = [v for v in first.graph.outputs if v.name not in used]
        first.graph.outputs[:] = [*kept, *results]
        _merge_header(first, second)
        return first

    def _matched(self, first: ir.Model, second: ir.Model) -> list[tuple[str, str]]:
        outputs = [v.name or "" for v in first.graph.outputs]
        inputs = [v.name or "" for v in second.graph.inputs if v.name not in second.graph.initializers]
        for out, given in self.connections:
            if out not in outputs:
                raise unknown("connect", "output", out, outputs)
            if given not in [v.name for v in second.graph.inputs]:
                raise unknown("connect", "input", given, inputs)
        targets = [given for _, given in self.connections]
        if len(set(targets)) != len(targets):
            raise UsageError("--connect names an input twice.")
        if self.connections:
            return self.connections
        if len(outputs) == len(inputs) == 1:
            return [(outputs[0], inputs[0])]
        shared = [(n, n) for n in outputs if n in inputs]
        if not shared:
            raise UsageError(
                f"--{self.name} {self.text}: say what goes where with --connect OUTPUT=INPUT; the first model gives "
                f"{', '.join(outputs)}, the second takes {', '.join(inputs)}."
            )
        return shared

    def _prove(self, first: ir.Model, second: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        runners = [context.runner(m) for m in (first, second)]
        linked = {given: out for out, given in self._links}
        names = [[s.name for s in r.inputs] for r in runners]
        whole = context.runner(after)
        cases = []
        for probe in probes_of(after, context, whole):
            try:
                middle = flatten(runners[0].run({n: probe.feeds[n] for n in names[0]}))
                given = {
                    n: middle[linked[n]] if n in linked else probe.feeds[self._renamed.get(n, n)] for n in names[1]
                }
                results = flatten(runners[1].run(given))
            except InputError as error:
                raise VerdictError(f"the proof fails: one after the other they do not run: {error}") from error
            expected = {n: a for n, a in middle.items() if n not in linked.values()}
            expected |= {self._renamed.get(n, n): a for n, a in results.items()}
            cases.append((probe.feeds, expected))
        return compare(after, cases, context, "it gives what the two give one after the other, to the last bit")


class Append(_Join):
    """Put another model behind this one; --connect OUTPUT=INPUT says what goes where."""

    name: ClassVar[str] = "append"

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        other = io.load(self.path, in_place=True)
        self._other = other.clone()
        joined = self._joined(model, other)
        self.done = _told(self._links, self._renamed)
        return joined

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        assert self._other is not None
        return self._prove(before, self._other, after, context)


class Prepend(_Join):
    """Put another model before this one; --connect OUTPUT=INPUT says what goes where."""

    name: ClassVar[str] = "prepend"

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        other = io.load(self.path, in_place=True)
        self._other = other.clone()
        metadata, doc = dict(model.metadata_props), model.doc_string
        joined = self._joined(other, model)
        joined.metadata_props.clear()
        joined.metadata_props.update(metadata)
        joined.doc_string = doc
        self.done = _told(self._links, self._renamed)
        return joined

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        assert self._other is not None
        return self._prove(self._other, before, after, context)


def _told(links: list[tuple[str, str]], renamed: dict[str, str]) -> str:
    told = "joined at " + ", ".join(f"{out} -> {given}" for out, given in links)
    return told + (f"; {len(renamed)} names got a prefix" if renamed else "")


def _same_opset(first: ir.Model, second: ir.Model) -> tuple[ir.Model, ir.Model]:
    """Both at the newer opset of the two."""
    versions = [m.opset_imports.get("", 0) for m in (first, second)]
    if versions[0] and versions[0] < versions[1]:
        return convert_opset(first, versions[1]), second
    if versions[1] and versions[1] < versions[0]:
        return first, convert_opset(second, versions[0])
    return first, second


def _share_folder(*models: ir.Model) -> None:
    """Name files of weights from one folder: the runtime looks in one alone, where another file may have that name."""
    values = [v for m in models for g in m.graphs() for v in g.initializers.values()]
    outside = {v: v.const_value for v in values if isinstance(v.const_value, ir.ExternalTensor)}
    folders = {os.path.realpath(tensor.base_dir) for tensor in outside.values()}
    if len(folders) < 2:
        return
    shared = os.path.commonpath(folders)
    for value, tensor in outside.items():
        location = os.path.relpath(os.path.realpath(tensor.path), shared)
        value.const_value = ir.ExternalTensor(
            location, tensor.offset, tensor.length, tensor.dtype,
            shape=tensor.shape, name=tensor.name or "", base_dir=shared, metadata_props=dict(tensor.metadata_props),
        )  # fmt: skip
        value.const_value.meta.update(tensor.meta)


def _rename_clashes(first: ir.Model, second: ir.Model, stem: str) -> dict[str, str]:
    """Give what the second model calls like something in the first a prefix; old name -> new name."""
    prefix = "".join(c if c.isalnum() or c == "_" else "_" for c in stem) + "_"
    taken, own = taken_names(first), taken_names(second)
    # A connected tensor has both names, and the input's own is gone afterwards.
    clashes = taken & own
    renamed: dict[str, str] = {}
    for name in sorted(clashes):
        fresh = prefix + name
        while fresh in taken or fresh in own:
            fresh = prefix + fresh
        renamed[name] = fresh
        own.add(fresh)
    for graph in second.graphs():
        values = [*graph.inputs, *graph.initializers.values(), *(v for n in graph for v in n.outputs)]
        for value in dict.fromkeys(values):
            if value.name in renamed:
                old = value.name
                value.name = renamed[old]
                if graph.initializers.get(old) is value:
                    del graph.initializers[old]
                    graph.register_initializer(value)
    nodes = {n.name for n in walk(first.graph) if n.name}
    for node in walk(second.graph):
        while node.name and node.name in nodes:
            node.name = prefix + node.name
    return renamed


def _verify_fit(out: ir.Value, given: ir.Value, name: str) -> None:
    left, right = value_spec(out), value_spec(given)
    if left.dtype != right.dtype:
        raise UsageError(
            f"--connect {out.name}={name}: {dtype_name(left.dtype)} does not fit {dtype_name(right.dtype)}; "
            "convert one with --io-dtype first."
        )
    if left.shape is None or right.shape is None:
        return
    clash = len(left.shape) != len(right.shape) or any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(left.shape, right.shape, strict=False)
    )
    if clash:
        raise UsageError(f"--connect {out.name}={name}: {left.info()} does not fit {right.info()}.")


def _through_identity(model: ir.Model, value: ir.Value) -> None:
    """An output that is an input as it is needs a node that makes it."""
    for index, output in enumerate(model.graph.outputs):
        if output is value:
            node = ir.node("Identity", [value])
            node.outputs[0].name, node.outputs[0].type = f"{value.name}_passed", value.type
            node.outputs[0].shape = value.shape
            model.graph.append(node)
            model.graph.outputs[index] = node.outputs[0]


def _merge_header(first: ir.Model, second: ir.Model) -> None:
    for domain, version in second.opset_imports.items():
        own = first.opset_imports.setdefault(domain, version)
        if own != version:
            raise UnsupportedError(f"the models import versions {own} and {version} of the operators {domain!r}.")
    first.ir_version = max(first.ir_version, second.ir_version)
    for key, function in second.functions.items():
        if key in first.functions:
            twins = [ir.to_proto(f).SerializeToString(deterministic=True) for f in (first.functions[key], function)]
            if twins[0] != twins[1]:
                raise UnsupportedError(f"both models have a function {key[1]!r}, and they differ.")
            continue
        first.functions[key] = function
