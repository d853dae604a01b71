"""`--for fastapi`: an endpoint that a person could have written, and that keeps its limits."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import TensorProto, helper

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from onnxtool.packaging.kinds.fastapi import application_command
from onnxtool.packaging.package import package
from onnxtool.packaging.server_process import ServerProcess, ServerRunner, clean_environment, free_port
from onnxtool.runtime.protocol_v2.client import V2Client
from tests.hostile_requests import hostile_requests
from tests.packaging.conftest import counts_who_leaves, saved
from tests.runtime.test_empty_inputs import recurrent


@pytest.fixture(scope="module")
def folder(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "endpoint"
    report = package(tiny, out, kinds=["fastapi"])
    assert report.ok and report.packages[0].proof.started.complete
    return out


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-I", "-B", "-m", "uvicorn", "app:app", "--app-dir", ".", "--port", str(port)]
    runner = ServerRunner(command, folder, port, "tiny")
    yield f"http://127.0.0.1:{port}"
    runner.close()


def post(url: str, path: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    status, _, answer = V2Client(url).request("POST", path, body, headers or {})
    return status, answer


def test_needs_nothing_of_onnxtool(folder: Path) -> None:
    for path in folder.rglob("*.py"):
        assert "onnxtool" not in path.read_text(encoding="utf-8")
    pinned = (folder / "requirements.txt").read_text().split()
    assert {line.split("==")[0] for line in pinned} >= {"fastapi", "uvicorn", "onnxruntime", "numpy"}
    assert all("==" in line for line in pinned)
    assert "COPY app.py protocol.py " in (folder / "Dockerfile").read_text()


def test_its_smoke_test_knows_good_from_bad(folder: Path, url: str, tmp_path: Path) -> None:
    command = [sys.executable, str(folder / "smoke_test.py"), url]
    good = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    assert good.returncode == 0 and good.stdout.count("equal") == 3, good.stderr
    other = tmp_path / "other"
    (other / "golden").mkdir(parents=True)
    for name in ("smoke_test.py", "recorded.py"):
        (other / name).write_bytes((folder / name).read_bytes())
    arrays = dict(np.load(folder / "golden" / "case0.npz"))
    np.savez(other / "golden" / "case0.npz", **{n: a + 1 if n.startswith("output/") else a for n, a in arrays.items()})
    bad = subprocess.run([command[0], str(other / "smoke_test.py"), url], capture_output=True, text=True, check=False)
    assert bad.returncode == 1 and "differs" in bad.stdout


def test_predict_takes_plain_json(url: str) -> None:
    for body in (b'{"x": [[1, 2, 3]]}', b"[[1, 2, 3]]"):
        status, answer = post(url, "/predict", body)
        assert status == 200 and json.loads(answer) == {"y": [[0.0, 8.5]]}


def entry(**changes: object) -> bytes:
    made = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1.0, 2.0, 3.0]} | changes
    return json.dumps({"inputs": [made]}).encode()


def whole(**changes: object) -> bytes:
    return json.dumps(json.loads(entry()) | changes).encode()


def test_every_error_is_in_the_form_of_the_protocol(url: str) -> None:
    for method, path, expected in (("GET", "/nothing", 404), ("GET", "/predict", 405)):
        status, _, answer = V2Client(url).request(method, path)
        assert status == expected and isinstance(json.loads(answer)["error"], str)
    assert post(url, "/predict", b'{"x": [[1, 2, 3]], "z": 1}')[0] == 400
    failed = V2Client(url).request("GET", "/metrics")[2]
    assert b'errors_total{status="400"}' in failed


def test_a_body_that_an_offer_of_http_2_has_lost_is_told(url: str) -> None:
    """As Java's HttpClient offers it; uvicorn with httptools drops the body, with h11 it does not."""
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
    status, answer = post(url, "/predict", b'{"x": [[1, 2, 3]]}', offer)
    assert (status == 400 and b"HTTP/1.1 alone" in answer) or status == 200, answer


