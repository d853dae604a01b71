"""What to write in an app, in each language, with this model's own names, shapes and element types."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onnxtool.model.spec import TensorSpec, dtype_name
from onnxtool.packaging.kind import Subject, filled

# Element type -> (Kotlin and Java buffer, Swift enum case, C# type, JavaScript array, C++ type)
_TYPES: Mapping[str, tuple[str, str, str, str, str]] = {
    "float32": ("FloatBuffer", "float", "float", "Float32Array", "float"),
    "float64": ("DoubleBuffer", "double", "double", "Float64Array", "double"),
    "float16": ("ShortBuffer", "float16", "Float16", "Uint16Array", "Ort::Float16_t"),
    "int8": ("ByteBuffer", "int8", "sbyte", "Int8Array", "int8_t"),
    "uint8": ("ByteBuffer", "uInt8", "byte", "Uint8Array", "uint8_t"),
    "int16": ("ShortBuffer", "int16", "short", "Int16Array", "int16_t"),
    "int32": ("IntBuffer", "int32", "int", "Int32Array", "int32_t"),
    "int64": ("LongBuffer", "int64", "long", "BigInt64Array", "int64_t"),
    "uint32": ("IntBuffer", "uInt32", "uint", "Uint32Array", "uint32_t"),
    "uint64": ("LongBuffer", "uInt64", "ulong", "BigUint64Array", "uint64_t"),
    "bool": ("ByteBuffer", "bool", "bool", "Uint8Array", "bool"),
}
# What a Kotlin or Java buffer does not tell by itself.
_JAVA_TYPES = ("float16", "uint8", "int8", "bool", "int16", "uint32", "uint64")


def cpp_type(spec: TensorSpec) -> str | None:
    """The C++ type of its elements; None for texts and what has no type there."""
    found = _TYPES.get(dtype_name(spec.dtype))
    return None if found is None else found[4]


@dataclass(frozen=True)
class _Language:
    """How a snippet writes its model's inputs and outputs; the text around them is a template.

    In the forms, {i} is the input's place, {name} its name in quotes, {kind} the language's word for its element type
    and {dims} its dims.

    Attributes:
        quote: makes a name a text of the language.
        column: of the language's words in `_TYPES`.
        parameter, feed, output: the forms.
        texts: those of an input of texts, parameter and feed.
        parts: what stands between feeds.
        lines: what stands between outputs.
    """

    quote: Callable[[str], str]
    column: int
    parameter: str
    feed: str
    texts: tuple[str, str]
    parts: str
    output: str = "{name}"
    lines: str = ", "

    def inputs(self, place: int, specs: Sequence[tuple[int, TensorSpec]]) -> list[str]:
        """The forms of inputs, filled: 0 for parameters, 1 for feeds."""
        own = (self.parameter, self.feed)[place]
        return [self.written(self.texts[place] if isinstance(s.dtype, str) else own, i, s) for i, s in specs]

    def written(self, form: str, index: int, spec: TensorSpec) -> str:
        """A form, filled for a tensor."""
        dtype = dtype_name(spec.dtype)
        kind = _TYPES[dtype][self.column] if dtype in _TYPES else ""
        dims = [d if isinstance(d, int) else 1 for d in spec.shape or ()]
        is_bool = kind == "bool"  # a std::vector of bool has no array inside
        return form.format(
            i=index,
            name=self.quote(spec.name),
            dtype=json.dumps(dtype),
            kind=kind,
            dims=", ".join(map(str, dims)),
            java=f", OnnxJavaType.{dtype.upper()}" if dtype in _JAVA_TYPES else "",
            reference=f"{kind}*" if is_bool else f"std::vector<{kind}>&",
            data=f"input{index}" if is_bool else f"input{index}.data()",
            count=math.prod(dims) if is_bool else f"input{index}.size()",
        )


def _utf8(name: str) -> str:
    """Swift and C++ write other letters than ASCII as they are; they have no escape of four digits, or another."""
    return json.dumps(name, ensure_ascii=False)


_LANGUAGES: Mapping[str, _Language] = {
    "Android.kt": _Language(
        lambda name: json.dumps(name).replace("$", "\\$"),
        0,
        "input{i}: {kind}",
        "{name} to OnnxTensor.createTensor(environment, input{i}, longArrayOf({dims}){java})",
        (
            "input{i}: Array<String>",
            "{name} to OnnxTensor.createTensor(environment, input{i}, longArrayOf({dims}))",
        ),
        ",\n        ",
        "// result.get({name}).get().value",
        "\n        ",
    ),
    "iOS.swift": _Language(
        _utf8,
        1,
        "input{i}: NSMutableData",
        "{name}: try ORTValue(tensorData: input{i}, elementType: .{kind},\n                shape: [{dims}])",
        ("input{i}: [String]", "{name}: try ORTValue(tensorStringData: input{i}, shape: [{dims}])"),
        ",\n            ",
    ),
    "Model.cs": _Language(
        json.dumps,
        2,
        "{kind}[] input{i}",
        "[{name}] = OrtValue.CreateTensorValueFromMemory(input{i}, new long[] {{ {dims} }})",
        (
            "string[] input{i}",
            "[{name}] = OrtValue.CreateFromStringTensor(new DenseTensor<string>(input{i}, new[] {{ {dims} }}))",
        ),
        ",\n            ",
    ),
    "Model.java": _Language(
        json.dumps,
        0,
        "{kind} input{i}",
        "feeds.put({name}, OnnxTensor.createTensor(environment, input{i}, new long[] {{{dims}}}{java}));",
        (
            "String[] input{i}",
            "feeds.put({name}, OnnxTensor.createTensor(environment, input{i}, new long[] {{{dims}}}));",
        ),
        "\n        ",
        "// result.get({name}).get().getValue()",
        "\n        ",
    ),
    "model.js": _Language(
        json.dumps,
        3,
        "input{i}",
        "{name}: new ort.Tensor({dtype}, input{i}, [{dims}]), // {kind}",
        ("input{i}", "{name}: new ort.Tensor({dtype}, input{i}, [{dims}]), // an array of texts"),
        "\n    ",
        "// results[{name}].data",
        "\n  ",
    ),
    "model.cpp": _Language(
        _utf8,
        4,
        "{reference} input{i}",
        "const std::vector<int64_t> dims{i}{{{dims}}};\n  inputs.push_back(\n"
        "      Ort::Value::CreateTensor<{kind}>(memory, {data}, {count}, dims{i}.data(), dims{i}.size()));",
        (
            "const std::vector<std::string>& input{i}",
            "const std::vector<int64_t> dims{i}{{{dims}}};\n"
            "  inputs.push_back(\n"
            "      Ort::Value::CreateTensor(Ort::AllocatorWithDefaultOptions(), dims{i}.data(), dims{i}.size(),\n"
            "                               ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING));\n"
            "  for (size_t k = 0; k < input{i}.size(); ++k)\n"
            "    inputs.back().FillStringTensorElement(input{i}[k].c_str(), k);",
        ),
        "\n  ",
    ),
}


def snippets(subject: Subject) -> dict[str, str]:
    """File name -> text. Inputs of types that these languages do not have, such as bfloat16, stand in the head only."""
    known = [(i, s) for i, s in enumerate(subject.inputs) if isinstance(s.dtype, str) or dtype_name(s.dtype) in _TYPES]
    head = [f"// {subject.name}: model.ort of this folder, ONNX Runtime"]
    for what, specs in (("input", subject.inputs), ("output", subject.outputs)):
        head += [f"// {what} {s.info()}".replace("\n", " ") for s in specs]
    found = {}
    for file, language in _LANGUAGES.items():
        values = {
            "HEAD": "\n".join(head) + "\n",
            "PARAMETERS": ", ".join(language.inputs(0, known)),
            "FEEDS": language.parts.join(language.inputs(1, known)),
            "NAMES": ", ".join(language.quote(s.name) for _, s in known),
            "OUTPUTS": language.lines.join(language.written(language.output, 0, s) for s in subject.outputs),
        }
        found[file] = filled(f"snippets/{file}", values)
    return found
