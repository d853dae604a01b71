"""A server as its clients see it: answers, statuses, drain."""

from __future__ import annotations

import datetime
import gzip
import io
import json
import math
import shutil
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxtool.errors import InputError, UsageError
from onnxtool.options.serve import ServeOptions
from onnxtool.runtime.protocol_v2.client import RemoteRunner
from onnxtool.runtime.protocol_v2.tensors import HEADER_LENGTH, encode_request
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.serving.access import Token, read_tokens
from onnxtool.serving.repository import Repository
from onnxtool.serving.targets import parse_targets
from onnxtool.serving.telemetry import Log, Metrics
from tests.serving.conftest import Running

BOMB = gzip.compress(bytes(65 << 20), 1)
INFER = "/v2/models/digits/infer"
OUTPUT = "logits"


def images(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(seed).random((rows, 1, 8, 8), np.float32)}


def post(server: Running, body: bytes, path: str = INFER, **headers: str) -> tuple[int, dict[str, object]]:
    status, _, answer = server.client().request(
        "POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()}
    )
    return status, json.loads(answer)


@pytest.mark.parametrize("rows", [1, 3])
def test_answers_are_those_of_the_model(server: Running, digits_onnx: Path, rows: int) -> None:
    feeds = images(rows)
    expected = OnnxRunner.open(digits_onnx).run(feeds)["logits"]
    assert np.array_equal(server.runner("digits").run(feeds)["logits"], expected)
    plain = {
        "id": "7",
        "inputs": [{"name": "image", "datatype": "FP32", "shape": [rows, 1, 8, 8], "data": feeds["image"].tolist()}],
    }
    status, answer = post(server, json.dumps(plain).encode())
    assert status == 200 and answer["id"] == "7"
    (output,) = answer["outputs"]
    assert np.array_equal(np.float32(output["data"]).reshape(output["shape"]), expected)
    status, answer = post(server, json.dumps({"image": feeds["image"].tolist()}).encode(), "/predict")
    assert status == 200 and np.array_equal(np.float32(answer["logits"]), expected)


