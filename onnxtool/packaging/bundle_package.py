"""A bundle as a folder with an endpoint in the form of OpenAI's API, on onnxruntime-genai."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError, UnsupportedError, VerdictError
from onnxtool.generation.bundle import Bundle, staged_folder
from onnxtool.generation.bundle import record as record_provenance
from onnxtool.generation.generate import generate
from onnxtool.model.provenance.metadata import versions
from onnxtool.packaging.kind import Figures, constants, filled
from onnxtool.packaging.kinds.fastapi import FastApi, application_command, write_container
from onnxtool.packaging.kinds.kserve import KServe
from onnxtool.packaging.manifest import (
    Manifest,
    describe_package,
    package_name,
    verify_output,
    write_manifest,
    write_sbom,
)
from onnxtool.packaging.protocol_module import write_chat_protocol
from onnxtool.packaging.server_process import ServerProcess
from onnxtool.report.package import PackageProof, PackageReport, Started
from onnxtool.runtime import cpu
from onnxtool.runtime.protocol_v2.client import V2Client
from onnxtool.runtime.protocol_v2.tensors import load_json

_PACKAGES = (
    "fastapi",
    "onnxruntime-genai",
    "tokenizers",
    "onnxruntime",
    "numpy",
    "prometheus-client",
    "uvicorn",
    "httptools",
    "uvloop",
)
_PROMPTS = ("The", "Once upon a time", "1 2 3 4")
_TOKENS = 16
_KINDS: Mapping[str, type[FastApi]] = {kind.name: kind for kind in (FastApi, KServe)}


def package_bundle(
    bundle: Path, output: Path, *, kinds: Sequence[str], name: str | None = None, fresh: bool = False
) -> PackageReport:
    """Write the endpoint of a bundle, after it has given the texts that `generate` gives.

    Args:
        bundle: the folder.
        output: the folder to write.
        kinds: "fastapi" or "kserve", one of them.
        name: of the model; that of the folder unless given.
        fresh: prove it in a fresh virtual environment.

    Raises:
        UnsupportedError: another kind.
        VerdictError: the endpoint gives another text; nothing is written.
    """
    asked = list(dict.fromkeys(kinds))
    if len(asked) != 1 or asked[0] not in _KINDS:
        raise UnsupportedError("a bundle is packaged --for fastapi or kserve; other places take no key-value cache.")
    kind = _KINDS[asked[0]]
    verify_output(output)
    opened, called = Bundle.open(bundle), package_name(bundle, name)
    golden = [_case(bundle, prompt) for prompt in _PROMPTS]
    with staged_folder(output) as staged:
        shutil.copytree(bundle, staged / "model")
        _write(staged, opened, called, golden, kind)
        started = _prove(staged, golden, fresh)
        proof = PackageProof(started, len(golden), (), True, "tested")
        made = describe_package(staged, output, kind.name, proof, kind.commands)
        report = PackageReport(str(bundle), (made,), workers=1, threads=cpu.usable_cores())
        record_provenance(staged, f"package --for {kind.name}", bundle, report, earlier=bundle)
    return report


def _case(bundle: Path, prompt: str) -> dict[str, Any]:
    found = generate(bundle, prompt=prompt, max_tokens=_TOKENS)
    return {"prompt": prompt, "max_tokens": _TOKENS, "text": found.text, "tokens": list(found.tokens)}


def _write(folder: Path, bundle: Bundle, name: str, golden: Sequence[dict[str, Any]], kind: type[FastApi]) -> None:
    app = constants("fastapi/bundle_app.py", {"NAME": json.dumps(name)})
    (folder / "app.py").write_text(app, encoding="utf-8")
    write_chat_protocol(folder)
    (folder / "smoke_test.py").write_text(filled("fastapi/bundle_smoke_test.py", {}), encoding="utf-8")
    (folder / "golden.json").write_text(json.dumps(golden, indent=2) + "\n", encoding="utf-8")
    found = versions(*_PACKAGES)
    pinned = "\n".join(f"{p}=={found[p]}" for p in _PACKAGES if p in found)
    (folder / "requirements.txt").write_text(pinned + "\n", encoding="utf-8")
    cores = cpu.usable_cores()
    memory = bundle.size // 1_000_000 * 2 + 512
    figures = Figures(workers=1, threads=cores, runs=1, cores=cores, latency=0.0, memory_mb=memory)
    write_container(folder, name, figures, "app.py protocol.py model model/", kind.places)
    dockerfile = (folder / "Dockerfile").read_text(encoding="utf-8")
    # A folder is copied into the image under its own name.
    dockerfile = dockerfile.replace(
        "COPY app.py protocol.py model model/ ./", "COPY app.py protocol.py ./\nCOPY model ./model"
    )
    (folder / "Dockerfile").write_text(dockerfile, encoding="utf-8")
    values = {
        "NAME": name,
        "TITLE": "a language model in the form of OpenAI's API (FastAPI, onnxruntime-genai)",
        "COMMANDS": "\n".join(f"    {c}" for c in kind.commands),
        "TENSORS": f"| context | {bundle.context} tokens |\n| vocabulary | {bundle.vocabulary} |",
        "NOTE": "",
    }
    readme = filled("every/README.md", values)
    readme = readme.replace("`golden/` holds recorded inputs and outputs", "`golden.json` holds recorded texts")
    (folder / "README.md").write_text(readme, encoding="utf-8")
    write_sbom(folder, f"model/{bundle.model.name}")
    write_manifest(folder, Manifest("fastapi-bundle", name, f"model/{bundle.model.name}", [], []))


def _prove(folder: Path, golden: Sequence[dict[str, Any]], fresh: bool) -> Started:
    command, port, words = application_command(folder, fresh)
    server = ServerProcess(command, folder, port)
    client = V2Client(server.url, token="", seconds=600)
    try:
        for case in golden:
            ask = {"prompt": case["prompt"], "max_tokens": case["max_tokens"], "temperature": 0}
            status, _, body = client.request("POST", "/v1/completions", json.dumps(ask).encode())
            if status != 200:
                raise InputError(f"--for fastapi: status {status}: {body[:200].decode('utf-8', 'replace')}")
            text = load_json(body)["choices"][0]["text"]
            if text != case["text"]:
                raise VerdictError(
                    f"--for fastapi: the endpoint continues {case['prompt']!r} with {text[:80]!r}, the bundle itself "
                    f"with {case['text'][:80]!r}; nothing was written."
                )
    finally:
        client.close()
        server.close()
    return Started(f"uvicorn in {words}, greedy texts of {len(golden)} prompts")
