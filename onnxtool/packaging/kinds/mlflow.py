"""`--for mlflow`: a model folder of MLflow with its onnx flavour, and pyfunc for `mlflow models serve`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.model import io
from onnxtool.model.provenance.metadata import versions
from onnxtool.model.spec import TensorSpec, dtype_name
from onnxtool.packaging.kind import MODEL, PackageKind, Subject, constants, write_smoke_test
from onnxtool.packaging.kinds.fastapi import checks, write_conda
from onnxtool.packaging.manifest import read_manifest
from onnxtool.packaging.protocol_module import write_protocol
from onnxtool.packaging.server_process import ScoringRunner, ScriptRunner, interpreter
from onnxtool.report.package import Started
from onnxtool.runtime.input_kinds import table_columns
from onnxtool.runtime.runner import OnnxRunner, Runner

# What the requirements name where MLflow itself is not installed here.
_MLFLOW = "3.17.2"
_PACKAGES = ("onnx", "onnxruntime", "numpy", "orjson")
# What the small MLflow does not bring: mlflow.onnx imports pandas, `mlflow models serve` starts the others.
_BESIDE = ("pandas", "fastapi", "uvicorn")
_PROTOCOL = ("check_shared_dims", "decode_plain", "element_type", "runtime_datatype")
_KINDS = {"f": "double", "i": "long", "u": "long", "b": "boolean"}


class MlFlow(PackageKind):
    """MLmodel, code/, conda.yaml, python_env.yaml, requirements.txt."""

    name = "mlflow"
    title = "an MLflow model (onnx flavour)"
    commands = (
        "pip install -r requirements.txt",
        "python smoke_test.py    # mlflow.pyfunc.load_model on this folder",
        "mlflow models serve -m . --env-manager local --port 5000",
    )

    def write(self, folder: Path, subject: Subject) -> None:
        """The files of an MLflow model; JSON is YAML too, so that names need no other quoting."""
        mlflow = subject.versions.get("mlflow") or subject.versions.get("mlflow-skinny") or _MLFLOW
        requirements = [f"mlflow-skinny=={mlflow}", *(f"{p}=={subject.versions[p]}" for p in _PACKAGES)]
        requirements += [f"{p}=={subject.versions[p]}" if p in subject.versions else p for p in _BESIDE]
        python = ".".join(map(str, sys.version_info[:3]))
        digest = io.sha256(folder / MODEL)[:32]
        loader = f"frames_{digest}"  # one process may load several models, and has one module of each name
        document: dict[str, Any] = {
            "flavors": {
                "onnx": {
                    "code": None,
                    "data": MODEL,
                    "onnx_session_options": {"intra_op_num_threads": subject.figures.threads},
                    "onnx_version": subject.versions["onnx"],
                    "providers": ["CPUExecutionProvider"],
                },
                "python_function": {
                    "code": "code",
                    "data": MODEL,
                    "env": {"conda": "conda.yaml", "virtualenv": "python_env.yaml"},
                    "loader_module": loader,
                    "python_version": python,
                },
            },
            "mlflow_version": mlflow,
            "model_size_bytes": io.total_bytes(folder / MODEL),
            "model_uuid": digest,
        }
        inputs = _columns(subject.inputs) or _schema(subject.inputs)
        if inputs:
            outputs = json.dumps(_schema(subject.outputs)) if _schema(subject.outputs) else None
            document["signature"] = {"inputs": json.dumps(inputs), "outputs": outputs, "params": None}
        _write_code(folder / "code", loader, subject)
        environment = {"python": python, "build_dependencies": ["pip"], "dependencies": ["-r requirements.txt"]}
        write_conda(folder, "mlflow-env", python, requirements)
        for name, content in (("MLmodel", document), ("python_env.yaml", environment)):
            (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        (folder / "requirements.txt").write_text("\n".join(requirements) + "\n", encoding="utf-8")
        write_smoke_test(folder, "mlflow/smoke_test.py")

    def start(self, folder: Path, subject: Subject | None) -> tuple[Runner, Started]:
        """MLflow's server in a fresh environment; MLflow where it is installed; else the file that it would load."""
        manifest = read_manifest(folder)
        fresh = subject is not None and subject.fresh
        if not fresh and not versions("mlflow", "mlflow-skinny"):
            runner = OnnxRunner.open(folder / manifest.model)
            told = "the model file in ONNX Runtime; mlflow is not installed (--fresh-venv installs it)"
            return runner, Started(told, complete=False)
        python, words = interpreter(folder, fresh)
        if fresh and not _columns(manifest.specs[0]):  # of a table with columns by name, MLflow takes frames
            command = ["mlflow", "models", "serve", "-m", ".", "--env-manager", "local"]
            served = ScoringRunner.start(python, command, folder, ("/ping", "/invocations"), manifest.specs)
            return served, Started(f"mlflow models serve in {words}")
        return ScriptRunner(python, folder, *manifest.specs), Started(f"mlflow.pyfunc.load_model in {words}")


def _write_code(folder: Path, loader: str, subject: Subject) -> None:
    """The module that MLflow loads, and the protocol beside it."""
    folder.mkdir()
    write_protocol(folder, _PROTOCOL)
    titles = {s.name: [f"{s.name}[{label}]" for label in s.columns] for s in subject.outputs if s.columns}
    values = {"THREADS": subject.figures.threads, "TITLES": repr(titles), **checks(subject)}
    own = f"protocol_{loader}"
    (folder / "protocol.py").rename(folder / f"{own}.py")
    text = constants("mlflow/frames.py", values).replace("from protocol import", f"from {own} import")
    (folder / f"{loader}.py").write_text(text, encoding="utf-8")


def _columns(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    """A table whose columns have names, for data frames, whose numbers are doubles; nothing for other models."""
    names, types = table_columns(specs), {s.name: s.dtype for s in specs}
    return [
        {"name": name, "type": _column_type(types[own]), "required": True}
        for own, columns in names.items()
        for name in columns
    ]


def _column_type(dtype: np.dtype[Any] | str) -> str:
    return "string" if isinstance(dtype, str) else _KINDS.get(dtype.kind, "double")


def _schema(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    """Tensors with their names; nothing where one is of texts, which MLflow has no element type for."""
    if any(isinstance(s.dtype, str) for s in specs):
        return []
    return [
        {
            "name": s.name,
            "type": "tensor",
            "tensor-spec": {
                "dtype": dtype_name(s.dtype),
                "shape": [d if isinstance(d, int) else -1 for d in s.shape or ()],
            },
        }
        for s in specs
    ]