def test_metadata_names_inputs_outputs_and_versions(server: Running) -> None:
    found = server.client().get("/v2/models/digits")
    assert found["versions"] == ["1", "10"]
    assert found["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 8, 8]}]
    assert found["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 10]}]
    assert server.client().get("/v2/models/digits/versions/10/ready")["ready"] is True
    assert server.client().get("/v2/health/ready") == {"ready": True}
    assert {"binary_tensor_data", "classification"} < set(server.client().get("/v2")["extensions"])


def test_without_a_version_the_highest_number_answers(server: Running) -> None:
    body = b"".join(encode_request(images(1), binary=False)[0])
    assert post(server, body)[1]["model_version"] == "10"
    assert post(server, body, "/v2/models/digits/versions/1/infer")[1]["model_version"] == "1"


def test_the_largest_classes_are_those_of_the_output(server: Running) -> None:
    image = {"name": "image", "datatype": "FP32", "shape": [2, 1, 8, 8], "data": [0.5] * 128}
    asked = {"name": OUTPUT, "parameters": {"classification": 3}}
    (output,) = post(server, json.dumps({"inputs": [image], "outputs": [asked]}).encode())[1]["outputs"]
    values = server.runner("digits").run({"image": np.full((2, 1, 8, 8), 0.5, np.float32)})[OUTPUT]
    best = [[f"{row[i]:f}:{i}" for i in np.argsort(-row, kind="stable")[:3]] for row in values]
    assert output["shape"] == [2, 3] and output["data"] == np.ravel(best).tolist()


def test_configuration_and_statistics_are_in_the_form_of_triton(server: Running) -> None:
    found = server.client().get("/v2/models/digits/versions/1/config")
    assert found["input"] == [{"name": "image", "data_type": "TYPE_FP32", "dims": [-1, 1, 8, 8]}]
    assert found["instance_group"] == [{"kind": "KIND_CPU", "count": 1}]

    def counts() -> dict[str, int]:
        (told,) = server.client().get("/v2/models/digits/versions/1/stats")["model_stats"]
        counted = {name: told[name] for name in ("inference_count", "execution_count", "last_inference")}
        return counted | {name: part["count"] for name, part in told["inference_stats"].items()}

    before, began = counts(), 1e3 * time.time()
    for shape in ((1, 1, 8, 8), (64, 1, 8, 8)):
        server.runner("digits/versions/1").run({"image": np.zeros(shape, np.float32)})
    now = counts()
    assert abs(now.pop("last_inference") - began) < 60_000
    two = {"inference_count": 65, **dict.fromkeys(("execution_count", "success", "queue", "compute_infer"), 2)}
    assert now == {name: before[name] + two.get(name, 0) for name in now}
    every = server.client().get("/v2/models/stats")["model_stats"]
    versions = server.client().get("/v2/models/digits/stats")["model_stats"]
    assert versions == every and [told["version"] for told in versions] == ["1", "10"]


def test_models_are_unloaded_and_loaded_by_request(server: Running, fixtures: Path) -> None:
    refused = server.client().request("POST", "/v2/repository/models/digits/unload")
    assert refused[0] == 403 and server.client().get("/v2/models/digits")["versions"] == ["1", "10"]
    model = fixtures / "digits_cnn.onnx"
    running = Running(f"a={model}", f"b={model}", "--model-control", "--reload", "off")

    def ask(path: str, **body: object) -> tuple[int, Any]:
        status, _, text = running.client().request("POST", f"/v2/repository/{path}", json.dumps(body).encode())
        return status, json.loads(text)

    def states() -> dict[str, str]:
        return {entry["name"]: entry["state"] for entry in ask("index")[1]}

    for _ in range(2):  # the second time there is nothing to do
        assert ask("models/a/unload", parameters={"unload_dependents": False}) == (200, {})
        assert states() == {"a": "UNAVAILABLE", "b": "READY"}
    assert [entry["name"] for entry in ask("index", ready=True)[1]] == ["b"]
    status, _, told = running.client().request("GET", "/v2/models/a")
    assert status == 404 and b"no model 'a' here; there is b." in told
    assert ask("models/b/unload") == (200, {})
    assert running.client().request("POST", "/predict")[::2] == (404, b'{"error":"no model is served now."}')
    assert ask("models/b/load") == (200, {})
    assert ask("models/c/load")[0] == 404 and ask("models/a/load", parameters={"config": "{}"})[0] == 400
    for _ in range(2):
        assert ask("models/a/load") == (200, {})
        assert states() == {"a": "READY", "b": "READY"}
    assert running.runner("a").run({"image": np.zeros((1, 1, 8, 8), np.float32)})
    assert running.stop() == 0


def test_a_load_by_request_takes_what_the_files_hold_now(tmp_path: Path) -> None:
    def write(version: int, scale: float) -> Path:
        text = f"""<ir_version: 10, opset_import: ["" : 20]>
        m (float[n] x) => (float[n] y) <float s = {{{scale}}}> {{ y = Mul(x, s) }}"""
        path = tmp_path / "scale" / str(version) / "model.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(onnx.parser.parse_model(text), path)
        return path

    write(1, 2.0)
    running = Running(tmp_path / "scale", "--model-control", "--reload", "off")

    def answer() -> float:
        return float(running.runner("scale").run({"x": np.ones(1, np.float32)})["y"][0])

    def load() -> int:
        return running.client().request("POST", "/v2/repository/models/scale/load", b"{}")[0]

    for version, scale in ((1, 3.0), (2, 4.0)):
        path, before = write(version, scale), answer()
        assert before != scale
        assert load() == 200 and answer() == scale
    path.write_bytes(b"no model")
    assert load() == 400 and answer() == 4.0
    shutil.rmtree(path.parent)
    assert load() == 200 and answer() == 3.0
    assert running.stop() == 0


def test_documents_itself(server: Running) -> None:
    document = server.client().get("/openapi.json")
    assert document["openapi"].startswith("3.1")
    assert "/v2/models/digits/versions/10/infer" in document["paths"]
    page = server.client().request("GET", "/docs")[2].decode()
    assert "/predict/digits" in page and "http://" not in page and "https://" not in page


def test_counts_and_times(server: Running) -> None:
    server.runner("digits").run(images(1))
    post(server, b"{")
    text = server.metrics()
    for name in ("request_duration_seconds_bucket", "inference_duration_seconds_sum", "batch_size_sum"):
        assert f"onnxtool_{name}{{" in text
    assert 'onnxtool_errors_total{kind="bad_request"}' in text
    assert 'route="/v2/models/{model}/infer",status="400"' in text


def entry(**changes: object) -> bytes:
    made = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.0] * 64} | changes
    return json.dumps({"inputs": [made]}).encode()


