"""A bill of materials for a model file: CycloneDX 1.6 JSON with a machine-learning component.

Source: CycloneDX specification 1.6, https://cyclonedx.org/docs/1.6/json/ (ML-BOM capability).

Not by cyclonedx-python-lib: version 11.12 has no model cards (`model_card` is commented out in its Component), which
tell a model's inputs and outputs; and `inspect --sbom` works on the base install.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from typing import Any

from onnxtool.model.file import ModelFile
from onnxtool.model.io import sha256
from onnxtool.model.provenance.metadata import read_history

_NAMESPACE = uuid.UUID("0f3f5c0e-6a0c-5c1e-9d2d-3d1f6f0a7b11")
_LICENCE_KEYS = ("license", "licence")


def sbom(model: str | os.PathLike[str]) -> dict[str, Any]:
    """The bill of materials of a model.

    Args:
        model: an .onnx file.

    Returns:
        A CycloneDX 1.6 document in plain JSON types; the same file gives the same document (no clock, no random id).

    Raises:
        InputError, UnsafeError, ResourceError: as `read_proto`.
    """
    from onnxtool import __version__

    file = ModelFile(model)
    digest = file.sha256
    history = read_history(file.header.metadata)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, digest)}",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "onnxtool", "version": __version__}]},
            "component": _model(file, history),
        },
        "components": [*_data_files(file), *_libraries(history)],
    }


def _model(file: ModelFile, history: list[dict[str, Any]]) -> dict[str, Any]:
    header, digest = file.header, file.sha256
    properties = {
        "onnx:irVersion": header.ir_version,
        "onnx:producer": header.producer,
        **{f"onnx:opset:{domain}": version for domain, version in header.opsets.items()},
        **{f"onnxtool:history:{i}": json.dumps(step, sort_keys=True) for i, step in enumerate(history)},
    }
    component: dict[str, Any] = {
        "type": "machine-learning-model",
        "bom-ref": f"model:{digest}",
        "name": file.path.name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "modelCard": {
            "modelParameters": {
                "inputs": [{"format": str(s.info())} for s in header.inputs],
                "outputs": [{"format": str(s.info())} for s in header.outputs],
            }
        },
        "properties": [{"name": k, "value": str(v)} for k, v in properties.items() if v not in (None, "")],
    }
    licence = next((v for k, v in header.metadata.items() if k.lower() in _LICENCE_KEYS), None)
    if licence:
        component["licenses"] = [{"license": {"name": licence}}]
    return component


def _data_files(file: ModelFile) -> list[dict[str, Any]]:
    return [
        {
            "type": "file",
            "bom-ref": f"data:{f.name}",
            "name": f.name,
            "hashes": [{"alg": "SHA-256", "content": sha256(f)}],
        }
        for f in file.external_files
    ]


def _libraries(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The packages that took part in making the file, as its history tells."""
    found: dict[str, str] = {}
    for step in history:
        versions = step.get("versions")
        if isinstance(versions, Mapping):
            found.update({str(k): str(v) for k, v in versions.items()})
        if step.get("onnxtool"):
            found["onnxtool"] = str(step["onnxtool"])
    return [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "scope": "excluded",  # took part in making the model; not needed to run it
        }
        for name, version in sorted(found.items())
    ]