def test_a_client_that_leaves_is_no_fault_of_the_server_s(url: str) -> None:
    assert counts_who_leaves(url, "/predict")


def test_docs_show_what_a_request_is(url: str) -> None:
    paths = V2Client(url).get("/openapi.json")["paths"]
    assert paths["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]["required"] == ["x"]
    assert "requestBody" in paths["/v2/models/tiny/infer"]["post"]


def test_outputs_come_as_they_were_asked_for(mixed: Path, tmp_path: Path) -> None:
    package(mixed, tmp_path / "out", kinds=["fastapi"])
    command, port, _ = application_command(tmp_path / "out", fresh=False)
    server = ServerProcess(command, tmp_path / "out", port)
    values = {"ids/0": ("INT64", [[1, 2]]), "flag": ("BOOL", [[True, False]]), "half.x": ("FP16", [[1, 2]])}
    sent = {
        "inputs": [
            *({"name": n, "datatype": t, "shape": [1, 2], "data": v} for n, (t, v) in values.items()),
            {"name": "text", "datatype": "BYTES", "shape": [0, 2], "data": []},
        ],
        "outputs": [{"name": "half.x:out"}, {"name": "flag:out"}],
    }
    try:
        status, answer = post(server.url, "/v2/models/mixed_types/infer", json.dumps(sent).encode())
        assert status == 400 and "'n'" in json.loads(answer)["error"]  # 1 row in three inputs, 0 in the fourth
        sent["inputs"][-1] |= {"shape": [1, 2], "data": ["a", "b"]}
        status, answer = post(server.url, "/v2/models/mixed_types/infer", json.dumps(sent).encode())
        assert status == 200
        assert [(o["name"], o["data"]) for o in json.loads(answer)["outputs"]] == [
            ("half.x:out", [1.0, 2.0]),
            ("flag:out", [True, False]),
        ]
    finally:
        server.close()


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", {}),
        (b"[" * 100_000, {}),
        (b"[]", {}),
        (b'{"inputs": 5}', {}),
        (b'{"inputs": []}', {}),
        (entry(name="z"), {}),
        (entry(shape=[1, 4]), {}),
        (entry(shape=[-1, -3]), {}),
        (entry(shape=[2**62, 2**62]), {}),
        (entry(datatype="FP64"), {}),
        (entry(datatype="FP99"), {}),
        (entry(data=["a", "b", "c"]), {}),
        (entry(data=[1e300, 0, 0]), {}),
        (entry(data=[[1.0], [2.0, 3.0]]), {}),
        (entry(parameters={"binary_data_size": 2**60}), {}),
        (entry(parameters={"binary_data_size": 12}), {"Inference-Header-Content-Length": "20"}),
        (entry(), {"Inference-Header-Content-Length": "-5"}),
        (entry(), {"Inference-Header-Content-Length": "x"}),
        (entry(), {"Inference-Header-Content-Length": "\u00b2"}),
        (entry(data=[True, 2.0, 3.0]), {}),
        (entry().replace(b"3.0", b"1e400"), {}),
        (entry().replace(b"3.0", b"NaN"), {}),
        (entry().replace(b'"datatype"', b'"datatype": "FP32", "datatype"'), {}),
        (entry(shape=[0, 3], data=[]).replace(b"FP32", b"FP64"), {}),
        (whole(outputs=5), {}),
        (whole(outputs=[5]), {}),
        (whole(outputs=[{"name": "other"}]), {}),
        (whole(outputs=[{"name": "y", "parameters": []}]), {}),
        (whole(outputs=[{"name": "y", "parameters": {"classification": 0}}]), {}),
        (whole(outputs=[{"name": "y", "parameters": {"shared_memory_region": "r"}}]), {}),
        (whole(parameters=7), {}),
        (whole(parameters={"binary_data_output": "false"}), {}),
    ],
)
def test_what_is_malformed_is_400_in_the_form_of_the_protocol(url: str, body: bytes, headers: dict[str, str]) -> None:
    status, answer = post(url, "/v2/models/tiny/infer", body, headers)
    assert status == 400, answer
    assert isinstance(json.loads(answer)["error"], str)
    assert post(url, "/predict", b"[[1, 2, 3]]")[0] == 200


