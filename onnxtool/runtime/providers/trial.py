"""Every execution provider that is here or could be, and whether it works: tried in a process of its own.

Run as `python -m onnxtool.runtime.providers.trial MODULE PROVIDER`; answers with lines of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import onnxruntime as ort

from onnxtool.report.doctor import ProviderInfo
from onnxtool.runtime.providers.known import CRASH_SETTINGS, PACKAGES
from onnxtool.runtime.providers.resolve import device_label, installed_plugins
from onnxtool.runtime.providers.spec import short_name
from onnxtool.runtime.worker.tasks import run_python
from onnxtool.runtime.worker.watchdog import signal_name


def survey() -> tuple[ProviderInfo, ...]:
    """Built-in providers, installed plugins (each is tried in a process of its own), then what is not installed."""
    built_in = [short_name(p) for p in ort.get_available_providers()]
    plugins = installed_plugins()
    plugged = {p.short for p in plugins}
    here = [_built_in(name) for name in built_in if name not in plugged]
    here += [_plugin(p.module, p.short, p.version) for p in plugins]
    known = {info.name for info in here}
    absent: dict[str, ProviderInfo] = {}
    for package in PACKAGES:
        name = short_name(package.provider)
        if name not in known:
            absent.setdefault(name, ProviderInfo(name, "not installed", None, (), package.where, package.command))
    return (*here, *absent.values())


def _built_in(name: str) -> ProviderInfo:
    devices = (
        [d for d in ort.get_ep_devices() if short_name(d.ep_name) == name] if hasattr(ort, "get_ep_devices") else []
    )
    return ProviderInfo(name, "built in", ort.__version__, tuple(dict.fromkeys(map(device_label, devices))), "", "")


def _plugin(module: str, short: str, version: str) -> ProviderInfo:
    trial = try_plugin(module, short)
    state = trial.state if trial.state in ("crashes", "failed") else "plugin"
    return ProviderInfo(short, state, version, trial.devices, trial.reason, "")


State = Literal["runs", "no device", "crashes", "failed"]
_MODULE = "onnxtool.runtime.providers.trial"
_PATIENCE = 300.0  # seconds; a plugin for a GPU may compile for one
_ILLEGAL_INSTRUCTION = -4  # SIGILL, as subprocess has it


@dataclass(frozen=True)
class ProviderTrial:
    """What a plugin did.

    Attributes:
        state: whether it ran the model.
        devices: what it runs on here ("cpu: Intel(R) Xeon(R)").
        reason: why it did not run it; "" when it did.
    """

    state: State
    devices: tuple[str, ...] = ()
    reason: str = ""


def try_plugin(module: str, provider: str) -> ProviderTrial:
    """Load a plugin and run a small model on it.

    Args:
        module: the Python module that brings it.
        provider: its short name.
    """
    code, answer = _ask(module, provider, {})
    if code is None:
        return ProviderTrial("failed", (), f"it did not run a small model within {_PATIENCE:.0f} s")
    devices = tuple(answer.get("devices", ()))
    if code < 0:
        return ProviderTrial(
            "crashes", devices, f"crashes on this processor ({signal_name(-code)}){_help(module, provider, code)}"
        )
    if code > 0 or "failed" in answer:
        return ProviderTrial("failed", devices, str(answer.get("failed", f"its process ended with code {code}")))
    if not devices:
        return ProviderTrial("no device", (), "it finds no device on this machine")
    return ProviderTrial("runs", devices)


def _help(module: str, provider: str, code: int) -> str:
    """The setting with which it runs, where there is one; commands try it by themselves."""
    setting = CRASH_SETTINGS.get(provider)
    if setting is None or code != _ILLEGAL_INSTRUCTION or setting[0] in os.environ:
        return ""
    again, answer = _ask(module, provider, {setting[0]: setting[1]})
    return f"; it runs with {'='.join(setting)}" if again == 0 and "failed" not in answer else ""


def _ask(module: str, provider: str, variables: Mapping[str, str]) -> tuple[int | None, dict[str, Any]]:
    """The exit code of the process (None: it took too long) and what it answered before its end."""
    try:
        done = run_python(_MODULE, module, provider, seconds=_PATIENCE, variables=variables)
    except subprocess.TimeoutExpired:
        return None, {}
    answer: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):  # native code may print too
            answer |= json.loads(line)
    return done.returncode, answer


def _tell(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _answer(module: str, provider: str) -> None:
    import numpy as np

    from onnxtool.errors import OnnxToolError
    from onnxtool.runtime.providers.resolve import device_label, plugin_devices, register_library
    from onnxtool.runtime.providers.spec import short_name
    from onnxtool.runtime.runner import OnnxRunner
    from onnxtool.runtime.session.session import SessionOptions

    try:
        register_library(module)
        devices = [device_label(d) for d in plugin_devices() if short_name(d.ep_name) == provider]
        _tell(devices=list(dict.fromkeys(devices)))
        if devices:
            OnnxRunner.open(_product(), SessionOptions(provider)).run({"x": np.ones((4, _SIZE), np.float32)})
    except OnnxToolError as error:
        _tell(failed=str(error))


_SIZE = 256  # large enough for the kernels that a real model takes


def _product() -> bytes:
    """Y = x W, float32."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.default_rng(0).normal(size=(_SIZE, _SIZE)).astype(np.float32)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", _SIZE]) for name in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        values[:1],
        values[1:],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


if __name__ == "__main__":
    _answer(*sys.argv[1:3])
