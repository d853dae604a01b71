"""`--for cpp`: a C++ class with the model's own inputs and outputs, a CMake project, and golden data as raw bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from onnxtool.errors import InputError, UnsupportedError
from onnxtool.model.spec import TensorSpec, dtype_name
from onnxtool.packaging.kind import PackageKind, Subject, filled
from onnxtool.packaging.kinds.fastapi import slug
from onnxtool.packaging.kinds.snippets import cpp_type
from onnxtool.packaging.manifest import read_manifest
from onnxtool.report.package import Started
from onnxtool.runtime.runner import OnnxRunner, Runner

# A folder with include/ (or the headers themselves) of ONNX Runtime; the wheel has the library and no headers.
INCLUDE_VARIABLE = "ONNXRUNTIME_INCLUDE"
_HEADER = "onnxruntime_cxx_api.h"
_SECONDS = 600
# A vector of bool has no array inside, and float16 is no type of C++17: their bytes are kept.
_STORED = {"bool": "uint8_t", "Ort::Float16_t": "uint16_t"}


class Cpp(PackageKind):
    """model.hpp, main.cpp, CMakeLists.txt."""

    name = "cpp"
    title = "C++ (ONNX Runtime)"
    commands = ("cmake -B build -DONNXRUNTIME=DIR && cmake --build build", "ctest --test-dir build")

    def write(self, folder: Path, subject: Subject) -> None:
        """The code, and the golden data as the test reads it.

        Raises:
            UnsupportedError: texts, or element types that C++ has no type for.
        """
        for spec in (*subject.inputs, *subject.outputs):
            if cpp_type(spec) is None:
                raise UnsupportedError(f"--for cpp: {spec.name!r} is {dtype_name(spec.dtype)}, which is not supported.")
        ins, outs = subject.inputs, subject.outputs
        cases = [f"case{i}" for i in range(len(subject.feeds))]
        values = {
            "SLUG": slug(subject.name),
            "CASES": " ".join(cases),
            "THREADS": subject.figures.threads,
            "INPUT_FIELDS": _fields("input", ins),
            "OUTPUT_FIELDS": _fields("output", outs),
            "FEEDS": _lines(ins, lambda i, s: f"inputs.push_back(value<{cpp_type(s)}>(given.input{i}));", 4),
            "INPUT_NAMES": ", ".join(json.dumps(s.name, ensure_ascii=False) for s in ins),
            "OUTPUT_NAMES": ", ".join(json.dumps(s.name, ensure_ascii=False) for s in outs),
            "COUNT": len(outs),
            "RESULTS": _lines(
                outs, lambda i, s: f"outputs.output{i} = tensor<{cpp_type(s)}, {_stored(s)}>(found[{i}]);", 4
            ),
            "READ": _lines(ins, lambda i, s: f'inputs.input{i} = read<{_stored(s)}>(folder + "input{i}");', 4),
            "WRITE": _lines(outs, lambda i, _: f'write(place + "output{i}", outputs.output{i});', 6),
            "EQUAL": _lines(
                outs, lambda i, s: f'same &= equal(read<{_stored(s)}>(folder + "output{i}"), outputs.output{i});', 4
            ),
        }
        for name in ("CMakeLists.txt", "model.hpp", "main.cpp"):
            (folder / name).write_text(filled(f"cpp/{name}", values), encoding="utf-8")
        reference = OnnxRunner.open(subject.path)
        for case, feeds in zip(cases, subject.feeds, strict=True):
            write_case(folder / "golden" / case, ins, feeds, "input")
            write_case(folder / "golden" / case, outs, reference.run(feeds), "output")

    def start(self, folder: Path, subject: Subject | None) -> tuple[Runner, Started]:
        """Compiled, where there is a compiler and the headers are named; else the file in the runtime."""
        del subject
        manifest = read_manifest(folder)
        compiler, include = compiler_and_headers()
        if compiler is None or include is None:
            lacking = "no C++ compiler here" if compiler is None else f"{INCLUDE_VARIABLE} does not name the headers"
            told = f"the model file in ONNX Runtime, not compiled: {lacking}"
            return OnnxRunner.open(folder / manifest.model), Started(told, complete=False)
        runner = CompiledRunner(compiler, include, folder, *manifest.specs)
        return runner, Started(f"compiled with {Path(compiler).name}, run beside the wheel's library")


def compiler_and_headers() -> tuple[str | None, Path | None]:
    """A C++ compiler of this machine, and the folder with ONNX Runtime's headers; None for what is not there."""
    compiler = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")
    named = os.environ.get(INCLUDE_VARIABLE)
    places = [Path(named), Path(named) / "include", Path(named) / "onnxruntime"] if named else []
    places += [Path("/usr/include/onnxruntime"), Path("/usr/local/include/onnxruntime")]
    return compiler, next((p for p in places if (p / _HEADER).is_file()), None)


