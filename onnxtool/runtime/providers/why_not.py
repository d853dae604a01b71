"""Why a provider did not take a node: the node is offered to it alone, and in other forms, until it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx
from onnx import TensorProto, helper

from onnxtool.errors import OnnxToolError
from onnxtool.model.proto_nodes import all_nodes
from onnxtool.runtime.providers.resolve import CPU
from onnxtool.runtime.providers.spec import parse_providers, short_name
from onnxtool.runtime.session.session import SessionOptions, create_session
from onnxtool.runtime.timing.node_costs import event_key

# The profiler's names of element types.
_TYPES: Mapping[str, int] = {name.lower(): code for name, code in TensorProto.DataType.items() if code}
_SMALLER = {TensorProto.DOUBLE: TensorProto.FLOAT, TensorProto.FLOAT16: TensorProto.FLOAT,
            TensorProto.BFLOAT16: TensorProto.FLOAT, TensorProto.INT64: TensorProto.INT32}  # fmt: skip
_WORDS = {number: name for name, number in _TYPES.items()}
# So many forms of nodes are tried; each makes a session or several.
_MOST = 24
_SMALL = 1 << 20
_Described = list[tuple[int, tuple[int, ...]]]


def why_not(
    source: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    events: Sequence[Mapping[str, Any]],
    options: SessionOptions,
) -> dict[str, tuple[str, bool]]:
    """(reason, whether it counts as a fallback) for nodes that run elsewhere than on the first provider, by name.

    Arithmetic on sizes is kept on the CPU by the runtime on purpose, and counts as none.

    Args:
        source: the file, its nodes with names.
        nodes: those to explain.
        events: the profiler's, of a run without fusions, with the element types and shapes that were really there.
        options: the providers asked for.
    """
    described = _described(events)
    weights = {t.name: t for t in source.graph.initializer}
    dynamic = _dynamic(source)
    trial = _Trial(source, options, weights)
    answers: dict[tuple[object, ...], tuple[str, bool]] = {}
    found = {}
    for node in nodes:
        inputs, outputs = described.get(node.name, (None, None))
        moves = any(i in dynamic for i in node.input)
        form = (node.op_type, node.domain, str([t for t, _ in inputs or ()]), moves, _sizes_only(outputs))
        if form not in answers:
            if inputs is None or outputs is None:
                answers[form] = ("the runtime replaced it, or it does not run on these inputs", False)
            elif len(answers) >= _MOST:
                answers[form] = ("", True)
            else:
                answers[form] = trial.ask(node, inputs, outputs, moves)
        found[node.name] = answers[form]
    return found


class _Trial:
    """Offers single nodes to the first provider."""

    def __init__(
        self, source: onnx.ModelProto, options: SessionOptions, weights: Mapping[str, onnx.TensorProto]
    ) -> None:
        self.source, self.weights = source, weights
        self.options = replace(options, record_placement=True, optimization="off", profile_prefix=None)
        self.name = short_name(parse_providers(options.provider)[0].name)

    def ask(self, node: onnx.NodeProto, inputs: _Described, outputs: _Described, moves: bool) -> tuple[str, bool]:
        if _sizes_only(outputs):
            return "arithmetic on sizes: it stays on the CPU, where the sizes are needed", False
        words = ", ".join(dict.fromkeys(_WORDS.get(t, "?") for t, _ in inputs))
        alone = self.takes(node, inputs, outputs)
        if alone is None:
            return f"'{self.name}' was not asked again: the node cannot stand alone", True
        if alone:
            if moves and self.takes(node, inputs, outputs, dynamic=True) is False:
                return f"'{self.name}' takes it with fixed sizes only (onnxtool edit --set-shape fixes them)", True
            return (
                f"'{self.name}' takes such a node alone, but not here, beside what it does not take",
                True,
            )
        for kind, other in _SMALLER.items():
            if any(t == kind for t, _ in inputs):
                changed = [(other if t == kind else t, s) for t, s in inputs]
                after = [(other if t == kind else t, s) for t, s in outputs]
                if self.takes(node, changed, after):
                    return f"'{self.name}' takes {node.op_type} in {_WORDS[other]}, not in {_WORDS[kind]}", True
        return f"'{self.name}' does not run {node.op_type} as it stands here ({words or 'no inputs'})", True

    def takes(
        self, node: onnx.NodeProto, inputs: _Described, outputs: _Described, dynamic: bool = False
    ) -> bool | None:
        """Whether the provider takes the node alone; None when it cannot be asked."""
        try:
            session = create_session(self._model(node, inputs, outputs, dynamic), self.options)
        except (OnnxToolError, ValueError, TypeError):
            return None
        tell = getattr(session, "get_provider_graph_assignment_info", None)
        if tell is None:
            return None
        on_cpu = {n.name for part in tell() if part.ep_name == CPU for n in part.get_nodes()}
        return node.name not in on_cpu

    def _model(self, node: onnx.NodeProto, inputs: _Described, outputs: _Described, dynamic: bool) -> onnx.ModelProto:
        """The node with its own small weights; the rest become inputs."""
        values, kept = [], []
        for position, (name, (kind, shape)) in enumerate(self._inputs(node, inputs).items()):
            weight = self.weights.get(name)
            fits = weight is not None and weight.data_type == kind and weight.ByteSize() < _SMALL
            if weight is not None and fits and weight.data_location != TensorProto.EXTERNAL:
                kept.append(weight)
                continue
            dims = [f"d{position}_{i}" for i in range(len(shape))] if dynamic else list(shape)
            values.append(helper.make_tensor_value_info(name, kind, dims))
        made = zip([o for o in node.output if o], outputs, strict=False)
        results = [
            helper.make_tensor_value_info(o, kind, [None] * len(shape) if dynamic else list(shape))
            for o, (kind, shape) in made
        ]
        graph = helper.make_graph([node], "alone", values, results, kept)
        return helper.make_model(graph, opset_imports=self.source.opset_import, ir_version=self.source.ir_version)

    def _inputs(self, node: onnx.NodeProto, told: _Described) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Each input with its type and shape. The profiler leaves out weights that the runtime has rearranged."""
        rest = list(told)
        found = {}
        for name in [i for i in node.input if i]:
            weight = self.weights.get(name)
            if weight is not None and (weight.data_type, tuple(weight.dims)) != (rest[0] if rest else None):
                found[name] = (weight.data_type, tuple(weight.dims))
            elif rest:
                found[name] = rest.pop(0)
            else:
                raise ValueError("the profiler told of fewer inputs than the node has")
        return found