def asking(**changes: object) -> bytes:
    return json.dumps(json.loads(entry()) | changes).encode()


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 400),
        (b"{", {}, 400),
        (b"[1]", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b'{"inputs": []}', {}, 400),
        (entry(datatype="FP16"), {}, 400),
        (entry(datatype="FP99"), {}, 400),
        (entry(datatype="INT64"), {}, 400),
        (entry(shape=[1, 1, 8]), {}, 400),
        (entry(shape=[-1, 1, 8, 8]), {}, 400),
        (entry(shape=[1, 1, 8, 2**62]), {}, 400),
        (entry(shape=[2**62, 2**62, 2**62, 0], data=[]), {}, 400),
        (entry(shape="1"), {}, 400),
        (entry(data=["a"] * 64), {}, 400),
        (entry(data=[1e300] * 64), {}, 400),
        (entry(data=[True, 2] * 32), {}, 400),
        (entry(data=[math.nan] * 64), {}, 400),
        (entry(data=[-math.inf] * 64), {}, 400),
        (entry().replace(b"0.0,", b"1e400,"), {}, 400),
        (entry(name="other"), {}, 400),
        (entry(parameters={"shared_memory_region": "r"}), {}, 400),
        (asking(parameters={"binary_data_output": "false"}), {}, 400),
        (asking(parameters=[]), {}, 400),
        (asking(parameters={"sequence_id": 1}), {}, 400),
        (asking(outputs={}), {}, 400),
        (asking(outputs=[{"name": OUTPUT, "parameters": {"binary_data": 1}}]), {}, 400),
        (asking(outputs=[{"name": OUTPUT, "parameters": {"classification": 0}}]), {}, 400),
        (asking(parameters={"classification": 3}), {}, 400),
        (asking(outputs=[{"name": OUTPUT, "parameters": {"shared_memory_region": "r"}}]), {}, 400),
        (gzip.compress(entry(), mtime=0), {"Content_Encoding": "br"}, 415),
        (entry(data=None), {}, 400),
        (entry(parameters={"binary_data_size": 256}), {}, 400),
        (entry(parameters={"binary_data_size": 2**63}), {"Inference_Header_Content_Length": "20"}, 400),
        (entry(), {"Inference_Header_Content_Length": "-1"}, 400),
        (entry(), {"Inference_Header_Content_Length": "99999999999999999999"}, 400),
        (entry(), {"Inference_Header_Content_Length": "0"}, 400),
        (b"--X", {"Content_Type": "multipart/form-data; boundary=X"}, 415),
        (b" " * 200_001, {}, 413),
    ],
)
def test_what_is_malformed_is_the_clients_fault(
    server: Running, body: bytes, headers: dict[str, str], status: int
) -> None:
    got, answer = post(server, body, **headers)
    assert got == status, answer
    assert isinstance(answer["error"], str)
    assert server.client().get("/v2/health/live") == {"live": True}


def test_a_compressed_body_is_the_plain_one(server: Running) -> None:
    body = entry()
    plain = post(server, body)
    for coding, packed in (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body))):
        assert post(server, packed, **{"Content-Encoding": coding})[1]["outputs"] == plain[1]["outputs"]


@pytest.mark.parametrize(
    ("packed", "coding", "status"),
    [
        (b"no", "gzip", 400),
        (gzip.compress(b"{}")[:-4], "gzip", 400),
        (zlib.compress(b"{}") + b"more", "deflate", 400),
        (gzip.compress(b"{}") * 2, "gzip", 400),
        (BOMB, "gzip", 413),
        (b"{}", "br", 415),
    ],
    ids=["no gzip", "cut off", "more behind", "members", "a bomb", "unknown"],
)
def test_compressed_bodies_that_are_refused(server: Running, packed: bytes, coding: str, status: int) -> None:
    found, answer = post(server, packed, **{"Content-Encoding": coding})
    assert found == status
    assert isinstance(answer["error"], str)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("POST", "/v2/models/none/infer", 404),
        ("GET", "/v2/models/digits/versions/3", 404),
        ("GET", INFER, 405),
        ("POST", "/predict/none", 404),
        ("DELETE", "/v2/models/digits", 405),
    ],
)
def test_paths_that_are_not_there(server: Running, method: str, path: str, status: int) -> None:
    assert server.client().request(method, path, b"")[0] == status


def test_an_output_that_json_cannot_hold_is_said_to_be_so(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Log", ["x"], ["y"])],
        "log",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tmp_path / "m.onnx")
    server = Running(tmp_path / "m.onnx", "--reload", "off", "--batching", "off")
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [-1.0, 1.0]}]}).encode()
    status, answer = post(server, body, "/v2/models/m/infer")
    assert status == 422 and "NaN" in str(answer["error"])
    got = server.runner("m").run({"x": np.float32([-1, 0])})["y"]
    assert np.isnan(got[0]) and np.isneginf(got[1])
    assert server.stop() == 0


