"""No request is answered with 500, and every refusal is in the protocol's form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile_requests import JUNK, hostile_requests
from tests.serving.conftest import Running

TYPES = ("application/json", "text/csv", "image/png", "a/b", "", "multipart/form-data; boundary=X", "multipart/x")
FORM = b"--X\r\nContent-Type: text/csv\r\n\r\na,b\r\n1,2\r\n--X--"


def served_well(server: Running, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> None:
    status, _, answer = server.client().request(method, path, body, headers)
    assert status < 500, (method, path, status, answer)
    if status != 200:
        assert isinstance(json.loads(answer)["error"], str)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=hostile_requests("image", [1, 1, 8, 8], "logits"))
def test_no_request_is_a_fault_of_the_server(server: Running, asked: tuple[bytes, dict[str, str]]) -> None:
    body, headers = asked
    for path in ("/v2/models/digits/infer", "/predict/digits"):
        served_well(server, "POST", path, body, headers)
    assert server.client().request("GET", "/v2/health/ready")[0] == 200


def test_what_is_no_data_has_a_small_limit(server: Running) -> None:
    for path in ("index", "models/digits/load"):
        assert server.client().request("POST", f"/v2/repository/{path}", b"[" * 100_000)[0] == 413


@cache
def operations(server: Running) -> tuple[list[tuple[str, str, Any]], Any]:
    """Path, method and schema of a body of all that the server says that it has; and the document."""
    document = server.client().get("/openapi.json")
    found = [(p, m.upper(), operation) for p, methods in document["paths"].items() for m, operation in methods.items()]
    assert {"POST", "GET"} == {method for _, method, _ in found} and len(found) > 15
    return found, document


def values(schema: Mapping[str, Any], document: Any) -> st.SearchStrategy[Any]:
    """Values of a schema, in which some places hold something else."""
    if "$ref" in schema:
        return values(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document)
    kind = schema.get("type")
    good: st.SearchStrategy[Any] = JUNK
    if kind == "object":
        parts = {name: values(part, document) for name, part in schema.get("properties", {}).items()}
        required = {name: part for name, part in parts.items() if name in schema.get("required", ())}
        good = st.fixed_dictionaries(required, optional={n: p for n, p in parts.items() if n not in required})
    elif kind == "array":
        good = st.lists(values(schema["items"], document), max_size=3)
    elif kind == "string":
        good = st.sampled_from(["image", "FP32", "INT64", "BYTES", ""])
    elif kind == "integer":
        good = st.integers(-1, 9)
    return st.one_of(good, good, good, JUNK)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nothing_that_the_server_documents_answers_500(server: Running, data: st.DataObject) -> None:
    found, document = operations(server)
    path, method, operation = data.draw(st.sampled_from(found))
    path += data.draw(st.sampled_from([""] * 6 + ["/", "/x", "?a=%00", "%ff", "/versions/2", "/versions/1/infer"]))
    body = None
    if method == "POST":
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        given_ = data.draw(values(schema, document)) if data.draw(st.booleans()) else data.draw(JUNK)
        body = data.draw(st.sampled_from([json.dumps(given_).encode()] * 4 + [FORM, b"a,b\n1,2", b"\x89PNG", b""]))
    headers = {"Content-Type": data.draw(st.sampled_from(TYPES))}
    headers |= data.draw(st.sampled_from([{}, {}, {"Accept": "text/csv"}, {"Content-Encoding": "gzip"}]))
    served_well(server, method, path, body, headers)