def _described(events: Sequence[Mapping[str, Any]]) -> dict[str, tuple[_Described, _Described]]:
    """Kernel -> element types and shapes of its inputs and outputs."""
    found: dict[str, tuple[_Described, _Described]] = {}
    for event in events:
        key = event_key(event)
        if key is None or key[0] in found:
            continue
        arguments = event.get("args", {})
        sides = [arguments.get(f"{side}_type_shape") for side in ("input", "output")]
        if all(isinstance(s, list) for s in sides):
            inputs, outputs = ([_tensor(item) for item in side or ()] for side in sides)
            found[key[0].removeprefix("fused ")] = (inputs, outputs)
    return found


def _tensor(item: Any) -> tuple[int, tuple[int, ...]]:
    kind, dims = next(iter(item.items()), ("", [])) if isinstance(item, dict) else ("", [])
    return _TYPES.get(kind, TensorProto.UNDEFINED), tuple(dims) if isinstance(dims, list) else ()


def _sizes_only(outputs: _Described | None) -> bool:
    """Whether a node gives nothing but whole numbers or truths in a short list, as arithmetic on sizes does."""
    whole = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
    return bool(outputs) and all(t in whole and len(s) <= 1 and (not s or s[0] <= 16) for t, s in outputs or ())


def _dynamic(source: onnx.ModelProto) -> set[str]:
    """Tensors with a size that is not known before the run, as far as shape inference tells; unknown ones count."""
    try:
        inferred = onnx.shape_inference.infer_shapes(source)
    except Exception:  # it fails on much; then nothing is known
        return {o for n in all_nodes(source.graph.node) for o in n.output}
    known = set()
    for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        shape = value.type.tensor_type
        if shape.HasField("shape") and all(d.HasField("dim_value") for d in shape.shape.dim):
            known.add(value.name)
    known |= {t.name for t in source.graph.initializer}
    return {i for n in all_nodes(source.graph.node) for i in n.input if i and i not in known}