def test_a_drain_loses_no_request(digits_onnx: Path) -> None:
    """Clients send without pause; SIGTERM comes; every request that was sent has its answer, then connects fail."""
    server = Running(digits_onnx, "--reload", "off", "--batching", "off")
    feeds = images(1)
    expected = OnnxRunner.open(digits_onnx).run(feeds)["logits"]
    parts, length = encode_request(feeds)
    body, headers = b"".join(parts), {HEADER_LENGTH: str(length)}
    answered, lost, begun = [0, 0, 0], [], threading.Barrier(4)

    def load(index: int) -> None:
        runner = server.runner("digits_cnn")
        begun.wait()
        while True:
            try:
                if runner._client._connection.sock is None:
                    runner._client._connection.connect()
            except OSError:
                return  # the server takes no more connections
            status, _, _ = runner._client.request("POST", "/v2/models/digits_cnn/infer", body, headers)
            if status != 200:
                lost.append(status)
            answered[index] += 1

    def guarded(index: int) -> None:
        try:
            load(index)
        except InputError as error:
            lost.append(str(error))

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    begun.wait()
    np.testing.assert_array_equal(server.runner("digits_cnn").run(feeds)["logits"], expected)
    assert server.stop() == 0
    for thread in threads:
        thread.join()
    assert lost == []
    assert min(answered) > 0


