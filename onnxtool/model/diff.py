"""`diff`: the structural difference of two models: operators, attributes, initializers, inputs, opsets, metadata."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx

from onnxtool.model.file import ModelFile
from onnxtool.model.header import ModelHeader, element_type, operator_name, read_header
from onnxtool.model.io import read_proto
from onnxtool.model.io.in_memory import ModelLike, takes_models
from onnxtool.model.safety.limits import DEFAULT
from onnxtool.model.safety.tensors import external_ref, graphs
from onnxtool.model.spec import dtype_name
from onnxtool.report.diff import Change, DiffReport

_CHUNK = 1 << 20
_SHOWN = 160


@takes_models("a", "b")
def diff(a: ModelLike, b: ModelLike, *, external: bool = True) -> DiffReport:
    """Compare two models as graphs. Values are compared by hash; nothing is run.

    Nodes are the same when they have the same name, or, without names, make the same tensor.

    Args:
        a: the file (or model in memory) before; os.devnull stands for a model that is not there.
        b: the file after, likewise.
        external: False tells weights in other files by their place there and not by content: the files may be missing.

    Raises:
        InputError: a file cannot be read as an ONNX model.
        UnsafeError: external data outside a model's folder.
    """
    files = ModelFile.of(a), ModelFile.of(b)
    left, right = (_read(file, external) for file in files)
    headers = read_header(left), read_header(right)
    folders = [file.path.parent if external else None for file in files]
    changes = [
        *_mapping("header", _header(headers[0]), _header(headers[1])),
        *_mapping("metadata", headers[0].metadata, headers[1].metadata),
        *_mapping("input", _specs(headers[0], "inputs"), _specs(headers[1], "inputs")),
        *_mapping("output", _specs(headers[0], "outputs"), _specs(headers[1], "outputs")),
        *_renames(_initializers(left, folders[0]), _initializers(right, folders[1])),
        *_mapping("function", _functions(left), _functions(right)),
        *_mapping("node", _described(left), _described(right)),
    ]
    counts = headers[0].operators, headers[1].operators
    operators = {
        name: (counts[0].get(name, 0), counts[1].get(name, 0))
        for name in sorted(counts[0].keys() | counts[1].keys())
        if counts[0].get(name, 0) != counts[1].get(name, 0)
    }
    return DiffReport(str(files[0]), str(files[1]), tuple(changes), operators)


def _read(file: ModelFile, external: bool) -> onnx.ModelProto:
    if str(file) == os.devnull:
        return onnx.ModelProto()
    return file.proto if external else read_proto(file, external=False)


def _mapping(what: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    """Changes between two named sets of descriptions, in A's order, then what is new."""
    for name, text in before.items():
        if name not in after:
            yield Change(what, "removed", name, before=text)
        elif after[name] != text:
            yield Change(what, "changed", name, text, after[name])
    for name, text in after.items():
        if name not in before:
            yield Change(what, "added", name, after=text)


def _header(header: ModelHeader) -> dict[str, str]:
    facts = {"IR version": str(header.ir_version or ""), "producer": header.producer}
    facts |= {f"opset {domain}": str(version) for domain, version in header.opsets.items()}
    return {name: text for name, text in facts.items() if text}


def _specs(header: ModelHeader, side: str) -> dict[str, str]:
    specs = header.inputs if side == "inputs" else header.outputs
    return {s.name: str(s.info()).removeprefix(f"{s.name}: ") for s in specs}


def _initializers(model: onnx.ModelProto, folder: Path | None) -> dict[str, str]:
    """Name -> "float32[3, 4] sha256:0123456789ab", for all graphs."""
    held = list(graphs(model, DEFAULT))
    sparse = {s.values.name: f"sparse sha256:{_digest(_bytes(s))}" for g in held for s in g.sparse_initializer}
    return {t.name: _tensor(t, folder) for graph in held for t in graph.initializer} | sparse


def _tensor(tensor: onnx.TensorProto, folder: Path | None) -> str:
    shape = f"{dtype_name(element_type(tensor.data_type))}[{', '.join(map(str, tensor.dims))}]"
    reference = external_ref(tensor)
    if reference is not None and folder is None:
        return f"{shape} in {reference.location} at {reference.offset}"
    return f"{shape} sha256:{_hash(tensor, folder)[:12]}"


def _hash(tensor: onnx.TensorProto, folder: Path | None) -> str:
    """SHA-256 of the tensor's content, the same for every way of storing it but strings."""
    digest = hashlib.sha256()
    reference = external_ref(tensor)
    if reference is not None and folder is not None:
        with open(folder / reference.location, "rb") as file:
            file.seek(reference.offset)
            left = reference.length if reference.length is not None else (folder / reference.location).stat().st_size
            while left > 0 and (chunk := file.read(min(left, _CHUNK))):
                digest.update(chunk)
                left -= len(chunk)
    elif tensor.HasField("raw_data"):
        digest.update(tensor.raw_data)
    elif tensor.string_data:
        for text in tensor.string_data:
            digest.update(len(text).to_bytes(8, "little") + text)
    else:
        digest.update(onnx.numpy_helper.to_array(tensor).tobytes())
    return digest.hexdigest()


def _renames(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    """As `_mapping`, with an initializer that only got another name told as such."""
    new = {text: name for name, text in after.items() if name not in before}
    renamed: dict[str, str] = {}
    for name, text in before.items():
        if name not in after and text in new:
            renamed[name] = new.pop(text)
            yield Change("initializer", "renamed", name, name, renamed[name])
    rest = {n: t for n, t in before.items() if n not in renamed}
    taken = set(renamed.values())
    yield from _mapping("initializer", rest, {n: t for n, t in after.items() if n not in taken})


def _functions(model: onnx.ModelProto) -> dict[str, str]:
    return {
        _called(f.domain, f.name, f.overload): f"{len(f.node)} nodes sha256:{_digest(_bytes(f))}"
        for f in model.functions
    }


def _called(domain: str, name: str, overload: str) -> str:
    """As ONNX's text form calls a function of which there are several of one name."""
    return operator_name(domain, f"{name}:{overload}" if overload else name)


def _bytes(message: onnx.FunctionProto | onnx.GraphProto | onnx.SparseTensorProto) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _described(model: onnx.ModelProto) -> dict[str, str]:
    """Key -> what the node is, for the nodes of all graphs; keys are names, or tensors where there is no name."""
    nodes = [node for graph in graphs(model, DEFAULT) for node in graph.node]
    names = Counter(node.name for node in nodes)
    found: dict[str, str] = {}
    for node in nodes:
        own = bool(node.name) and names[node.name] == 1
        key = node.name if own else f"-> {next((o for o in node.output if o), '')}"
        found[key] = _node(node)
    return found


def _node(node: onnx.NodeProto) -> str:
    attributes = ", ".join(f"{a.name}={_attribute(a)}" for a in sorted(node.attribute, key=lambda a: a.name))
    call = f"{_called(node.domain, node.op_type, node.overload)}({', '.join(node.input)}) -> {', '.join(node.output)}"
    return f"{call} {{{attributes}}}" if attributes else call


def _attribute(attribute: onnx.AttributeProto) -> str:
    if attribute.HasField("t"):
        return _tensor(attribute.t, None)
    if attribute.HasField("g"):
        return f"graph of {len(attribute.g.node)} nodes sha256:{_digest(_bytes(attribute.g))}"
    value = onnx.helper.get_attribute_value(attribute) if not attribute.ref_attr_name else f"@{attribute.ref_attr_name}"
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... sha256:{_digest(text.encode())}"