def write_case(folder: Path, specs: Sequence[TensorSpec], arrays: Mapping[str, np.ndarray], word: str) -> None:
    """Arrays as input0.bin and input0.dims, in the order of the specs."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, spec in enumerate(specs):
        array = np.ascontiguousarray(arrays[spec.name])
        (folder / f"{word}{index}.bin").write_bytes(array.tobytes())
        dims = " ".join(map(str, np.shape(arrays[spec.name])))
        (folder / f"{word}{index}.dims").write_text(dims + "\n", encoding="ascii")


class CompiledRunner:
    """A package's program as a Runner: each run is a process."""

    def __init__(
        self, compiler: str, include: Path, folder: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> None:
        """Compile it.

        Args:
            compiler: of C++.
            include: with onnxruntime_cxx_api.h.
            folder: the package.
            inputs, outputs: of the model.

        Raises:
            InputError: it does not compile.
        """
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._folder = folder.absolute()
        self._scratch = tempfile.TemporaryDirectory(prefix="onnxtool-")
        self._program = Path(self._scratch.name) / "run"
        library = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"), None)
        if library is None:
            raise InputError("this onnxruntime has no shared library to link with.")
        command = [compiler, "-std=c++17", "-O1", f"-I{include}", str(self._folder / "main.cpp"), str(library)]
        # The program asks for the library's short name, which the wheel does not have.
        (Path(self._scratch.name) / "libonnxruntime.so.1").symlink_to(library)
        command += [f"-Wl,-rpath,{self._scratch.name}", "-o", str(self._program)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode:
            self._scratch.cleanup()
            said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:300])
            raise InputError(f"does not compile: {said[:300]}")

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One run.

        Raises:
            InputError: the program fails.
        """
        given, found = Path(self._scratch.name) / "given", Path(self._scratch.name) / "found"
        found.mkdir(exist_ok=True)
        write_case(given, self.inputs, feeds, "input")
        command = [str(self._program), str(self._folder / "model.onnx"), str(given), str(found)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode:
            raise InputError(f"the program fails: {done.stderr.strip()[:300] or done.returncode}")
        outputs = {}
        for index, spec in enumerate(self.outputs):
            assert not isinstance(spec.dtype, str)
            dims = [int(d) for d in (found / f"output{index}.dims").read_text().split()]
            outputs[spec.name] = np.fromfile(found / f"output{index}.bin", spec.dtype).reshape(dims)
        return outputs

    def close(self) -> None:
        """Remove the program."""
        self._scratch.cleanup()


def _stored(spec: TensorSpec) -> str:
    kind = cpp_type(spec) or ""
    return _STORED.get(kind, kind)


def _fields(word: str, specs: Sequence[TensorSpec]) -> str:
    return "\n".join(
        f"  Tensor<{_stored(s)}> {word}{i};  // {str(s.info()).replace(chr(10), ' ')}" for i, s in enumerate(specs)
    )


def _lines(specs: Sequence[TensorSpec], line: Any, indent: int) -> str:
    return "\n".join(" " * indent + line(i, s) for i, s in enumerate(specs))
