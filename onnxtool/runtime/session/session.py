"""The only place that makes an InferenceSession: providers, threads, optimizations, custom-operator libraries."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime as ort

from onnxtool.errors import InputError, OnnxToolError, ResourceError, UnsupportedError, UsageError
from onnxtool.model import io
from onnxtool.options.session import DEFAULT as DEFAULT
from onnxtool.options.session import EXACT as EXACT
from onnxtool.options.session import OptimizationLevel as OptimizationLevel
from onnxtool.options.session import SessionOptions as SessionOptions
from onnxtool.options.session import Spinning as Spinning
from onnxtool.runtime import cpu
from onnxtool.runtime.providers.known import provider_call, provider_crashes
from onnxtool.runtime.providers.resolve import CPU, ResolvedProvider, register_all, resolve
from onnxtool.runtime.providers.spec import parse_providers, short_name
from onnxtool.runtime.session.extensions import NAMES, PICTURES, TEXTS
from onnxtool.runtime.worker import isolation
from onnxtool.runtime.worker.isolation import guarded, native_silence
from onnxtool.runtime.worker.watchdog import Crash

if TYPE_CHECKING:
    import onnx_ir as ir


_LEVELS = {
    "off": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_FATAL_ONLY = 4
# Set again here for a program that imported the runtime before onnxtool; see onnxtool/__init__.py.
ort.disable_telemetry_events()
_SMALL = 1 << 20
# Weights of this size are lent to the runtime, when together they have that size.
_LENT, _WORTH_LENDING = 1 << 16, 1 << 22
_LENDABLE = ("FLOAT", "DOUBLE", "FLOAT16", "INT8", "UINT8", "INT32", "INT64")
_NOWHERE = "."
_LOADING = "loading the model into the runtime"


def requested_providers(options: SessionOptions) -> tuple[str, ...]:
    """The full names of the providers that a session is given, the CPU as the last resort left out.

    Raises:
        UsageError: a provider that is not there.
    """
    return tuple(p.name for p in resolved_providers(options)[: len(parse_providers(options.provider))])


def provider_names(options: SessionOptions) -> str:
    """The same as one text."""
    return ", ".join(requested_providers(options))


def resolved_providers(options: SessionOptions) -> list[ResolvedProvider]:
    """What a session is given, the CPU as the last resort included; plugins are registered."""
    register_all(options.ep_libraries)
    return resolve(parse_providers(options.provider), options.threads)


def create_session(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
    options: SessionOptions = DEFAULT,
    weights: Mapping[str, np.ndarray] | None = None,
) -> ort.InferenceSession:
    """Load a model into the runtime.

    Args:
        model: a file, serialized bytes, a ModelProto, or an onnx_ir model (external data stays where it is).
        options: how to run it.
        weights: initializers that the model declares as external data, by name: taken from memory, not from a file.

    Raises:
        InputError: the runtime finds the model invalid.
        UnsupportedError: an operator or a type that the runtime does not have.
        ResourceError: out of memory.
        UsageError: provider or custom-operator library not there.
    """
    crash = crash_of(options)
    if crash is not None:
        create_session(model, without_providers(options), weights)  # what crashes here too is the file's fault
        raise provider_crashes(crash)
    native = _native_options(options)
    if weights:
        native.add_external_initializers(list(weights), [_lendable(w) for w in weights.values()])
    return _create(model, native, resolved_providers(options))


def _native_options(options: SessionOptions) -> ort.SessionOptions:
    native = ort.SessionOptions()
    native.graph_optimization_level = _LEVELS[options.optimization]
    native.log_severity_level = _FATAL_ONLY
    if options.threads is not None:
        native.intra_op_num_threads = options.threads
    native.inter_op_num_threads = 1
    if not options.prepack:
        native.add_session_config_entry("session.disable_prepacking", "1")
    if not options.fold:
        native.add_session_config_entry("optimization.disable_specified_optimizers", "ConstantFolding")
    if options.outputs_early:
        native.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    native.enable_mem_pattern = options.memory_pattern and not options.lean
    native.enable_cpu_mem_arena = options.arena
    if options.parallel:
        native.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        native.inter_op_num_threads = 0
    spinning = options.spinning
    if spinning == "auto":
        spinning = "never" if cpu.busy() else "runs"
    if spinning == "never":
        native.add_session_config_entry("session.intra_op.allow_spinning", "0")
    for key, value in options.settings:
        native.add_session_config_entry(key, value)
    if options.record_placement:
        native.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if spinning == "runs":
        native.add_session_config_entry("session.force_spinning_stop", "1")
    if options.profile_prefix is not None:
        native.enable_profiling = True
        native.profile_file_prefix = options.profile_prefix
    if options.optimized_path is not None:
        native.optimized_model_filepath = io.native_path(options.optimized_path)
    for library in options.custom_op_libraries:
        _register(native, library)
    return native


def _create(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
    native: ort.SessionOptions,
    providers: Sequence[ResolvedProvider],
) -> ort.InferenceSession:
    if isinstance(model, (str, os.PathLike)):
        if not io.old_opset(model):
            return _start(os.fspath(model), native, providers)
        model = io.read_proto(model)
    if isinstance(model, bytes):
        return _start(model, native, providers)
    if isinstance(model, onnx.ModelProto):
        return _start(model.SerializeToString(), native, providers)
    folder = _external_folder(model)
    if folder is not None:
        native.add_session_config_entry("session.model_external_initializers_file_folder_path", io.native_path(folder))
    with _lent_weights(model) as lent:
        if lent:
            native.add_external_initializers(list(lent), list(lent.values()))
            return _start(io.to_proto(model).SerializeToString(), native, providers)
    if folder is None and io.weight_bytes(model) > io.INLINE_LIMIT:
        # Too large for one protobuf message: the runtime has to read it from disk.
        with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
            path = Path(scratch) / "model.onnx"
            io.save(model, path, external=True)
            return _start(str(path), native, providers)
    return _start(io.to_proto(model).SerializeToString(), native, providers)


@contextmanager
def _lent_weights(model: ir.Model) -> Iterator[dict[str, ort.OrtValue]]:
    """Inside the block, a model with much weight in memory refers to it as external data, by the given names.

    The runtime then takes the weights from where they are. As part of the model they would be in memory as protobuf
    objects, as bytes, and as the runtime's own protobuf objects at the same time.
    """
    import onnx_ir as ir

    large = {
        name: (value, value.const_value)
        for name, value in model.graph.initializers.items()
        if isinstance(value.const_value, ir.Tensor)
        and value.const_value.nbytes >= _LENT
        and (value.uses() or value.is_graph_output())  # the runtime does not know what nobody reads
        and value.const_value.dtype.name in _LENDABLE
    }
    if sum(tensor.nbytes for _, tensor in large.values()) < _WORTH_LENDING:
        yield {}
        return
    try:
        for name, (value, tensor) in large.items():
            value.const_value = ir.ExternalTensor(
                "memory", 0, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name, base_dir=_NOWHERE
            )
        yield {name: _lendable(tensor.numpy()) for name, (_, tensor) in large.items()}
    finally:
        for value, tensor in large.values():
            value.const_value = tensor


def _lendable(weight: np.ndarray) -> ort.OrtValue:
    """The runtime refuses to borrow the copy that it makes itself of a transposed view (timm's ViT has one)."""
    return ort.OrtValue.ortvalue_from_numpy(np.asarray(weight, order="C"))


def _external_folder(model: ir.Model) -> Path | None:
    import onnx_ir as ir

    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                return Path(value.const_value.base_dir)
    return None


def _start(
    model: str | bytes, native: ort.SessionOptions, providers: Sequence[ResolvedProvider]
) -> ort.InferenceSession:
    size = len(model) if isinstance(model, bytes) else bytes_beside(Path(model))
    try:
        with guarded(_LOADING, size, provider=provider_call(_LOADING, providers[0].name)), native_silence():
            named = model if isinstance(model, bytes) else io.native_path(model)
            # Its fallback prints to the terminal, and would run what was asked for somewhere else.
            if not any(p.devices for p in providers):
                taken = [(p.name, p.options) for p in providers]
                session = ort.InferenceSession(named, native, providers=taken, enable_fallback=0)
                session._model_bytes = None  # else it keeps the file's bytes as long as it lives, for its fallback
                return session
            for provider in providers:
                if provider.devices:
                    native.add_provider_for_devices(list(provider.devices), provider.options)
                else:
                    native.add_provider(provider.name, provider.options)
            return ort.InferenceSession(named, native, enable_fallback=0)
    except Exception as error:
        raise _provider_error(error, providers[0]) or classify(error) from error


def crash_of(options: SessionOptions, *, running: bool = False) -> Crash | None:
    """The crash of one of these providers in an earlier attempt of this command.

    Args:
        options: the providers.
        running: only one after the model was loaded.
    """
    crash = isolation.provider_crash(*(short_name(p.name) for p in parse_providers(options.provider)))
    return None if crash is None or (running and _while(crash) == _LOADING) else crash


def without_providers(options: SessionOptions) -> SessionOptions:
    """The same on the CPU."""
    return replace(options, provider="cpu", ep_libraries=())


def _while(crash: Crash) -> str:
    return crash.what if crash.provider is None else crash.provider.what


# "Exception from src/plugins/intel_cpu/src/config.cpp:505: NotFound: Unsupported property ..."
_THROWN_AT = re.compile(r"(?:Exception from|Check '[^']*' failed at) \S+?:\d+:? ?")


def _provider_error(error: Exception, provider: ResolvedProvider) -> OnnxToolError | None:
    """What another provider than the CPU says of itself, not of the model; None when it is not about the provider."""
    text = first_line(error)
    if provider.name == CPU or not ("EP_FAIL" in str(error) or _THROWN_AT.search(text) or "property" in text):
        return None
    told = _THROWN_AT.sub("", text).strip() or text
    if "property" in told.lower() or "option" in told.lower():
        return UsageError(f"--provider {short_name(provider.name)}: {told}")
    return UnsupportedError(f"{provider.name} cannot run this model: {told}")


def bytes_beside(path: Path) -> int:
    """A model file and what may be its external data, or all of a bundle's folder, without reading it."""
    try:
        if path.is_dir():
            return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
        own = path.stat().st_size
        if own < _SMALL and b"location" not in path.read_bytes():
            return own  # the word stands before every name of an external file; a folder may hold thousands of others
        return own + sum(f.stat().st_size for f in path.parent.iterdir() if f.suffix != ".onnx")
    except OSError:
        return 0


def _register(native: ort.SessionOptions, library: Path) -> None:
    if not library.is_file():
        raise UsageError(f"--custom-op-library {library}: no such file.")
    try:
        native.register_custom_ops_library(io.native_path(library.resolve()))
    except Exception as error:
        raise UsageError(f"--custom-op-library {library}: {first_line(error)}") from error


def classify(error: BaseException) -> OnnxToolError:
    """Turn what the runtime raised into our own family, as one line."""
    text = first_line(error)
    lowered = text.lower()
    kind = type(error).__name__
    if isinstance(error, MemoryError) or "bad_alloc" in lowered or "failed to allocate memory" in lowered:
        return ResourceError(f"the runtime ran out of memory: {text}")
    unsupported = (
        "not implemented",
        "is not a registered function/op",
        "no op registered",
        "unsupported model ir",
    )
    if kind == "NotImplemented" or any(u in lowered for u in unsupported) or "opset" in lowered:
        hint = f"; give --custom-op-library {NAMES[0]}" if any(d in text for d in (PICTURES, TEXTS)) else ""
        return UnsupportedError(f"the runtime does not support this model: {text}{hint}")
    return InputError(f"the runtime refuses this model: {text}")


# "/onnxruntime_src/onnxruntime/core/graph/graph.cc:1234 void onnxruntime::Graph::Resolve(const T&, int) const "
_SOURCE = re.compile(r"/onnxruntime_src/\S+:\d+ [^(]*?[\w>]\((?:[^()]|\([^()]*\))*\)(?: const)?(?: \[[^\]]*\])? ?")


def first_line(error: BaseException) -> str:
    """The telling part of a runtime error: one line, without source positions and error codes."""
    text = " ".join(str(error).split()) or type(error).__name__
    if text.startswith("[ONNXRuntimeError]"):
        text = text.split(" : ", 3)[-1] if text.count(" : ") >= 3 else text.split(" : ")[-1]
    return _SOURCE.sub("", text)[:500]
