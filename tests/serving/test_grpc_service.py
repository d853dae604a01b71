"""The V2 protocol over gRPC gives and refuses what it does over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor
from onnx import parser

pytest.importorskip("grpc")

import grpc

from onnxtool.options.serve import ServeOptions
from onnxtool.serving.app import App, State
from onnxtool.serving.grpc_service import GrpcService, message_classes
from onnxtool.serving.inference_routes import InferenceRoutes
from onnxtool.serving.repository import Repository
from onnxtool.serving.telemetry import Log, Metrics
from tests.serving.conftest import Running

MESSAGES = message_classes()
SENT = [("authorization", "Bearer secret")]
KINDS = {
    "FP32": ("float", np.float32([1.5, -2, np.inf, 3])),
    "FP64": ("double", np.float64([1.5, -2, 1e300, 3])),
    "FP16": ("float16", np.float16([1.5, -2, 6, 3])),
    "BOOL": ("bool", np.array([True, False, True, True])),
    "BYTES": ("string", np.array(["a", "", "Zürich", "\n"], object)),
    **{
        f"{sign}INT{bits}": (f"{sign.lower()}int{bits}", np.array([0, 1, 5, 7], f"{sign.lower()}int{bits}"))
        for sign in ("", "U")
        for bits in (8, 16, 32, 64)
    },
}


class Client:
    """Calls of one server."""

    def __init__(self, server: Running, port: int) -> None:
        self.server, self.port = server, port
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")

    def call(self, called: str, /, token: str = "secret", **fields: Any) -> Any:
        method = self.channel.unary_unary(
            f"/inference.GRPCInferenceService/{called}",
            request_serializer=MESSAGES[f"{called}Request"].SerializeToString,
            response_deserializer=MESSAGES[f"{called}Response"].FromString,
        )
        sent = [("authorization", f"Bearer {token}")]
        return method(MESSAGES[f"{called}Request"](**fields), timeout=60, metadata=sent)

    def fails(self, called: str, /, **fields: Any) -> tuple[str, str]:
        """Code and message of a call that fails."""
        with pytest.raises(grpc.RpcError) as caught:
            self.call(called, **fields)
        return caught.value.code().name, caught.value.details()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("grpc")
    ends = [f"{kind}[n] x{name}" for name, (kind, _) in KINDS.items()]
    nodes = [f"y{name} = Identity(x{name})" for name in KINDS]
    outs = [f"{kind}[n] y{name}" for name, (kind, _) in KINDS.items()]
    for title, inputs, outputs, body in (
        ("m", ", ".join(ends), ", ".join(outs), " ".join(nodes)),
        ("b", "bfloat16[n] x", "bfloat16[n] y", "y = Identity(x)"),
    ):
        text = f'<ir_version: 10, opset_import: ["" : 20]> m ({inputs}) => ({outputs}) {{ {body} }}'
        onnx.save(parser.parse_model(text), folder / f"{title}.onnx")
    (folder / "tokens").write_text("secret\n")
    server = Running(*folder.glob("*.onnx"), "--grpc-port", "0", "--reload", "off", "--token-file", folder / "tokens",
        "--model-control")  # fmt: skip
    yield Client(server, int(next(e for e in server.said if e["event"] == "listening")["grpc_port"]))
    assert server.stop() == 0


def packed(array: np.ndarray) -> bytes:
    if array.dtype.kind != "O":
        return array.tobytes()
    return b"".join(len(t.encode()).to_bytes(4, "little") + t.encode() for t in array)


def tensor(name: str, **more: Any) -> dict[str, Any]:
    return {"name": f"x{name}", "datatype": name, "shape": [4], **more}


def test_raw_tensors_of_every_datatype_come_back(client: Client) -> None:
    inputs, raw = [tensor(name) for name in KINDS], [packed(array) for _, array in KINDS.values()]
    found = client.call("ModelInfer", model_name="m", id="7", inputs=inputs, raw_input_contents=raw)
    assert (found.model_name, found.model_version, found.id) == ("m", "1", "7")
    assert [o.name for o in found.outputs] == [f"y{name}" for name in KINDS]
    assert [(o.datatype, list(o.shape)) for o in found.outputs] == [(name, [4]) for name in KINDS]
    assert list(found.raw_output_contents) == raw
    array = np.array([1.5, -2, 6, 3], ml_dtypes.bfloat16)
    brain = {"name": "x", "datatype": "BF16", "shape": [4]}
    found = client.call("ModelInfer", model_name="b", inputs=[brain], raw_input_contents=[array.tobytes()])
    assert found.raw_output_contents[0] == array.tobytes() and found.outputs[0].datatype == "BF16"


def test_typed_contents_are_taken(client: Client) -> None:
    """Except of float16, which the protocol has raw alone."""
    inputs = [tensor(name) for name in KINDS]
    for entry, (name, (_, array)) in zip(inputs, KINDS.items(), strict=True):
        field = name.lower() if name in ("INT64", "UINT64") else name.lower().rstrip("0123456789")
        field = field + name[-2:] if field == "fp" else field
        values = [v.encode() for v in array] if name == "BYTES" else array.tolist()
        entry["contents"] = {f"{field}_contents": values} if name != "FP16" else {"fp32_contents": values}
    code, message = client.fails("ModelInfer", model_name="m", inputs=inputs)
    assert code == "INVALID_ARGUMENT" and "xFP16" in message
    code, message = client.fails("ModelInfer", model_name="m", inputs=[e for e in inputs if e["name"] != "xFP16"])
    assert code == "INVALID_ARGUMENT" and "no 'xFP16'" in message  # all the others are read
    inputs[list(KINDS).index("BYTES")]["contents"] = {"bytes_contents": [b"\xff"] * 4}
    assert "not UTF-8" in client.fails("ModelInfer", model_name="m", inputs=inputs)[1]


def test_what_is_wrong_is_told(client: Client) -> None:
    inputs, raw = [tensor(name) for name in KINDS], [packed(array) for _, array in KINDS.values()]
    whole = {"model_name": "m", "inputs": inputs, "raw_input_contents": raw}
    assert client.fails("ModelInfer", **whole | {"model_name": "none"})[0] == "NOT_FOUND"
    assert client.fails("ModelInfer", **whole | {"model_version": "9"})[0] == "NOT_FOUND"
    assert client.fails("ModelInfer", **whole, token="other")[0] == "UNAUTHENTICATED"
    number = MESSAGES["InferParameter"]
    none = {"classification": number(int64_param=0)}
    for changed, reason in (
        ({"raw_input_contents": raw[:-1]}, "every input"),
        ({"raw_input_contents": [*raw[:-1], raw[-1] + b"x"]}, "is 32 bytes"),
        ({"inputs": [*inputs[:-1], tensor("UINT64", shape=[-4])]}, "'shape'"),
        ({"inputs": [*inputs[:-1], tensor("UINT64", shape=[2**40, 2**40])]}, "too large"),
        ({"outputs": [{"name": "z"}]}, "no output 'z'"),
        ({"outputs": [{"name": "yFP32", "parameters": none}]}, "1 or more"),
        ({"parameters": {"sequence_id": number(int64_param=1)}}, "not supported"),
        ({"parameters": {"priority": number(uint64_param=1)}}, "'priority' is not supported"),
        ({"outputs": [{"name": "yFP32", "parameters": {"binary_data": number(bool_param=False)}}]}, "is of HTTP"),
        ({"inputs": [], "raw_input_contents": []}, "no list 'inputs'"),
    ):
        code, message = client.fails("ModelInfer", **whole | changed)
        assert code == "INVALID_ARGUMENT" and reason in message, (changed, message)
    with pytest.raises(grpc.RpcError, match="no ModelInferRequest") as caught:
        client.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"\xff", metadata=SENT, timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    classes = {"classification": number(int64_param=1)}
    found = client.call("ModelInfer", **whole, outputs=[{"name": "yFP64", "parameters": classes}])
    assert found.raw_output_contents[0].endswith(b":2")


def test_the_server_and_its_models_are_told(client: Client) -> None:
    assert client.call("ServerLive", token="none").live and client.call("ServerReady").ready
    assert client.call("ModelReady", name="m").ready
    assert not client.call("ModelReady", name="n").ready and not client.call("ModelReady", name="m", version="9").ready
    assert client.call("ServerMetadata").name == "onnxtool"
    told = client.call("ModelMetadata", name="m")
    assert [(t.name, t.datatype, list(t.shape)) for t in told.inputs] == [(f"x{name}", name, [-1]) for name in KINDS]
    config = client.call("ModelConfig", name="m").config
    numbers = {
        "BOOL": 1,
        "UINT8": 2,
        "UINT64": 5,
        "INT8": 6,
        "INT64": 9,
        "FP16": 10,
        "FP32": 11,
        "FP64": 12,
        "BYTES": 13,
    }
    told = {t.name.removeprefix("x"): t.data_type for t in config.input}
    assert numbers.items() <= told.items() and len(config.output) == len(KINDS)
    assert [(g.count, g.kind) for g in config.instance_group] == [(1, 2)] and list(config.input[0].dims) == [-1]
    assert client.call("ModelConfig", name="b").config.input[0].data_type == 14
    assert client.fails("ModelConfig", name="n")[0] == "NOT_FOUND"
    assert 'route="ModelInfer"' in client.server.client(token="secret").request("GET", "/metrics")[2].decode()


def test_models_are_loaded_unloaded_and_counted(client: Client) -> None:
    array = np.array([1.5, -2, 6, 3], ml_dtypes.bfloat16)
    asked = {"model_name": "b", "inputs": [{"name": "x", "datatype": "BF16", "shape": [4]}]}
    whole = asked | {"raw_input_contents": [array.tobytes()]}
    before = client.call("ModelStatistics", name="b").model_stats[0]
    client.call("ModelInfer", **whole)
    counted = client.call("ModelStatistics", name="b").model_stats[0]
    assert (counted.name, counted.version, counted.inference_count) == ("b", "1", before.inference_count + 4)
    assert counted.execution_count == before.execution_count + 1 and counted.inference_stats.compute_infer.ns > 0
    assert [s.name for s in client.call("ModelStatistics").model_stats] == [
        m.name for m in client.call("RepositoryIndex", ready=True).models
    ]
    client.call("RepositoryModelUnload", model_name="b")
    states = {m.name: (m.state, m.reason) for m in client.call("RepositoryIndex").models}
    assert states == {"m": ("READY", ""), "b": ("UNAVAILABLE", "unloaded")}
    assert client.fails("ModelInfer", **whole)[0] == "NOT_FOUND"
    assert client.fails("RepositoryModelLoad", model_name="none")[0] == "NOT_FOUND"
    override = {"config": MESSAGES["InferParameter"](string_param="{}")}
    assert "not supported" in client.fails("RepositoryModelLoad", model_name="b", parameters=override)[1]
    client.call("RepositoryModelLoad", model_name="b")
    assert client.call("ModelInfer", **whole).raw_output_contents[0] == array.tobytes()


def test_messages_are_those_of_the_published_protocol() -> None:
    """Against the messages that Triton's client has, by number and type, where it is installed."""
    triton = pytest.importorskip("tritonclient.grpc")
    published, whole, enumeration = triton.service_pb2, FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_ENUM
    nested = {
        "InferTensor": published.ModelInferRequest.InferInputTensor,
        "InferRequestedOutputTensor": published.ModelInferRequest.InferRequestedOutputTensor,
        "TensorMetadata": published.ModelMetadataResponse.TensorMetadata,
        "ModelIndex": published.RepositoryIndexResponse.ModelIndex,
    }
    for name, ours in MESSAGES.items():
        theirs = nested.get(name) or getattr(published, name, None) or getattr(triton.model_config_pb2, name)
        kinds = {f: whole if f.type == enumeration else f.type for f in theirs.DESCRIPTOR.fields}
        expected = {f.number: (f.name, kind) for f, kind in kinds.items()}
        assert {f.number: (f.name, f.type) for f in ours.DESCRIPTOR.fields}.items() <= expected.items(), name


