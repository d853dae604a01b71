"""What to write in an app, in each language, with this model's own names, shapes and element types."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence

from onnxtool.model.spec import TensorSpec, dtype_name
from onnxtool.packaging.kind import Subject

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
_JAVA_TYPES = {
    "float16": "FLOAT16",
    "uint8": "UINT8",
    "int8": "INT8",
    "bool": "BOOL",
    "int16": "INT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
}


def cpp_type(spec: TensorSpec) -> str | None:
    """The C++ type of its elements; None for texts and what has no type there."""
    found = _TYPES.get(dtype_name(spec.dtype))
    return None if found is None else found[4]


def snippets(subject: Subject) -> dict[str, str]:
    """File name -> text. Inputs of types without an array in these languages, such as texts, stand in the head only."""
    makers: Mapping[str, Callable[[Subject], str]] = {
        "Android.kt": _kotlin,
        "iOS.swift": _swift,
        "Model.cs": _csharp,
        "Model.java": _java,
        "model.js": _javascript,
        "model.cpp": _cpp,
    }
    return {name: make(subject) for name, make in makers.items()}


def example_dims(spec: TensorSpec) -> list[int]:
    """Its dims, 1 for each dynamic one."""
    return [d if isinstance(d, int) else 1 for d in spec.shape or ()]


def _known(specs: Sequence[TensorSpec]) -> list[tuple[int, TensorSpec]]:
    return [(i, s) for i, s in enumerate(specs) if dtype_name(s.dtype) in _TYPES]


def _head(subject: Subject, comment: str) -> str:
    lines = [f"{comment} {subject.name}: model.ort of this folder, ONNX Runtime"]
    for what, specs in (("input", subject.inputs), ("output", subject.outputs)):
        lines += [f"{comment} {what} {s.info()}" for s in specs]
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n\n"


def _text(name: str) -> str:
    return json.dumps(name).replace("$", "\\$")


def _utf8(name: str) -> str:
    """Swift and C++ write other letters than ASCII as they are; they have no escape of four digits, or another."""
    return json.dumps(name, ensure_ascii=False)


def _joined(parts: Sequence[object]) -> str:
    return ", ".join(map(str, parts))


def _tensor_java(spec: TensorSpec, index: int, shape: str) -> str:
    kind = dtype_name(spec.dtype)
    extra = f", OnnxJavaType.{_JAVA_TYPES[kind]}" if kind in _JAVA_TYPES else ""
    return f"OnnxTensor.createTensor(environment, input{index}, {shape}{extra})"


def _kotlin(subject: Subject) -> str:
    ids = _known(subject.inputs)
    parameters = _joined([f"input{i}: {_TYPES[dtype_name(s.dtype)][0]}" for i, s in ids])
    feeds = ",\n        ".join(
        f"{_text(s.name)} to {_tensor_java(s, i, f'longArrayOf({_joined(example_dims(s))})')}" for i, s in ids
    )
    outputs = "\n        ".join(f"// result.get({_text(s.name)}).get().value" for s in subject.outputs)
    return (
        _head(subject, "//") + '// build.gradle: implementation("com.microsoft.onnxruntime:onnxruntime-android:1.+")\n'
        "import ai.onnxruntime.*\nimport android.content.Context\nimport java.nio.*\n\n"
        "class Model(context: Context) : AutoCloseable {\n"
        "    private val environment = OrtEnvironment.getEnvironment()\n"
        '    private val session = environment.createSession(context.assets.open("model.ort").readBytes())\n\n'
        f"    fun run({parameters}): OrtSession.Result {{\n"
        f"        val feeds = mapOf(\n        {feeds})\n        {outputs}\n"
        "        return session.run(feeds)\n    }\n\n"
        "    override fun close() = session.close()\n}\n"
    )


def _java(subject: Subject) -> str:
    ids = _known(subject.inputs)
    parameters = _joined([f"{_TYPES[dtype_name(s.dtype)][0]} input{i}" for i, s in ids])
    feeds = "\n".join(
        f"        feeds.put({json.dumps(s.name)}, {_tensor_java(s, i, f'new long[] {{{_joined(example_dims(s))}}}')});"
        for i, s in ids
    )
    outputs = "\n".join(f"        // result.get({json.dumps(s.name)}).get().getValue()" for s in subject.outputs)
    return (
        _head(subject, "//") + "// com.microsoft.onnxruntime:onnxruntime\n"
        "import ai.onnxruntime.*;\nimport java.nio.*;\nimport java.util.*;\n\n"
        "public class Model implements AutoCloseable {\n"
        "    private final OrtEnvironment environment = OrtEnvironment.getEnvironment();\n"
        "    private final OrtSession session;\n\n"
        "    public Model(String path) throws OrtException {\n"
        "        session = environment.createSession(path);\n    }\n\n"
        f"    public OrtSession.Result run({parameters}) throws OrtException {{\n"
        f"        Map<String, OnnxTensor> feeds = new HashMap<>();\n{feeds}\n{outputs}\n"
        "        return session.run(feeds);\n    }\n\n"
        "    @Override\n    public void close() throws OrtException {\n        session.close();\n    }\n}\n"
    )


def _swift(subject: Subject) -> str:
    ids = _known(subject.inputs)
    parameters = _joined([f"input{i}: NSMutableData" for i, _ in ids])
    feeds = ",\n            ".join(
        f"{_utf8(s.name)}: try ORTValue(tensorData: input{i}, elementType: .{_TYPES[dtype_name(s.dtype)][1]},\n"
        f"                shape: [{_joined(example_dims(s))}])"
        for i, s in ids
    )
    outputs = _joined([_utf8(s.name) for s in subject.outputs])
    return (
        _head(subject, "//") + "// Package or pod: onnxruntime-objc\nimport Foundation\nimport OnnxRuntimeBindings\n\n"
        "final class Model {\n    private let session: ORTSession\n\n"
        "    init(path: String) throws {\n"
        "        let environment = try ORTEnv(loggingLevel: .warning)\n"
        "        let options = try ORTSessionOptions()\n"
        "        session = try ORTSession(env: environment, modelPath: path, sessionOptions: options)\n    }\n\n"
        f"    func run({parameters}) throws -> [String: ORTValue] {{\n"
        f"        let feeds = [\n            {feeds}]\n"
        f"        return try session.run(withInputs: feeds, outputNames: [{outputs}], runOptions: nil)\n    }}\n}}\n"
    )


def _csharp(subject: Subject) -> str:
    ids = _known(subject.inputs)
    parameters = _joined([f"{_TYPES[dtype_name(s.dtype)][2]}[] input{i}" for i, s in ids])
    feeds = ",\n            ".join(
        f"[{json.dumps(s.name)}] = OrtValue.CreateTensorValueFromMemory(input{i}, new long[] "
        f"{{ {_joined(example_dims(s))} }})"
        for i, s in ids
    )
    outputs = _joined([json.dumps(s.name) for s in subject.outputs])
    return (
        _head(subject, "//")
        + "// dotnet add package Microsoft.ML.OnnxRuntime\nusing System;\nusing System.Collections.Generic;\n"
        "using Microsoft.ML.OnnxRuntime;\n\npublic sealed class Model : IDisposable\n{\n"
        '    private readonly InferenceSession session = new("model.ort");\n\n'
        f"    public IDisposableReadOnlyCollection<OrtValue> Run({parameters})\n    {{\n"
        f"        var feeds = new Dictionary<string, OrtValue>\n        {{\n            {feeds}\n        }};\n"
        "        using var options = new RunOptions();\n"
        f"        return session.Run(options, feeds, new[] {{ {outputs} }});\n"
        "    }\n\n    public void Dispose() => session.Dispose();\n}\n"
    )


def _javascript(subject: Subject) -> str:
    ids = _known(subject.inputs)
    parameters = _joined([f"input{i}" for i, _ in ids])
    feeds = "\n".join(
        f"    {json.dumps(s.name)}: new ort.Tensor({json.dumps(dtype_name(s.dtype))}, input{i}, "
        f"{json.dumps(example_dims(s))}), // {_TYPES[dtype_name(s.dtype)][3]}"
        for i, s in ids
    )
    outputs = "\n".join(f"  // results[{json.dumps(s.name)}].data" for s in subject.outputs)
    return (
        _head(subject, "//") + "// npm install onnxruntime-node, or onnxruntime-react-native with the same calls\n"
        'import * as ort from "onnxruntime-node";\n\n'
        'const session = await ort.InferenceSession.create("model.ort");\n\n'
        f"export async function run({parameters}) {{\n  const results = await session.run({{\n{feeds}\n  }});\n"
        f"{outputs}\n  return results;\n}}\n"
    )


def _cpp(subject: Subject) -> str:
    ids = _known(subject.inputs)
    parameters = _joined([f"std::vector<{cpp_type(s)}>& input{i}" for i, s in ids if cpp_type(s) != "bool"])
    makes = []
    for i, spec in ids:
        kind, dims = cpp_type(spec), example_dims(spec)
        if kind == "bool":  # a std::vector of bool has no array inside
            parameters += f"{', ' if parameters else ''}bool* input{i}"
            data, count = f"input{i}", str(math.prod(dims))
        else:
            data, count = f"input{i}.data()", f"input{i}.size()"
        makes.append(
            f"  const std::vector<int64_t> dims{i}{{{_joined(dims)}}};\n"
            f"  inputs.push_back(\n      Ort::Value::CreateTensor<{kind}>(memory, {data}, {count}, dims{i}.data(), "
            f"dims{i}.size()));"
        )
    names = _joined([_utf8(s.name) for _, s in ids])
    outputs = _joined([_utf8(s.name) for s in subject.outputs])
    return (
        _head(subject, "//") + "#include <onnxruntime_cxx_api.h>\n\n#include <cstdint>\n#include <vector>\n\n"
        f"std::vector<Ort::Value> run(Ort::Session& session, {parameters}) {{\n"
        "  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);\n"
        "  std::vector<Ort::Value> inputs;\n" + "\n".join(makes) + "\n"
        f"  const char* names[] = {{{names}}};\n  const char* outputs[] = {{{outputs}}};\n"
        "  return session.Run(Ort::RunOptions{nullptr}, names, inputs.data(), inputs.size(), outputs, "
        f"{len(subject.outputs)});\n}}\n"
    )
