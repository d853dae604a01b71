"""The Open Inference Protocol V2 over gRPC: the calls of KServe's open_inference_grpc.proto, and of Triton's
grpc_service.proto those of its repository and its statistics; each message in one line.

Tensors are read and written by the code that reads and writes those of HTTP, so that both take and refuse the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from onnxtool import __version__
from onnxtool.errors import InputError, UsageError, needs_extra
from onnxtool.options.serve import ServeOptions
from onnxtool.runtime.protocol_v2.tensors import InferRequest, decode_header, load_json
from onnxtool.serving.app import App
from onnxtool.serving.faults import HttpError, as_http
from onnxtool.serving.inference_routes import InferenceRoutes, beside
from onnxtool.serving.repository import Repository

_SERVICE = "inference.GRPCInferenceService"
_PARAMETERS = "map parameters"
_TENSOR = f"string name; string datatype; repeated int64 shape; {_PARAMETERS}; InferTensorContents contents"
_MODEL = "string name; string version"
_CONTROL = f"string repository_name; string model_name; {_PARAMETERS}"
_DURATIONS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit")
# Fields are numbered in their order, or as they say. Those of a oneof are told apart by which of them is there.
_MESSAGES: Mapping[str, str] = {
    "InferParameter": "oneof bool bool_param; oneof int64 int64_param; oneof string string_param; "
    "oneof double double_param; oneof uint64 uint64_param",
    "InferTensorContents": "repeated bool bool_contents; repeated int32 int_contents; repeated int64 int64_contents; "
    "repeated uint32 uint_contents; repeated uint64 uint64_contents; repeated float fp32_contents; "
    "repeated double fp64_contents; repeated bytes bytes_contents",
    "InferTensor": _TENSOR,
    "InferRequestedOutputTensor": f"string name; {_PARAMETERS}",
    "TensorMetadata": "string name; string datatype; repeated int64 shape",
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready",
    "ModelReadyRequest": _MODEL,
    "ModelReadyResponse": "bool ready",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "string name; string version; repeated string extensions",
    "ModelMetadataRequest": _MODEL,
    "ModelMetadataResponse": "string name; repeated string versions; string platform; "
    "repeated TensorMetadata inputs; repeated TensorMetadata outputs",
    "ModelInferRequest": f"string model_name; string model_version; string id; {_PARAMETERS}; "
    "repeated InferTensor inputs; repeated InferRequestedOutputTensor outputs; repeated bytes raw_input_contents",
    "ModelInferResponse": f"string model_name; string model_version; string id; {_PARAMETERS}; "
    "repeated InferTensor outputs; repeated bytes raw_output_contents",
    "RepositoryIndexRequest": "string repository_name; bool ready",
    "RepositoryIndexResponse": "repeated ModelIndex models",
    "ModelIndex": "string name; string version; string state; string reason",
    **{f"RepositoryModel{what}Request": _CONTROL for what in ("Load", "Unload")},
    **{f"RepositoryModel{what}Response": "" for what in ("Load", "Unload")},
    "ModelStatisticsRequest": _MODEL,
    "ModelStatisticsResponse": "repeated ModelStatistics model_stats",
    "ModelStatistics": "string name; string version; uint64 last_inference; uint64 inference_count; "
    "uint64 execution_count; InferStatistics inference_stats",
    "InferStatistics": "; ".join(f"StatisticDuration {name}" for name in _DURATIONS),
    "StatisticDuration": "uint64 count; uint64 ns",
    "ModelConfigRequest": _MODEL,
    "ModelConfigResponse": "ModelConfig config",
    # Of Triton's model_config.proto; int32 stands for its enumerations.
    "ModelConfig": "string name; string platform; int32 max_batch_size=4; repeated ModelInput input=5; "
    "repeated ModelOutput output=6; repeated ModelInstanceGroup instance_group=7; string backend=17",
    "ModelInput": "string name; int32 data_type; repeated int64 dims=4",
    "ModelOutput": "string name; int32 data_type; repeated int64 dims",
    "ModelInstanceGroup": "string name; int32 count; int32 kind=4",
}
_INTEGERS = ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
_ENUMERATED = {  # by their numbers in Triton's model_config.proto
    **{f"TYPE_{name}": at for at, name in enumerate(("BOOL", *_INTEGERS, "FP16", "FP32", "FP64", "STRING", "BF16"), 1)},
    "KIND_CPU": 2,
}
_CONTENTS = {
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    **{name: f"{name.lower()}_contents" for name in ("BOOL", "INT64", "UINT64", "FP32", "FP64", "BYTES")},
}
_HOLD_SECONDS = 0.1  # in which a client's next call arrives
# gRPC's codes of our statuses.
_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    499: "CANCELLED",
    **dict.fromkeys((413, 429, 507), "RESOURCE_EXHAUSTED"),
    422: "FAILED_PRECONDITION",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def message_classes() -> dict[str, Any]:
    """The protocol's messages by name, in a pool of their own: another library may have declared them, too."""
    file = descriptor_pb2.FileDescriptorProto(name="open_inference_grpc.proto", package="inference", syntax="proto3")
    types = {
        name.removeprefix("TYPE_").lower(): number for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
    }
    for title, fields in _MESSAGES.items():
        message = file.message_type.add(name=title)
        for number, text in enumerate(filter(None, fields.split("; ")), 1):
            label, kind, named = ("", *text.split())[-3:]
            name, _, own = named.partition("=")
            several = label == "repeated" or kind == "map"
            field = message.field.add(name=name, number=int(own or number), label=3 if several else 1)
            if label == "oneof":
                field.oneof_index = 0
                if not message.oneof_decl:
                    message.oneof_decl.add(name="choice")
            if kind == "map":
                kind = f"{title}.ParametersEntry"
                entry = message.nested_type.add(name="ParametersEntry")
                entry.options.map_entry = True
                entry.field.add(name="key", number=1, label=1, type=types["string"])
                entry.field.add(
                    name="value", number=2, label=1, type=types["message"], type_name=".inference.InferParameter"
                )
            field.type = types.get(kind, types["message"])
            if kind not in types:
                field.type_name = f".inference.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}")) for name in _MESSAGES
    }