def test_tells_its_health_and_metrics(url: str) -> None:
    client = V2Client(url)
    assert client.get("/v2/health/ready") == {"ready": True}
    assert client.get("/v2/models/tiny")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert b"request_duration_seconds_bucket" in client.request("GET", "/metrics")[2]


def test_every_element_type_comes_through(mixed: Path, tmp_path: Path) -> None:
    report = package(mixed, tmp_path / "out", kinds=["fastapi"])
    assert report.ok
    assert {o.name for o in report.packages[0].proof.outputs} == {"ids/0:out", "flag:out", "half.x:out", "text:out"}


def test_the_image_runs_as_nobody_in_particular(folder: Path) -> None:
    text = (folder / "Dockerfile").read_text()
    assert "@" not in text and text.count("FROM ") == 2
    assert "USER 10001" in text and "HEALTHCHECK" in text
    assert "runAsNonRoot: true" in (folder / "kubernetes.yaml").read_text()
    assert "@" not in (folder / "kubernetes.yaml").read_text() + (folder / "compose.yaml").read_text()


def test_a_model_of_columns_takes_a_table(tiny: Path, url: str, folder: Path) -> None:
    """The table of `tiny` is its one matrix."""
    for same in (b"1,2,3", b"true, 2.0,+3"):
        status, answer = post(url, "/predict", b"a,b,c\n" + same, {"Content-Type": "text/csv"})
        assert status == 200 and json.loads(answer) == {"y": [[0.0, 8.5]]}
    status, answer = post(url, "/predict", b"a,b,c\n1,,3", {"Content-Type": "text/csv"})  # as `run` reads it
    assert status == 422 and "NaN" in json.loads(answer)["error"]
    told = {
        b"": "is empty",
        b"a,b,c\n": "no row",
        b"a,b,c\n1,2\n": "line 2 has 2 cells",
        b"a,b,c\n1,2,3\n\n1,2,x\n": "line 4, column 'c'",
        b"a,b,c\n1,2,1_0\n": "'1_0' is not a number",
        b"a,b,c\n1,2,-1e400\n": "'-1e400' is too large",
        b"\xff": "UTF-8",
    }
    for broken, reason in told.items():
        status, answer = post(url, "/predict", broken, {"Content-Type": "text/csv"})
        assert status == 400 and reason in json.loads(answer)["error"]
    assert "Image" not in (folder / "app.py").read_text()
    for headers in ({"Content-Type": "image/png"}, {"Content-Type": "text/csv", "Content-Encoding": "gzip"}):
        status, answer = post(url, "/predict", b"a,b,c\n1,2,3\n", headers)
        assert status == 415 and "error" in json.loads(answer)


def test_columns_and_classes_are_known_by_their_names(tiny: Path, tmp_path: Path) -> None:
    model = onnx.load(tiny)
    model.metadata_props.add(key="onnxtool.columns", value='{"x": ["a", "b", "c"], "y": ["no", "yes"]}')
    onnx.save(model, tmp_path / "named.onnx")
    package(tmp_path / "named.onnx", tmp_path / "out", kinds=["fastapi"])
    command, port, _ = application_command(tmp_path / "out", fresh=False)
    server, csv = ServerProcess(command, tmp_path / "out", port), {"Content-Type": "text/csv"}
    try:
        for body, headers in (
            (b"a,b,c\n1,2,3\n", csv),
            (b"c,d,a,b\n3,9,1,2\n", csv),
            (b'\xef\xbb\xbfa;"d, e, f, g";c;b\r\n1;9;3;2\r\n', csv),
            (b'{"c": [3], "a": [1], "b": [2]}', {}),
            (b'[{"c": 3, "a": 1, "b": 2}]', {}),
            (b"[[1, 2, 3]]", {}),
        ):
            status, answer = post(server.url, "/predict", body, headers)
            assert status == 200 and json.loads(answer) == {"y": [[0.0, 8.5]]}
        for body, headers in ((b"a,b,d\n1,2,3\n", csv), (b"a,b,c,c\n1,2,3,4\n", csv), (b'{"a": [1], "b": [2]}', {})):
            status, answer = post(server.url, "/predict", body, headers)
            assert status == 400 and "'c'" in json.loads(answer)["error"]
        body = whole(outputs=[{"name": "y", "parameters": {"classification": 1}}])
        status, answer = post(server.url, "/v2/models/named/infer", body)
        assert json.loads(answer)["outputs"][0]["data"] == ["8.500000:1:yes"]
    finally:
        server.close()


