"""Every execution provider that is here, with its devices, and those that could be."""

from __future__ import annotations

import onnxruntime as ort

from onnxtool.report.doctor import ProviderInfo
from onnxtool.runtime.providers.known import PACKAGES
from onnxtool.runtime.providers.plugins import device_label, installed_plugins
from onnxtool.runtime.providers.spec import short_name
from onnxtool.runtime.providers.trial import try_plugin


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