class GrpcService:
    """The calls, and the server that takes them."""

    def __init__(self, app: App, routes: InferenceRoutes, repository: Repository, options: ServeOptions) -> None:
        """Take what answers requests over HTTP.

        Raises:
            MissingExtraError: grpcio is not installed.
        """
        with needs_extra("serve --grpc-port", "grpcio", "grpc"):
            import grpc
        self._grpc: Any = grpc
        self._app, self._routes, self._repository, self._options = app, routes, repository, options
        self._messages = message_classes()
        self._server: Any = None
        self._may_answer = asyncio.Event()
        self._may_answer.set()

    async def start(self) -> int:
        """Take calls; gives the port.

        Raises:
            UsageError: the port or the certificate cannot be used.
        """
        calls: dict[str, Callable[[Any], Awaitable[dict[str, Any]]]] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelInfer": self._infer,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": partial(self._control, self._repository.load_again),
            "RepositoryModelUnload": partial(self._control, self._repository.unload),
        }
        limits, grpc = self._options.limits, self._grpc
        options = [("grpc.max_receive_message_length", limits.request_bytes), ("grpc.max_send_message_length", -1)]
        options.append(("grpc.so_reuseport", 0))  # a port that is taken is an error
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=limits.connections)
        handlers = {name: self._handler(name, call) for name, call in calls.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        place = f"{host}:{self._options.grpc_port}"
        try:
            if self._options.certificate is None or self._options.key is None:
                port = self._server.add_insecure_port(place)
            else:
                pair = self._options.key.read_bytes(), self._options.certificate.read_bytes()
                port = self._server.add_secure_port(place, grpc.ssl_server_credentials([pair]))
        except (OSError, RuntimeError) as error:
            raise UsageError(f"--grpc-port {place}: cannot be used ({error}).") from error
        await self._server.start()
        return int(port)

    async def stop(self) -> None:
        """Take no more calls, and wait for those that were taken.

        gRPC cancels calls that have come but were not taken yet. So that there are none, answers wait for a moment, and
        with them the next calls of their clients, until it has told the clients to send no more.
        """
        if self._server is None:
            return
        self._may_answer.clear()
        await asyncio.sleep(_HOLD_SECONDS)
        ended = asyncio.ensure_future(self._server.stop(self._options.limits.drain_seconds))
        await asyncio.sleep(_HOLD_SECONDS)
        self._may_answer.set()
        await ended

    def _handler(self, name: str, call: Callable[[Any], Awaitable[dict[str, Any]]]) -> Any:
        request, answer = (self._messages[f"{name}{end}"] for end in ("Request", "Response"))

        async def handle(asked: bytes, context: Any) -> Any:
            began, status = time.perf_counter(), 200
            metadata = [(k, v if isinstance(v, bytes) else v.encode()) for k, v in context.invocation_metadata() or ()]
            headers = {key.encode(): value for key, value in metadata}
            held = 0
            with self._app.tracing.request(headers) as end_span:
                try:
                    held = self._app.bodies.hold(len(asked))
                    if name not in ("ServerLive", "ServerReady"):
                        self._app.tokens.verify(headers.get(b"authorization", b""))
                    found = answer(**await call(_parsed(request, asked)))
                    await self._may_answer.wait()
                    return found
                except asyncio.CancelledError:
                    status = 499
                    raise
                except BaseException as error:  # as of the application
                    fault = as_http(error)
                    status = fault.status
                    self._app.note_fault(name, fault, error)
                    await self._may_answer.wait()
                    await context.abort(self._grpc.StatusCode[_CODES.get(status, "UNKNOWN")], str(fault))
                finally:
                    self._app.bodies.release(held)
                    end_span("gRPC", name, status)
                    self._app.note_end("gRPC", name, name, status, time.perf_counter() - began)

        return self._grpc.unary_unary_rpc_method_handler(handle, response_serializer=answer.SerializeToString)

    async def _live(self, _: Any) -> dict[str, Any]:
        return {"live": True}

    async def _ready(self, _: Any) -> dict[str, Any]:
        return {"ready": self._app.state.ready}

    async def _model_ready(self, asked: Any) -> dict[str, Any]:
        """As Triton's: also of a model that is not there."""
        with suppress(HttpError):
            self._repository.find(asked.name, asked.version or None)
            return {"ready": self._app.state.ready}
        return {"ready": False}

    async def _server_metadata(self, _: Any) -> dict[str, Any]:
        return {
            "name": "onnxtool",
            "version": __version__,
            "extensions": ("classification", "model_configuration", "model_repository", "statistics"),
        }

    async def _model_metadata(self, asked: Any) -> dict[str, Any]:
        served = self._repository.find(asked.name, asked.version or None)
        return served.metadata(self._repository.versions()[served.target.name])

    async def _model_config(self, asked: Any) -> dict[str, Any]:
        found = self._repository.find(asked.name, asked.version or None).configuration()
        for part in (*found["input"], *found["output"], *found["instance_group"]):
            part.update({key: _ENUMERATED[part[key]] for key in ("data_type", "kind") if key in part})
        return {"config": found}

    async def _statistics(self, asked: Any) -> dict[str, Any]:
        return {"model_stats": self._repository.statistics(asked.name or None, asked.version or None)}

    async def _index(self, asked: Any) -> dict[str, Any]:
        return {"models": self._repository.index(ready=asked.ready)}

    async def _control(self, change: Callable[[str], Awaitable[None]], asked: Any) -> dict[str, Any]:
        await self._routes.control(asked.model_name, _values(asked.parameters), change)
        return {}

    async def _infer(self, asked: Any) -> dict[str, Any]:
        with self._repository.use(asked.model_name, asked.model_version or None) as served:
            decoded = await beside(asked.ByteSize(), _decoded, asked)
            del asked  # its bytes stand in what was decoded
            parts, _ = await self._routes.infer(served, decoded, None)
        found = load_json(parts[0])
        outputs = [{key: entry[key] for key in ("name", "datatype", "shape")} for entry in found.pop("outputs")]
        return {**found, "outputs": outputs, "raw_output_contents": [bytes(part) for part in parts[1:]]}


def _parsed(message: Any, text: bytes) -> Any:
    """Raises InputError for bytes that are no such message."""
    try:
        return message.FromString(text)
    except DecodeError as error:
        raise InputError(f"the bytes are no {message.DESCRIPTOR.name}.") from error


def _decoded(asked: Any) -> InferRequest:
    """A request, read as HTTP's: from a header and the tensors' bytes.

    Raises:
        InputError: tensors given in both ways, or bytes that are no UTF-8.
    """
    raw = asked.raw_input_contents
    if raw and (len(raw) != len(asked.inputs) or any(t.HasField("contents") for t in asked.inputs)):
        raise InputError("raw_input_contents must hold every input, and no input contents of its own.")
    inputs = []
    for index, tensor in enumerate(asked.inputs):
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        entry["parameters"] = _values(tensor.parameters)
        if raw:
            entry["parameters"]["binary_data_size"] = len(raw[index])
        else:
            values = getattr(tensor.contents, _CONTENTS.get(tensor.datatype, ""), ())
            try:
                entry["data"] = [v.decode() if isinstance(v, bytes) else v for v in values]
            except UnicodeDecodeError as error:
                raise InputError(f"{tensor.name!r}: a text is not UTF-8.") from error
        inputs.append(entry)
    outputs = [{"name": output.name, "parameters": _values(output.parameters)} for output in asked.outputs]
    parameters = _values(asked.parameters) | {"binary_data_output": True}
    header = {"inputs": inputs, "outputs": outputs, "parameters": parameters}
    return decode_header(header | ({"id": asked.id} if asked.id else {}), memoryview(b"".join(raw)))


def _values(parameters: Any) -> dict[str, Any]:
    found = {name: value.WhichOneof("choice") for name, value in parameters.items()}
    if binary := [name for name in found if name.startswith("binary_data")]:
        raise InputError(f"the parameter {binary[0][:100]!r} is of HTTP; here outputs are raw bytes.")
    return {name: getattr(parameters[name], kind) for name, kind in found.items() if kind is not None}
