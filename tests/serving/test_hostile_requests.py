"""No request is answered with 500, and every refusal is in the protocol's form."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings

from tests.hostile_requests import hostile_requests
from tests.serving.conftest import Running


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=hostile_requests("image", [1, 1, 8, 8], "logits"))
def test_no_request_is_a_fault_of_the_server(server: Running, asked: tuple[bytes, dict[str, str]]) -> None:
    body, headers = asked
    for path in ("/v2/models/digits/infer", "/predict/digits"):
        status, _, answer = server.client().request("POST", path, body, headers)
        assert status < 500, (status, answer)
        if status != 200:
            assert isinstance(json.loads(answer)["error"], str)
    assert server.client().request("GET", "/v2/health/ready")[0] == 200