def test_a_port_that_is_taken_is_a_usage_error(client: Client, fixtures: Path, onnxtool: Any) -> None:
    done = onnxtool("serve", fixtures / "digits_cnn.onnx", "--port", "0", "--grpc-port", str(client.port))
    assert done.returncode == 2 and "--grpc-port" in done.stderr


def test_sigterm_cancels_no_call(fixtures: Path) -> None:
    """Calls come one after the other until the door is closed, which clients are told so that they go elsewhere."""
    server = Running(fixtures / "digits_cnn.onnx", "--grpc-port", "0", "--reload", "off", "--drain-delay", "0")
    port = int(server.said[-1]["grpc_port"])

    def ending(_: int) -> str:
        client = Client(server, port)
        while True:
            try:
                client.call("ServerReady")
            except grpc.RpcError as error:
                return str(error.code().name)

    with ThreadPoolExecutor(40) as threads:
        endings = threads.map(ending, range(40))
        time.sleep(0.3)
        assert server.stop() == 0
        assert set(endings) == {"UNAVAILABLE"}


def test_what_calls_hold_counts_with_what_requests_hold() -> None:
    options = ServeOptions(grpc_port=0)
    parts = Metrics(), Log(None), State(ready=True)
    app, repository = App(options, *parts), Repository(options, *parts[:2], lambda last: last)
    routes = InferenceRoutes(repository, options, parts[0], parts[2])

    async def ask() -> tuple[list[Any], int]:
        service = GrpcService(app, routes, repository, options)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{await service.start()}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            found = []
            for held in (options.limits.buffered_bytes, options.limits.buffered_bytes - 3):
                app.bodies.held = held
                found.append(await asyncio.gather(call(b"\x7a\x01a"), return_exceptions=True))  # an unknown field
        await service.stop()
        return found, app.bodies.held

    (refused,), (answered,) = (found := asyncio.run(ask()))[0]
    assert refused.code().name == "UNAVAILABLE" and "too many large" in refused.details()
    assert answered == b"\x08\x01" and found[1] == options.limits.buffered_bytes - 3
