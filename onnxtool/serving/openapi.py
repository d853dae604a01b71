"""The OpenAPI document of a server, with the inputs and outputs of its own models, and a page that shows it offline."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from onnxtool import __version__
from onnxtool.runtime.input_kinds import takes_image, takes_table
from onnxtool.runtime.protocol_v2.tensors import tensor_metadata
from onnxtool.serving.repository import Served

_TENSOR = {
    "type": "object",
    "required": ["name", "datatype", "shape"],
    "properties": {
        "name": {"type": "string"},
        "datatype": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "data": {"type": "array", "items": {}},
        "parameters": {"type": "object"},
    },
}
_OBJECT: Mapping[str, Any] = {"type": "object"}


def openapi(models: Sequence[Served]) -> dict[str, Any]:
    """OpenAPI 3.1 of every path."""
    paths: dict[str, Any] = {
        "/v2/health/live": _get("The process is up."),
        "/v2/health/ready": _get("Models are loaded and the server takes requests; 503 when not."),
        "/metrics": _get("Metrics for Prometheus."),
        "/v2": _get("Name, version and extensions of the server."),
        "/v2/models": _get("Models and versions."),
        "/v2/models/stats": _get("Statistics of all models, as Triton has them."),
        "/v2/repository/index": _post("Models, versions and their states.", {"type": "object"}, {"type": "array"}),
    }
    for served in models:
        target, runner = served.target, served.engine.model
        base = f"/v2/models/{target.name}/versions/{target.version}"
        inputs, outputs = tensor_metadata(runner.inputs), tensor_metadata(runner.outputs)
        paths[base] = _get(f"Inputs and outputs of {target.name}.")
        paths[f"{base}/config"] = _get(f"The configuration of {target.name}, as Triton has it.")
        paths[f"{base}/stats"] = _get(f"Statistics of {target.name}, as Triton has them.")
        words = f"Run {target.name}: {_words(inputs)} -> {_words(outputs)}"
        asked, given = ({"$ref": f"#/components/schemas/Infer{what}"} for what in ("Request", "Response"))
        paths[f"{base}/infer"] = _post(words, asked, given)
        names = [i["name"] for i in inputs]
        plain = {"type": "object", "required": names, "properties": {n: {"type": "array", "items": {}} for n in names}}
        files = [*["image/*"] * takes_image(runner.inputs), *["text/csv"] * takes_table(runner.inputs)]
        files += ["multipart/form-data"] * bool(files)
        paths[f"/predict/{target.name}"] = _post(f"Run {target.name} on nested lists.", plain, files=files)
        for change in ("load", "unload"):
            path = f"/v2/repository/models/{target.name}/{change}"
            paths[path] = _post(f"{change.capitalize()} {target.name}; needs --model-control.", {"type": "object"})
    return {
        "openapi": "3.1.0",
        "info": {"title": "onnxtool serve", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {
                "Tensor": _TENSOR,
                "InferRequest": _message("inputs"),
                "InferResponse": _message("outputs"),
            }
        },
    }


def docs_page(models: Sequence[Served]) -> str:
    """The document as a page that needs nothing from elsewhere."""
    rows = []
    for path, methods in openapi(models)["paths"].items():
        for method, operation in methods.items():
            cells = (method.upper(), path, operation["summary"])
            rows.append("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells) + "</tr>")
    style = "body{font:16px sans-serif;margin:2em}td,th{text-align:left;padding:.3em 1em;border-bottom:1px solid #ccc}"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>onnxtool serve</title><style>{style}</style>"
        "<h1>onnxtool serve</h1><p>The same for machines: <a href=/openapi.json>openapi.json</a></p>"
        f"<table><tr><th>Method<th>Path<th>What it does</tr>{''.join(rows)}</table></html>"
    )


def _get(summary: str) -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": {"200": {"description": "OK"}, **_OTHERWISE}}}


def _post(
    summary: str, asked: dict[str, Any], given: Mapping[str, Any] = _OBJECT, files: Sequence[str] = ()
) -> dict[str, Any]:
    content = {"application/json": {"schema": asked}, **{kind: {} for kind in files}}
    body = {"required": True, "content": content}
    return {"post": {"summary": summary, "requestBody": body, "responses": _responses(given)}}


def _responses(schema: Mapping[str, Any]) -> dict[str, Any]:
    told = {
        "400": "malformed, or does not fit the model",
        "413": "too large",
        "429": "too many requests wait",
        "504": "took too long",
    }
    good = {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}, **_OTHERWISE}
    return good | {status: _fault(text) for status, text in told.items()}


def _fault(text: str) -> dict[str, Any]:
    shape = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    return {"description": text, "content": {"application/json": {"schema": shape}}}


_OTHERWISE = {"default": _fault("an error, such as 404 for what is not served now")}


def _message(key: str) -> dict[str, Any]:
    tensors = {"type": "array", "items": {"$ref": "#/components/schemas/Tensor"}}
    return {"type": "object", "required": [key], "properties": {key: tensors, "id": {"type": "string"}}}


def _words(tensors: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"{t['name']} {t['datatype']}{t['shape']}" for t in tensors)