def test_a_model_of_pixels_takes_an_image(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    graph = helper.make_graph(
        [helper.make_node("Cast", ["pixels"], ["y"], to=TensorProto.FLOAT)],
        "pixels",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, [1, "height", "width", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "height", "width", 3])],
    )
    saved(graph, tmp_path / "pixels.onnx")
    package(tmp_path / "pixels.onnx", tmp_path / "out", kinds=["fastapi"])
    assert "pillow==" in (tmp_path / "out" / "requirements.txt").read_text()
    assert "import csv" not in (tmp_path / "out" / "app.py").read_text()
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    file = io.BytesIO()
    image.fromarray(pixels).save(file, "PNG")
    command, port, _ = application_command(tmp_path / "out", fresh=False)
    server, kind = ServerProcess(command, tmp_path / "out", port), {"Content-Type": "image/png"}
    try:
        status, answer = post(server.url, "/predict", file.getvalue(), kind)
        assert status == 200 and np.array_equal(json.loads(answer)["y"], pixels[None])
        assert post(server.url, "/predict", b"\x89PNG", kind)[0] == 400
        form = b"--X\r\nContent-Type: image/png\r\n\r\n%s\r\n--X--\r\n" % file.getvalue()
        sent = {"Content-Type": "multipart/form-data; boundary=X"}
        for told in (form, form.replace(b"image/png", b"application/octet-stream")):
            assert post(server.url, "/predict", told, sent) == (200, answer)
        assert post(server.url, "/predict", b"--X", sent)[0] == 400
    finally:
        server.close()


def test_the_code_that_is_left_out_leaves_no_trace(mixed: Path, tmp_path: Path) -> None:
    package(mixed, tmp_path / "out", kinds=["fastapi"])
    text = (tmp_path / "out" / "app.py").read_text()
    assert not any(word in text for word in ("[image", "[table", "from_image", "from_table", "import csv", "PIL"))


def test_a_request_that_would_end_the_process_is_refused(tmp_path: Path) -> None:
    model, out = tmp_path / "gru.onnx", tmp_path / "endpoint"
    onnx.save(recurrent("GRU"), model)
    assert package(model, out, kinds=["fastapi"]).ok
    code = (
        "import sys, numpy as np; sys.path.insert(0, '.'); import app\n"
        "app.verify({'x': np.zeros((2, 1, 3), np.float32)})\n"
        "try: app.verify({'x': np.zeros((2, 0, 3), np.float32)})\n"
        "except app.InputError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=out, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("'x' has shape [2, 0, 3], which holds nothing")


@settings(max_examples=150, deadline=None)
@given(asked=hostile_requests("x", [1, 3], "y"))
def test_no_request_is_a_fault_of_the_endpoint(url: str, asked: tuple[bytes, dict[str, str]]) -> None:
    body, headers = asked
    for path in ("/v2/models/tiny/infer", "/predict"):
        status, answer = post(url, path, body, headers)
        assert status < 500, (status, answer)
        if status != 200:
            assert isinstance(json.loads(answer)["error"], str)
