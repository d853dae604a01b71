"""Every execution provider that is here, with its devices, and those that could be."""

from __future__ import annotations

from typing import Any

import onnxruntime as ort

from onnxtool.errors import OnnxToolError
from onnxtool.report.doctor import ProviderInfo
from onnxtool.runtime.providers.known import PACKAGES
from onnxtool.runtime.providers.plugins import device_kind, installed_plugins, plugin_devices, register_library
from onnxtool.runtime.providers.spec import short_name


def survey() -> tuple[ProviderInfo, ...]:
    """Built-in providers, installed plugins (each is loaded, to ask for its devices), then what is not installed."""
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
    return ProviderInfo(name, "built in", ort.__version__, tuple(dict.fromkeys(map(_device, devices))), "", "")


def _plugin(module: str, short: str, version: str) -> ProviderInfo:
    try:
        register_library(module)
    except OnnxToolError as error:
        return ProviderInfo(short, "failed", version, (), str(error), "")
    devices = [d for d in plugin_devices() if short_name(d.ep_name) == short]
    where = "" if devices else "it finds no device on this machine"
    return ProviderInfo(short, "plugin", version, tuple(dict.fromkeys(map(_device, devices))), where, "")


def _device(device: Any) -> str:
    metadata = dict(device.ep_metadata)
    name = metadata.get("FULL_DEVICE_NAME") or device.device.vendor
    return f"{device_kind(device)}: {name}" if name else device_kind(device)
