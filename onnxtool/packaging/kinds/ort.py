"""`--for ort`: ORT format for phones and devices, what a small runtime has to have in it, and code in six languages."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx

from onnxtool.errors import UnsupportedError
from onnxtool.model import io
from onnxtool.model.header import element_type
from onnxtool.model.proto_nodes import inner_graphs
from onnxtool.model.spec import dtype_name
from onnxtool.packaging.kind import PackageKind, Subject, write_smoke_test
from onnxtool.packaging.kinds.fastapi import write_requirements
from onnxtool.packaging.kinds.snippets import snippets
from onnxtool.report.package import Started
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session.session import SessionOptions, create_session

_FILE = "model.ort"
_OPERATORS = "required_operators_and_types.config"
_MOST_BYTES = 2_000_000_000  # of a flatbuffer
# What ONNX Runtime's build calls element types.
_CPP = {
    "float32": "float",
    "float64": "double",
    "float16": "MLFloat16",
    "bfloat16": "BFloat16",
    "string": "std::string",
    "bool": "bool",
    **{f"{u}int{bits}": f"{u}int{bits}_t" for u in ("", "u") for bits in (8, 16, 32, 64)},
}


class Ort(PackageKind):
    """model.ort, the required operators, snippets."""

    name = "ort"
    title = "ONNX Runtime on phones and devices (ORT format)"
    commands = ("pip install -r requirements.txt", "python smoke_test.py    # model.ort on the recorded inputs")

    def write(self, folder: Path, subject: Subject) -> None:
        """Let the runtime write its own format, and list the operators of the graph that it kept.

        Raises:
            UnsupportedError: more than 2 GB.
        """
        if io.total_bytes(subject.path) > _MOST_BYTES:
            raise UnsupportedError("--for ort: ORT format holds at most 2 GB.")
        # Not "all": its layouts are those of this processor, and a phone has another.
        as_ort = SessionOptions(
            optimization="extended",
            optimized_path=folder / _FILE,
            settings=(("session.save_model_format", "ORT"),),
        )
        create_session(subject.path, as_ort)
        with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
            kept = Path(scratch) / "kept.onnx"
            create_session(subject.path, SessionOptions(optimization="extended", optimized_path=kept))
            text = required_operators(onnx.shape_inference.infer_shapes(onnx.load(kept)))
        (folder / _OPERATORS).write_text(text, encoding="utf-8")
        place = folder / "snippets"
        place.mkdir()
        for name, code in snippets(subject).items():
            (place / name).write_text(code, encoding="utf-8")
        write_requirements(folder, subject, ("numpy", "onnxruntime"))
        write_smoke_test(folder, "ort/smoke_test.py")

    def start(self, folder: Path, subject: Subject | None) -> tuple[Runner, Started]:
        """The ORT file in the native runtime."""
        del subject
        return OnnxRunner.open(folder / _FILE), Started("model.ort in the native runtime")

    def note(self, subject: Subject) -> str:
        """How the pieces are used."""
        del subject
        return (
            f"`snippets/` has the code for Android (Kotlin), iOS (Swift), C#, Java, JavaScript and C++. A runtime with "
            f"only\nthis model's operators and types: ONNX Runtime's `build.sh --minimal_build extended "
            f"--include_ops_by_config\n{_OPERATORS} --enable_reduced_operator_type_support`.\n"
        )


def required_operators(model: onnx.ModelProto) -> str:
    """The configuration of a reduced build: operators by domain and opset, and the element types that occur.

    Args:
        model: as the runtime has optimized it, with what is known of the types inside.

    Source: https://onnxruntime.ai/docs/reference/operators/reduced-operator-config-file.html
    """
    opsets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    operators: dict[str, set[str]] = {}
    types: set[str] = set()
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        for value in (*graph.input, *graph.output, *graph.value_info):
            types.add(_type_name(value.type.tensor_type.elem_type))
        types |= {_type_name(tensor.data_type) for tensor in graph.initializer}
        for node in graph.node:
            operators.setdefault(node.domain or "ai.onnx", set()).add(node.op_type)
            pending += inner_graphs(node)
            for attribute in node.attribute:
                if attribute.name == "to" and node.op_type == "Cast":
                    types.add(_type_name(attribute.i))
    lines = ["# Operators and element types that this model needs; for ONNX Runtime's --include_ops_by_config"]
    lines += [f"{d};{opsets.get(d, 1)};{','.join(sorted(names))}" for d, names in sorted(operators.items())]
    # int64 and int32 are the types of shapes and indices, bool that of conditions.
    allowed = {t for t in types if t} | {"int32_t", "int64_t", "bool"}
    lines.append(f"!globally_allowed_types;{','.join(sorted(allowed))}")
    return "\n".join(lines) + "\n"


def _type_name(element: int) -> str:
    return _CPP.get(dtype_name(element_type(element)), "")