def test_tokens_are_asked_for(digits_onnx: Path, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("# people\nsecret\nslow 1/h\n")
    server = Running(digits_onnx, "--token-file", tmp_path / "tokens", "--reload", "off", "--batching", "off")
    with pytest.raises(InputError, match="status 401"):
        server.runner("digits_cnn", token="Secret")
    assert server.client().request("GET", "/metrics")[0] == 401
    assert server.client().get("/v2/health/live") == {"live": True}
    assert server.runner("digits_cnn", token="secret").run(images(1))["logits"].shape == (1, 10)
    slow = server.client(token="slow")
    assert slow.request("GET", "/v2")[0] == 200
    status, headers, _ = slow.request("GET", "/v2")
    assert status == 429 and 3500 < int(headers["retry-after"]) <= 3600
    assert slow.request("GET", "/v2/health/ready")[0] == 200 and server.client(token="secret").get("/v2")
    assert server.stop() == 0


def test_a_model_that_does_not_pass_check_is_not_served(
    onnxtool: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x01junk")
    done = onnxtool("serve", tmp_path / "bad.onnx", "--port", "0")
    assert done.returncode == 3
    assert "bad.onnx: this is not an ONNX file" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("fails", ["PrivateCopy", "admit", "verify_protocol", "choose_batch"])
def test_a_model_that_is_refused_leaves_no_copy(
    digits_onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InputError("refused")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = digits_onnx
    if fails == "PrivateCopy":
        model = tmp_path / "bad.onnx"
        model.write_bytes(b"\x08\x01junk")
    else:
        place = "onnxtool.benchmark.batching" if fails == "choose_batch" else "onnxtool.serving.repository"
        monkeypatch.setattr(f"{place}.{fails}", refuse)
    repository = Repository(ServeOptions(batching="auto"), Metrics(), Log(io.StringIO()), list)
    with pytest.raises(InputError) as caught:
        repository.load(parse_targets([str(model)]))
    assert not list(tmp_path.glob("onnxtool-serve-*")), caught.value


def test_the_report_tells_what_was_served(digits_onnx: Path, tmp_path: Path) -> None:
    server = Running(digits_onnx, "--reload", "off", "--batching", "off", "--json", tmp_path / "report.json")
    server.runner("digits_cnn").run(images(1))
    assert post(server, b"{", "/predict")[0] == 400
    assert server.stop() == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["url"] == server.url
    assert (report["requests"], report["failures"]) == (3, 1)  # metadata, a run, a failure


def test_a_taken_port_is_a_usage_error(
    server: Running, onnxtool: Callable[..., CompletedProcess[str]], digits_onnx: Path
) -> None:
    done = onnxtool("serve", digits_onnx, "--port", server.port)
    assert done.returncode == 2 and "cannot be bound" in done.stderr


def test_compare_takes_an_endpoint(
    server: Running, onnxtool: Callable[..., CompletedProcess[str]], digits_onnx: Path
) -> None:
    good = onnxtool("compare", digits_onnx, f"{server.url}/v2/models/digits", "--effort", "quick", "--json")
    assert good.returncode == 0, good.stdout + good.stderr
    assert json.loads(good.stdout)["b"] == f"{server.url}/v2/models/digits"
    gone = onnxtool("compare", digits_onnx, "http://127.0.0.1:9/v2/models/digits")
    assert gone.returncode == 3 and "no answer" in gone.stderr


def test_a_server_with_several_models_must_be_told_which(server: Running) -> None:
    assert isinstance(RemoteRunner(server.url), RemoteRunner)  # one model in two versions
    with pytest.raises(UsageError, match="not a URL"):
        RemoteRunner("ftp://127.0.0.1")


def test_names_and_versions_of_targets(digits_onnx: Path, tmp_path: Path) -> None:
    for version in ("2", "10"):
        (tmp_path / "family" / version).mkdir(parents=True)
        (tmp_path / "family" / version / "model.onnx").write_bytes(digits_onnx.read_bytes())
    found = parse_targets([str(digits_onnx), f"a={digits_onnx}", f"a:3={digits_onnx}", str(tmp_path / "family")])
    assert [(t.name, t.version) for t in found] == [
        ("digits_cnn", "1"),
        ("a", "1"),
        ("a", "3"),
        ("family", "2"),
        ("family", "10"),
    ]
    with pytest.raises(UsageError, match="twice"):
        parse_targets([str(digits_onnx)] * 2)
    with pytest.raises(UsageError, match="URL"):
        parse_targets([f"a/b={digits_onnx}"])
    for name in ("a\nb", "..", "a%2fb", "a b"):
        with pytest.raises(UsageError, match="does not fit into a URL"):
            parse_targets([f"{name}={digits_onnx}"])
    with pytest.raises(UsageError, match="does not fit into a URL"):
        parse_targets([f"a:.={digits_onnx}"])
    with pytest.raises(InputError, match="no such file"):
        parse_targets(["none.onnx"])


def test_tls(digits_onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate(tmp_path)
    files = ("--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem")
    server = Running(digits_onnx, *files, "--reload", "off", "--batching", "off")
    assert server.url.startswith("https://")
    url = server.url.replace("127.0.0.1", "localhost")
    with pytest.raises(InputError, match="CERTIFICATE_VERIFY_FAILED"):
        RemoteRunner(url)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    expected = OnnxRunner.open(digits_onnx).run(images(1))["logits"]
    assert np.array_equal(RemoteRunner(url).run(images(1))["logits"], expected)
    assert server.stop() == 0


def test_a_certificate_needs_its_key(
    onnxtool: Callable[..., CompletedProcess[str]], digits_onnx: Path, tmp_path: Path
) -> None:
    done = onnxtool("serve", digits_onnx, "--tls-cert", tmp_path / "cert.pem")
    assert done.returncode == 2 and "both" in done.stderr


def certificate(folder: Path) -> None:
    """A self-signed one for localhost."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


def test_a_token_file_holds_a_token(tmp_path: Path) -> None:
    (tmp_path / "none").write_text("# nothing\n\n")
    with pytest.raises(InputError, match="holds no token"):
        read_tokens(tmp_path / "none")


def test_a_token_has_a_rate() -> None:
    second = Token("secret 4/s")
    assert [second.take(9.0) for _ in range(5)] == [0, 0, 0, 0, 0.25]
    assert second.take(9.25) == 0 and second.take(9.25) == 0.25 and second.take(99.0) == 0
    minute = Token("secret  30/min")
    assert [minute.take(at) for at in (9.0, 9.0, 10.5, 11.0)] == [0, 2, 0.5, 0]
    assert not any(Token("slow 1/h").take(1234.5678 * k) for k in range(1000))  # the first, whatever the clock says
    assert Token("secret").take(0.0) == 0 and Token("secret").header == Token("secret 4/s").header
    for wrong in ("secret 4", "secret 0/s", "secret -1/s", "secret 1/day", "secret a b"):
        with pytest.raises(InputError, match="rate must be"):
            Token(wrong)


def test_a_file_says_what_each_model_has(fixtures: Path, tmp_path: Path) -> None:
    model = fixtures / "digits_cnn.onnx"
    (tmp_path / "serve.toml").write_text(
        f"port = 0\nreload = 'off'\n[models.two]\npath = '{model}'\nworkers = 2\n[models.plain]\npath = '{model}'\n"
        f"[models.measured]\npath = '{model}'\nworkers = 'auto'\nwarm-up = 2\n"
    )
    server = Running(tmp_path / "serve.toml")
    for name in ("two", "plain", "measured"):
        assert server.runner(name).run(images(1))["logits"].shape == (1, 10)
    measured = next(e for e in server.said if e["event"] == "workers")
    configs = {name: server.client().get(f"/v2/models/{name}/config") for name in ("two", "plain", "measured")}
    counts = {name: config["instance_group"][0]["count"] for name, config in configs.items()}
    assert counts == {"two": 2, "plain": 1, "measured": measured["count"]}
    assert server.stop() == 0
