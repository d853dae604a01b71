"""`--for web`: a static page with onnxruntime-web, an ES module with types, and a demo; everything offline."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path

from onnxtool.errors import InputError, UnsupportedError, UsageError
from onnxtool.model import io
from onnxtool.model.header import read_header
from onnxtool.model.json_file import read_json
from onnxtool.model.spec import TensorSpec, dtype_name, shared_dims
from onnxtool.packaging.browser_runner import BrowserRunner, find_browser
from onnxtool.packaging.kind import MODEL, TEMPLATES, PackageKind, Subject, filled
from onnxtool.packaging.manifest import RUNTIME_PACKAGE, read_manifest
from onnxtool.report.package import Started
from onnxtool.runtime.runner import OnnxRunner, Runner

_PACKAGE = "onnxruntime-web"
# The WASM runtime, and the one with WebGPU, each with what it loads itself.
_RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
_WEBGPU = ("ort.webgpu.min.mjs", "ort-wasm-simd-threaded.asyncify.mjs", "ort-wasm-simd-threaded.asyncify.wasm")
_WASM = "ort-wasm-simd-threaded.wasm"
_JS = {
    "float32": "Float32Array",
    "float64": "Float64Array",
    "float16": "Float16Array | Uint16Array",
    "bool": "Uint8Array",
    "string": "string[]",
    "int64": "BigInt64Array",
    "uint64": "BigUint64Array",
    **{f"{u}int{bits}": f"{'Uint' if u else 'Int'}{bits}Array" for u in ("", "u") for bits in (8, 16, 32)},
}
_TEXT = 11
_MOST_BYTES = 2_000_000_000


class Web(PackageKind):
    """index.html, model.js, model.d.ts, demo.js, test.html and the runtime."""

    name = "web"
    title = "in the browser (onnxruntime-web)"
    commands = ("python serve.py", "open http://127.0.0.1:8080 and http://127.0.0.1:8080/test.html")

    def write(self, folder: Path, subject: Subject) -> None:
        """The page and the runtime beside it.

        Raises:
            UsageError: no folder of the runtime was named.
            UnsupportedError: element types or operators that the runtime does not have, or more than 2 GB.
        """
        runtime = runtime_folder(subject.web.runtime_folder)
        for spec in (*subject.inputs, *subject.outputs):
            if dtype_name(spec.dtype) not in _JS:
                raise UnsupportedError(f"--for web: {spec.name!r} is {dtype_name(spec.dtype)}, which browsers lack.")
        if io.total_bytes(subject.path) > _MOST_BYTES:
            raise UnsupportedError("--for web: the model has more than 2 GB, which a page cannot load.")
        if io.external_files(folder / MODEL):
            io.save(io.load(folder / MODEL), folder / MODEL, external=False)
            for extra in folder.glob(f"{MODEL}.*"):
                extra.unlink()
        missing = missing_operators(folder / MODEL, (runtime / "dist" / _WASM).read_bytes())
        if missing:
            raise UnsupportedError(f"--for web: {_PACKAGE} has no {', '.join(missing)}.")
        (folder / "runtime").mkdir()
        for name in _RUNTIME + _WEBGPU * _has_webgpu(subject):
            (folder / "runtime" / name).write_bytes((runtime / "dist" / name).read_bytes())
        licence = {k: read_json(runtime / "package.json").get(k) for k in ("name", "version", "license", "repository")}
        (folder / RUNTIME_PACKAGE).write_text(json.dumps(licence, indent=2) + "\n", encoding="utf-8")
        values = {
            "NAME": html.escape(subject.name),
            "WEBGPU": json.dumps(_has_webgpu(subject)),
            "INPUTS": json.dumps(_specs(subject.inputs)),
            "OUTPUTS": json.dumps(_specs(subject.outputs)),
            "SHARED": json.dumps(shared_dims(subject.inputs)),
            "INPUT_TYPES": _types(subject.inputs),
            "OUTPUT_TYPES": _types(subject.outputs),
            "CASES": json.dumps([f"case{i}.npz" for i in range(len(subject.feeds))]),
        }
        for name in ("index.html", "test.html", "model.js", "model.d.ts"):
            (folder / name).write_text(filled(f"web/{name}", values), encoding="utf-8")
        for name in ("demo.js", "npz.js", "serve.py"):
            (folder / name).write_bytes((TEMPLATES / "web" / name).read_bytes())

    def start(self, folder: Path, subject: Subject | None) -> tuple[Runner, Started]:
        """A headless browser; where there is none, the file in the native runtime."""
        manifest = read_manifest(folder)
        browser = find_browser(None if subject is None else subject.web.browser)
        if browser is None:
            told = "the model file in the native runtime; there is no Chromium here (--browser names one)"
            return OnnxRunner.open(folder / manifest.model), Started(told, complete=False)
        runner = BrowserRunner(browser, folder, *manifest.specs)
        return runner, Started(f"headless {browser.name}, WASM with {runner.facts.get('threads')} threads")

    def note(self, subject: Subject) -> str:
        """What the page needs of its host."""
        gpu = 'WebGPU is taken with `load({ device: "webgpu" })` where the browser has it.\n' * _has_webgpu(subject)
        return (
            "Static files: any host will do. Threads need two headers, which `serve.py` sends; without them one thread "
            "runs.\n`model.js` is the module to import in your own page, `model.d.ts` its types.\n"
        ) + gpu


def _has_webgpu(subject: Subject) -> bool:
    return subject.web.web_backend == "webgpu"


def runtime_folder(given: Path | None) -> Path:
    """The npm package onnxruntime-web: the folder itself, or node_modules with it.

    Raises:
        UsageError: none was named.
        InputError: it is not that package, or lacks a file.
    """
    if given is None:
        raise UsageError(
            f"--for web: name the npm package {_PACKAGE} with --runtime-folder DIR (npm install {_PACKAGE} makes "
            f"node_modules/{_PACKAGE})."
        )
    for folder in (given, given / _PACKAGE, given / "node_modules" / _PACKAGE, given / "package"):
        if (folder / "package.json").is_file() and read_json(folder / "package.json").get("name") == _PACKAGE:
            absent = [name for name in _RUNTIME + _WEBGPU if not (folder / "dist" / name).is_file()]
            if absent:
                raise InputError(f"{folder}: has no dist/{absent[0]}; this takes {_PACKAGE} 1.24 or later.")
            return folder
    raise InputError(f"{given}: is not the npm package {_PACKAGE}, and does not hold it.")


def missing_operators(model: Path, wasm: bytes) -> list[str]:
    """Operators whose very names the runtime does not know; that it runs the others shows in the browser.

    Args:
        model: an .onnx file.
        wasm: the runtime.
    """
    proto = io.read_proto(model)
    own = {f.name for f in proto.functions}
    names = {name.split(":")[-1].split("::")[-1].split(".")[-1] for name in read_header(proto).operators}
    # A compiler lets "Conv" be the end of "FusedConv", and makes numbers of short texts, which are not found then.
    return sorted(n for n in names - own if len(n) >= _TEXT and n.encode() + b"\0" not in wasm)


def _specs(specs: Sequence[TensorSpec]) -> list[dict[str, object]]:
    found = [{"name": s.name, "type": dtype_name(s.dtype), "dims": s.shape or (), "columns": s.columns} for s in specs]
    return [{key: value for key, value in entry.items() if key != "columns" or value} for entry in found]


def _types(specs: Sequence[TensorSpec]) -> str:
    lines = []
    for spec in specs:
        info = str(spec.info()).replace("*/", "* /")
        lines.append(f"  /** {info} */\n  {json.dumps(spec.name)}: Tensor<{_JS[dtype_name(spec.dtype)]}>;")
    return "\n".join(lines)
