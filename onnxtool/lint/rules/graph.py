"""Rules on the graph: specification (OT01x), runtime (OT12x), portability (OT2xx), performance (OT3xx)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import onnx

from onnxtool.lint.rule import LintRule
from onnxtool.model.io import old_opset
from onnxtool.model.model_view import ModelView, is_standard, label
from onnxtool.report.check import Finding, Severity

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_OLD_OPSET = 13
_RUNTIME_DOMAINS = ("com.microsoft.", "com.ms.")
_HEAVY = ("Conv", "ConvTranspose", "MatMul", "Gemm")

UNUSED_INPUT = LintRule(
    "OT010",
    _W,
    "an input that nothing reads",
    "Callers have to feed it, and some runtimes refuse to. It is often left behind by an export of training code.",
    "Export without it.",
)
DUPLICATE_NAMES = LintRule(
    "OT011",
    _N,
    "nodes of one name",
    "Profilers, quantizers (--exclude NAME) and comparisons address nodes by name.",
    "Give every node a name of its own when exporting.",
)
OLD_OPSET = LintRule(
    "OT012",
    _N,
    "an old opset",
    "Quantized operators per channel and many fusions exist from opset 13 on only.",
    "Export again with --opset 17 or newer.",
)
OPSET_TWICE = LintRule(
    "OT013",
    _E,
    "two versions of an operator set imported",
    'The specification allows one version of each domain; which of the two counts is then up to each runtime. "" and '
    '"ai.onnx" are the same domain.',
    "Keep the version that the operators were written for; exporting again does so.",
)
STRAY_REFERENCE = LintRule(
    "OT014",
    _E,
    "a reference to an attribute, outside a function",
    "Only the body of a function can refer to the attributes that it is called with. Elsewhere the reference names "
    "nothing, and runtimes silently take the operator's default.",
    "Write the value into the attribute, or export again.",
)
RANDOM = LintRule(
    "OT120",
    _N,
    "random operators",
    "Two runs on the same inputs give different outputs, so that comparisons have to allow for it.",
    "If the model should not be random at inference, export it in evaluation mode.",
)
CUSTOM_DOMAIN = LintRule(
    "OT201",
    _W,
    "operators outside the ONNX standard",
    "Only runtimes that have these operators can run the model: com.microsoft ones need a full build of ONNX Runtime, "
    "those of a domain of your own need your library wherever the model goes.",
    "com.microsoft: onnxtool optimize without --level all writes none. A domain of your own: ship its library with the "
    "model, and name it with --custom-op-library.",
)
# What to do, by whose operator it is.
_OF_RUNTIME = (
    "Where another runtime must run it: export or optimize again without fusions (optimize without --level all)."
)
_OF_USER = "Ship the library that has it with the model; onnxtool takes it as --custom-op-library FILE."
FLOAT64 = LintRule(
    "OT202",
    _W,
    "float64 tensors",
    "GPUs, browsers, mobile and neural accelerators lack float64 or are many times slower with it.",
    "Export the model in float32.",
)
INT64_IO = LintRule(
    "OT203",
    _N,
    "int64 inputs or outputs",
    "Browsers (BigInt64Array) and some accelerators handle int32 only.",
    "Cast at the model's edge, if such a target is meant.",
)
DYNAMIC = LintRule(
    "OT204",
    _N,
    "dynamic dims beyond the batch",
    "Mobile and accelerator runtimes (Core ML, NNAPI) want fixed shapes, or fall back to the CPU.",
    "Export with a fixed --input-shape for such targets.",
)
NO_TENSOR = LintRule(
    "OT205",
    _N,
    "an output that is not a tensor",
    "Sequences and maps (scikit-learn's ZipMap) cannot be read by many runtimes and language bindings.",
    "Export classifiers with plain probability tensors (zipmap=False in skl2onnx).",
)
BATCHNORM = LintRule(
    "OT301",
    _N,
    "a BatchNormalization that could be folded",
    "After a convolution or matrix product it can go into the weights and cost nothing.",
    "Run: onnxtool optimize.",
)
TRANSPOSES = LintRule(
    "OT302",
    _N,
    "transposes in a row",
    "Two transposes in a row are one, or none.",
    "Run: onnxtool optimize.",
)
CONSTANT_PART = LintRule(
    "OT303",
    _N,
    "nodes that compute a constant",
    "They give the same result in every run and could be computed once.",
    "Run: onnxtool optimize.",
)
IDLE = LintRule(
    "OT304",
    _N,
    "nodes that do nothing",
    "Identity, and Dropout outside training, only cost time.",
    "Run: onnxtool optimize.",
)
HALF_QUANTIZED = LintRule(
    "OT305",
    _W,
    "a Q/DQ pair that will not fuse",
    "The runtime turns DequantizeLinear -> operator -> QuantizeLinear into an int8 kernel only when all data "
    "inputs of the operator come from DequantizeLinear. Here it computes in float and pays for the conversions on top.",
    "Quantize again with: onnxtool quantize; or leave the node out with --exclude.",
)
RULES = (
    *(UNUSED_INPUT, DUPLICATE_NAMES, OLD_OPSET, RANDOM, CUSTOM_DOMAIN, FLOAT64, INT64_IO, DYNAMIC, NO_TENSOR),
    *(OPSET_TWICE, STRAY_REFERENCE),
    *(BATCHNORM, TRANSPOSES, CONSTANT_PART, IDLE, HALF_QUANTIZED),
)


def specification(view: ModelView) -> Iterator[Finding]:
    """Unused inputs, duplicate node names, old opsets, random operators, and what the ONNX checker lets through."""
    yield from _beside_the_checker(view)
    for spec in view.header.inputs:
        if spec.name not in view.readers and spec.name not in view.output_names:
            yield UNUSED_INPUT.finding("nothing reads this input", spec.name)
    names = Counter(node.name for node in view.proto.graph.node if node.name)
    for name, count in names.items():
        if count > 1:
            yield DUPLICATE_NAMES.finding(f"{count} nodes have this name", name)
    opset = view.header.opsets.get("ai.onnx")
    if opset is not None and opset < _OLD_OPSET:
        was = old_opset(view.path)
        told = f"opset {was}, which ONNX Runtime does not run: it is read as opset {opset}" if was else f"opset {opset}"
        yield OLD_OPSET.finding(f"the model uses {told}")
    for node in view.random_nodes:
        yield RANDOM.finding("gives other values in every run", label(node))


def _beside_the_checker(view: ModelView) -> Iterator[Finding]:
    for owner in (view.proto, *view.proto.functions):
        versions = {(entry.domain or "ai.onnx", entry.version) for entry in owner.opset_import}
        for domain, count in Counter(domain for domain, _ in versions).items():
            if count > 1:  # one version twice, as skl2onnx writes of forests, leaves nothing open
                where = "" if isinstance(owner, onnx.ModelProto) else f" by function {owner.name!r}"
                yield OPSET_TWICE.finding(f"{domain} is imported in {count} versions{where}")
    for graph in view.graphs_outside_functions:
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.ref_attr_name:
                    yield STRAY_REFERENCE.finding(
                        f"its attribute {attribute.name!r} refers to {attribute.ref_attr_name!r}", label(node)
                    )


def portability(view: ModelView) -> Iterator[Finding]:
    """Custom domains, float64, int64 at the edge, dynamic dims, outputs that are not tensors."""
    local = {(f.domain, f.name) for f in view.proto.functions}
    custom = Counter(
        f"{n.domain}.{n.op_type}"
        for n in view.nodes
        if not is_standard(n.domain) and (n.domain, n.op_type) not in local
    )
    for name, count in custom.items():
        fix = _OF_RUNTIME if name.startswith(_RUNTIME_DOMAINS) else _OF_USER
        yield CUSTOM_DOMAIN.finding(f"{count} node{'s' if count != 1 else ''} of {name}", name, fix)
    edge = [*view.header.inputs, *view.header.outputs]
    for spec in edge:
        if str(spec.dtype) == "float64":
            yield FLOAT64.finding("float64 at the model's edge", spec.name)
        elif str(spec.dtype) == "int64":
            yield INT64_IO.finding("int64 at the model's edge", spec.name)
    doubles = sum(t.data_type == onnx.TensorProto.DOUBLE and len(t.dims) > 0 for t in view.proto.graph.initializer)
    if doubles:
        yield FLOAT64.finding(f"{doubles} weights are float64")
    for spec in view.header.inputs:
        if spec.shape is not None and any(not isinstance(d, int) for d in spec.shape[1:]):
            shown = str(spec.info()).removeprefix(f"{spec.name}: ")
            yield DYNAMIC.finding(f"dims beyond the first are dynamic: {shown}", spec.name)
    for spec in view.header.outputs:
        if spec.dtype in ("sequence", "map", "optional"):
            yield NO_TENSOR.finding(f"the output is a {spec.dtype}, not a tensor", spec.name)


def _is_spared(view: ModelView, node: onnx.NodeProto, source: onnx.NodeProto) -> bool:
    """Whether joining two transposes saves one: nobody else reads what lies between, or they undo one another."""
    alone = len(view.readers.get(source.output[0], ())) == 1 and source.output[0] not in view.output_names
    first, second = (next((list(a.ints) for a in n.attribute if a.name == "perm"), []) for n in (source, node))
    if len(first) == len(second) and first and max(first) < len(first) and max(second) < len(first):
        undone = [first[axis] for axis in second] == list(range(len(first)))
    else:
        undone = not first and not second  # both turn all dims round
    return alone or (undone and not _joins(view, source.input[0], node.output[0]))


def _joins_the_edges(view: ModelView, node: onnx.NodeProto) -> bool:
    """Whether a node only hands an input of the model on to an output of it, which some node has to do."""
    return bool(node.input and node.output) and _joins(view, node.input[0], node.output[0])


def _joins(view: ModelView, given: str, made: str) -> bool:
    return given not in view.producers and made in view.output_names


def performance(view: ModelView) -> Iterator[Finding]:
    """What optimize would do, and quantized operators that stay float."""
    constant = 0
    for node in view.proto.graph.node:
        source = view.producers.get(node.input[0]) if node.input else None
        if node.op_type == "BatchNormalization" and source is not None and source.op_type in _HEAVY:
            if len(view.readers.get(node.input[0], ())) == 1 and node.input[0] not in view.output_names:
                yield BATCHNORM.finding(f"could be folded into {label(source)}", label(node))
        elif node.op_type == "Transpose" and source is not None and source.op_type == "Transpose":
            if _is_spared(view, node, source):
                yield TRANSPOSES.finding(f"follows {label(source)}: one would do, or none", label(node))
        elif node.op_type in ("Identity", "Dropout") and is_standard(node.domain) and not _joins_the_edges(view, node):
            if node.op_type == "Identity" or len(node.input) < 3 or not node.input[2]:
                yield IDLE.finding("could be left out", label(node))
        elif node.op_type in _HEAVY:
            yield from _half_quantized(view, node)
        if node.op_type not in ("Constant", "DequantizeLinear") and node.output and node.output[0] in view.constants:
            constant += 1
    if constant:
        yield CONSTANT_PART.finding(
            f"{constant} node{'s compute' if constant != 1 else ' computes'} what never changes"
        )


def _half_quantized(view: ModelView, node: onnx.NodeProto) -> Iterator[Finding]:
    """Conv, MatMul and Gemm with one data input from DequantizeLinear and the other not."""
    sources = [view.producers.get(name) for name in node.input[:2]]
    dequantized = [s is not None and s.op_type == "DequantizeLinear" for s in sources]
    if any(dequantized) and not all(dequantized):
        plain = node.input[dequantized.index(False)]
        yield HALF_QUANTIZED.finding(f"its input {plain!r} stays float", label(node))
