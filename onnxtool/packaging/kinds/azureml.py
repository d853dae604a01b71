"""`--for azureml`: model, scoring script, environment and endpoint of Azure Machine Learning."""

from __future__ import annotations

import sys
from pathlib import Path

from onnxtool.errors import UnsupportedError
from onnxtool.packaging.kind import PackageKind, Subject, constants, filled, write_smoke_test
from onnxtool.packaging.kinds.fastapi import checks, kept_blocks, slug, write_conda, write_requirements
from onnxtool.packaging.manifest import read_manifest
from onnxtool.packaging.protocol_module import write_protocol
from onnxtool.packaging.server_process import ScoringRunner, ScriptRunner, interpreter
from onnxtool.report.package import Started
from onnxtool.runtime.protocol_v2.tensors import datatype
from onnxtool.runtime.runner import Runner

_PACKAGES = ("numpy", "onnxruntime", "orjson")
_PROTOCOL = ("check_shared_dims", "decode_plain", "element_type", "load_json", "runtime_datatype", "to_lists")
_SERVER = "azureml-inference-server-http==1.5.1"


class AzureMl(PackageKind):
    """src/score.py, conda.yaml, model.yml, endpoint.yml, deployment.yml."""

    name = "azureml"
    carries_extensions = True
    title = "an online endpoint of Azure Machine Learning"
    commands = (
        "python smoke_test.py",
        "cd src && AZUREML_MODEL_DIR=../model azmlinfsrv --entry_script score.py    # Azure's own server, here",
        "az ml online-endpoint create -f endpoint.yml && "
        "az ml online-deployment create -f deployment.yml --all-traffic",
    )

    def model_path(self, name: str) -> str:
        """In a folder of its own, which is what is registered."""
        del name
        return "model/model.onnx"

    def write(self, folder: Path, subject: Subject) -> None:
        """Script, environment and the three YAML files.

        Raises:
            UnsupportedError: bfloat16, which the runtime's Python interface does not take.
        """
        for spec in (*subject.inputs, *subject.outputs):
            if datatype(spec.dtype) == "BF16":
                raise UnsupportedError(f"--for azureml: {spec.name!r} is bfloat16, which numpy does not have.")
        (folder / "src").mkdir()
        values = {"THREADS": f"{subject.figures.threads}  # measured", **checks(subject)}
        score = kept_blocks(constants("azureml/score.py", values), {"extensions": subject.takes_extensions})
        write_protocol(folder / "src", _PROTOCOL)
        (folder / "src" / "score.py").write_text(score, encoding="utf-8")
        write_smoke_test(folder, "azureml/smoke_test.py")
        places = {"SLUG": slug(subject.name), "RUNS": subject.figures.runs}
        for name in ("endpoint.yml", "model.yml", "deployment.yml"):
            (folder / name).write_text(filled(f"azureml/{name}", places), encoding="utf-8")
        write_requirements(folder, subject, _PACKAGES)
        pinned = (folder / "requirements.txt").read_text(encoding="utf-8").split()
        python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        write_conda(folder, slug(subject.name), python, [*pinned, _SERVER])

    def start(self, folder: Path, subject: Subject | None) -> tuple[Runner, Started]:
        """Azure's server in a fresh environment; else the scoring script's `init` and `run`, as it calls them."""
        manifest, fresh = read_manifest(folder), subject is not None and subject.fresh
        python, words = interpreter(folder, fresh, [_SERVER])
        if not fresh:
            return ScriptRunner(python, folder, *manifest.specs), Started(f"the scoring script in {words}")
        command = ["azmlinfsrv", "--entry_script", "score.py"]
        place = {"AZUREML_MODEL_DIR": str((folder / "model").absolute())}
        runner = ScoringRunner.start(python, command, folder / "src", ("/", "/score"), manifest.specs, place)
        return runner, Started(f"azmlinfsrv in {words}")
