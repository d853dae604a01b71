"""What is known of execution providers before one is loaded, and what is said of one that crashes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnxtool.errors import UnsupportedError
from onnxtool.runtime.providers.spec import short_name
from onnxtool.runtime.worker.watchdog import Crash, ProviderCall


@dataclass(frozen=True)
class Package:
    """A package that brings an execution provider.

    Attributes:
        provider: full name of the execution provider.
        distribution: what pip installs.
        where: platforms it is built for.
        plugin: it is loaded into the installed onnxruntime; else it is a build of onnxruntime itself, and replaces it.
    """

    provider: str
    distribution: str
    where: str
    plugin: bool = True

    @property
    def command(self) -> str:
        """The line that installs it."""
        replaced = "" if self.plugin else "pip uninstall onnxruntime; "
        return f"{replaced}pip install {self.distribution}"


# Source: the packages' own pages in the Python package index, and onnxruntime.ai/docs/execution-providers.
PACKAGES = (
    Package("OpenVINOExecutionProvider", "onnxruntime-ep-openvino", "Intel CPU, GPU, NPU on Linux and Windows x86-64"),
    Package("WebGpuExecutionProvider", "onnxruntime-ep-webgpu", "GPUs on Linux, Windows and macOS"),
    Package("NvTensorRTRTXExecutionProvider", "onnxruntime-ep-nv-tensorrt-rtx", "NVIDIA RTX GPUs"),
    Package("MLXExecutionProvider", "onnxruntime-ep-mlx", "Apple silicon"),
    Package("QNNExecutionProvider", "onnxruntime-qnn", "Qualcomm NPUs on Windows arm64"),
    Package("GgmlExecutionProvider", "onnxruntime-ggml", "CPU, Vulkan and Metal through ggml"),
    Package("CUDAExecutionProvider", "onnxruntime-gpu", "NVIDIA GPUs", plugin=False),
    Package("TensorrtExecutionProvider", "onnxruntime-gpu", "NVIDIA GPUs with TensorRT", plugin=False),
    Package("DmlExecutionProvider", "onnxruntime-directml", "GPUs on Windows", plugin=False),
    Package("MIGraphXExecutionProvider", "onnxruntime-migraphx", "AMD GPUs on Linux", plugin=False),
)


@dataclass(frozen=True)
class Switch:
    """An option that makes a provider compute in the precision that the model declares.

    Attributes:
        key, value: the option.
        reduced: the precisions that the provider uses without it.
        default: whether it uses them unless told otherwise.
        source: where this is documented.
        formats: (format, value) of the same option, to ask for a smaller format by name.
    """

    key: str
    value: str
    reduced: tuple[str, ...]
    default: bool
    source: str
    formats: tuple[tuple[str, str], ...] = ()


_ORT_DOCS = "https://onnxruntime.ai/docs/execution-providers/"
# By short name. OpenVINO was also measured: `docs/providers.md`.
FULL_PRECISION: Mapping[str, Switch] = {
    "openvino": Switch(
        "INFERENCE_PRECISION_HINT",
        "f32",
        ("bfloat16", "float16"),
        True,
        "https://docs.openvino.ai/2025/openvino-workflow/running-inference/optimize-inference/precision-control.html",
        (("bfloat16", "bf16"), ("float16", "f16")),
    ),
    "cuda": Switch("use_tf32", "0", ("tf32",), True, _ORT_DOCS + "CUDA-ExecutionProvider.html#use_tf32"),
    "tensorrt": Switch(
        "trt_fp16_enable", "False", ("float16", "tf32"), False, _ORT_DOCS + "TensorRT-ExecutionProvider.html"
    ),
    "coreml": Switch(
        "AllowLowPrecisionAccumulationOnGPU", "0", ("float16",), False, _ORT_DOCS + "CoreML-ExecutionProvider.html"
    ),
    "migraphx": Switch("migraphx_fp16_enable", "0", ("float16",), False, _ORT_DOCS + "MIGraphX-ExecutionProvider.html"),
    "qnn": Switch(
        "enable_htp_fp16_precision",
        "0",
        ("float16",),
        True,
        _ORT_DOCS + "QNN-ExecutionProvider.html#configuration-options",
    ),
}

# The option that limits a provider's own threads, which the session's option does not reach.
THREADS: Mapping[str, str] = {
    "openvino": "INFERENCE_NUM_THREADS",
    "xnnpack": "intra_op_num_threads",
    "ggml": "threads",
}

# What keeps a provider from instructions that a virtual processor names and does not run: an environment variable and
# its value. OpenVINO's plugin 1.8.1 dies by SIGILL without it on a virtual Intel with AMX.
# Source: https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html
CRASH_SETTINGS: Mapping[str, tuple[str, str]] = {"openvino": ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")}

# Read from the plugin and tried with version 1.8.1: it ignores whatever it does not know.
OPENVINO_OPTIONS = (
    "cache_dir",
    "device_id",
    "device_luid",
    "device_type",
    "disable_dynamic_shapes",
    "enable_qdq_optimizer",
    "layout",
    "load_config",
    "model_priority",
    "reshape_input",
)
# Options of the OpenVINO provider that is built into onnxruntime-openvino, which the plugin ignores -> the property
# that does the same, and its value for each of theirs (as it is where there is none).
OPENVINO_ALIASES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "num_of_threads": ("INFERENCE_NUM_THREADS", {}),
    "num_streams": ("NUM_STREAMS", {}),
    "precision": ("INFERENCE_PRECISION_HINT", {"FP32": "f32", "FP16": "f16", "BF16": "bf16"}),
}


def packages_for(short: str) -> tuple[Package, ...]:
    """The packages that bring a provider, by its short name; plugins first."""
    found = [p for p in PACKAGES if p.provider.lower().removesuffix("executionprovider") == short]
    return tuple(sorted(found, key=lambda p: not p.plugin))


REGISTERING = "loading an execution provider's library"


def provider_call(what: str, provider: str) -> ProviderCall | None:
    """What the watch is told of a native call; None where the CPU's provider alone is at work.

    Args:
        what: the call, in words that fit "while ...".
        provider: the first of the session, short or in full.
    """
    name = short_name(provider)
    return None if name == "cpu" else ProviderCall(name, what, CRASH_SETTINGS.get(name))


def provider_crashes(crash: Crash) -> UnsupportedError:
    """That a provider crashes, where the CPU's does not or no model was at hand yet."""
    call = crash.provider
    assert call is not None
    tried = f", with {'='.join(call.setting)} too" if call.setting is not None and crash.signal == "SIGILL" else ""
    cleared = "" if call.what == REGISTERING else " The CPU provider does not: the file is not at fault."
    return UnsupportedError(
        f"{call.provider} crashes on this processor ({crash.signal}) while {call.what}{tried}.{cleared} Use another "
        f"provider, or another version of {call.provider}."
    )
