"""`--for triton`: a model repository of NVIDIA Triton, with measured threads; requests are not joined."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from onnxtool.model.spec import TensorSpec
from onnxtool.packaging.kind import PackageKind, Subject, write_smoke_test
from onnxtool.packaging.manifest import read_manifest
from onnxtool.packaging.server_process import ServerRunner, free_port
from onnxtool.report.package import Started
from onnxtool.runtime.protocol_v2.tensors import datatype
from onnxtool.runtime.runner import OnnxRunner, Runner

_STRINGS = "TYPE_STRING"


class Triton(PackageKind):
    """models/NAME/config.pbtxt and models/NAME/1/model.onnx."""

    name = "triton"
    title = "a model repository of NVIDIA Triton"
    commands = (
        "docker run --rm -p 8000:8000 -v $PWD/models:/models nvcr.io/nvidia/tritonserver:25.05-py3 "
        "tritonserver --model-repository /models",
        "python smoke_test.py http://127.0.0.1:8000",
    )

    def model_path(self, name: str) -> str:
        """Version 1 of the model."""
        return f"models/{name}/1/model.onnx"

    def write(self, folder: Path, subject: Subject) -> None:
        """The configuration and the smoke test."""
        text = config(subject)
        (folder / "models" / subject.name / "config.pbtxt").write_text(text, encoding="utf-8")
        name = json.dumps(subject.name)
        write_smoke_test(folder, "fastapi/smoke_test.py", {"NAME": name})

    def start(self, folder: Path, subject: Subject | None) -> tuple[Runner, Started]:
        """Triton where it is installed; else the file that it would load."""
        del subject
        manifest = read_manifest(folder)
        server = shutil.which("tritonserver")
        if server is None:
            runner = OnnxRunner.open(folder / manifest.model)
            return runner, Started("the model file in ONNX Runtime; there is no tritonserver here", complete=False)
        port = free_port()
        command = [server, "--model-repository", str(folder / "models"), "--http-address", "127.0.0.1"]
        command += ["--http-port", str(port), "--allow-grpc", "false", "--allow-metrics", "false"]
        return ServerRunner(command, folder, port, manifest.model_name), Started("tritonserver")

    def note(self, subject: Subject) -> str:
        """What the settings rest on."""
        return (
            f"`config.pbtxt` has the threads that were measured on a machine with {subject.figures.cores} cores.\n"
            "Requests are not joined (`max_batch_size: 0`): nothing shows that the rows of a batch do not change each\n"
            "other's answers.\n"
        )


def config(subject: Subject) -> str:
    """The text of config.pbtxt. With a max_batch_size of 0 Triton joins no requests, and all dims are the model's.

    Source: https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto
    """
    parts = [
        f"name: {json.dumps(subject.name)}",
        'backend: "onnxruntime"',
        "max_batch_size: 0  # requests are not joined: that rows are independent of each other is not shown",
        _tensors("input", subject.inputs),
        _tensors("output", subject.outputs),
        f"instance_group [ {{ kind: KIND_CPU count: {subject.figures.runs} }} ]",
        f'parameters {{ key: "intra_op_thread_count" value: {{ string_value: "{subject.figures.threads}" }} }}',
        'parameters { key: "inter_op_thread_count" value: { string_value: "1" } }',
    ]
    return "\n".join(parts) + "\n"


def _tensors(kind: str, specs: Sequence[TensorSpec]) -> str:
    entries = []
    for spec in specs:
        dims = [d if isinstance(d, int) else -1 for d in spec.shape or ()]
        name = datatype(spec.dtype)
        of_type = _STRINGS if name == "BYTES" else f"TYPE_{name}"
        # A tensor needs a dim here: one without gets a dim of 1, and is reshaped.
        shape = f"dims: {dims}" if dims else "dims: [ 1 ] reshape { shape: [ ] }"
        entries.append(f"  {{ name: {json.dumps(spec.name, ensure_ascii=False)} data_type: {of_type} {shape} }}")
    return f"{kind} [\n" + ",\n".join(entries) + "\n]"
