"""From what the user asked for to what the runtime takes: full names, devices, options."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnxruntime as ort

from onnxtool.errors import UsageError
from onnxtool.runtime.providers.known import (
    OPENVINO_ALIASES,
    OPENVINO_OPTIONS,
    THREADS,
    packages_for,
)
from onnxtool.runtime.providers.plugins import find_devices, installed_plugins, plugin_devices
from onnxtool.runtime.providers.spec import ProviderSpec, short_name

CPU = "CPUExecutionProvider"


@dataclass(frozen=True)
class ResolvedProvider:
    """A provider as a session is given it.

    Attributes:
        name: in full.
        options: keys and values as this provider reads them.
        devices: of a plugin (`OrtEpDevice`); none for what is built into the runtime.
    """

    name: str
    options: dict[str, str] = field(default_factory=dict)
    devices: tuple[Any, ...] = ()


def available_providers() -> list[str]:
    """Execution providers of this ONNX Runtime build and of the plugins that are registered, in full."""
    return list(ort.get_available_providers())


def resolve(specs: Sequence[ProviderSpec], threads: int | None = None) -> list[ResolvedProvider]:
    """What a session takes for each provider, in order; the CPU comes last, if it is not in the list.

    Args:
        specs: as asked for.
        threads: the session's; also told to providers that have threads of their own, unless their options say.

    Raises:
        UsageError: a provider, a device or an option that does not exist.
    """
    found = []
    for asked in specs:
        name, devices = _find(asked)
        short = short_name(name)
        key = THREADS.get(short)
        own = threads is None or key is None or _says_threads(asked, short)
        spec = asked if own else asked.having(str(key), str(threads))
        options = _openvino(spec, devices) if short == "openvino" else dict(spec.options)
        if devices:
            options.pop("device", None)
        found.append(ResolvedProvider(name, options, tuple(devices[:1])))
    if not any(p.name == CPU for p in found):
        found.append(ResolvedProvider(CPU))
    return found


def _says_threads(spec: ProviderSpec, short: str) -> bool:
    keys = {THREADS[short], *(k for k, (to, _) in OPENVINO_ALIASES.items() if to == THREADS[short])}
    return any(spec.get(key) is not None for key in keys) or THREADS[short] in (spec.get("load_config") or "")


def _find(spec: ProviderSpec) -> tuple[str, list[Any]]:
    """Full name, and the devices where it is a plugin's."""
    wanted = short_name(spec.name)
    plugged = {d.ep_name for d in plugin_devices()}
    for full in available_providers():
        if short_name(full) == wanted and full not in plugged:
            return full, []
    devices = find_devices(spec.name, spec.get("device") or spec.get("device_type"))
    if devices:
        return devices[0].ep_name, devices
    have = ", ".join(dict.fromkeys(short_name(p) for p in available_providers()))
    mine = next((p for p in installed_plugins() if wanted in (p.short, short_name(p.distribution))), None)
    if mine is not None:
        raise UsageError(
            f"--provider {spec.name}: its plugin {mine.distribution} {mine.version} is installed, and finds no device "
            f"on this machine; this ONNX Runtime has {have}."
        )
    packages = packages_for(wanted)
    hint = f"; to have it: {packages[0].command} ({packages[0].where})" if packages else ""
    raise UsageError(f"--provider {spec.name}: this ONNX Runtime has {have}{hint}.")


def _openvino(spec: ProviderSpec, devices: Sequence[Any]) -> dict[str, str]:
    """Properties of OpenVINO (upper case) go into `load_config`: as plain options they are ignored in silence."""
    device = str(dict(devices[0].ep_metadata).get("ov_device", "CPU")) if devices else spec.get("device_type") or "CPU"
    options: dict[str, str] = {}
    properties: dict[str, str] = {}
    for key, value in spec.options:
        if devices and key in OPENVINO_ALIASES:
            name, values = OPENVINO_ALIASES[key]
            properties[name] = values.get(value.upper(), value)
        elif key.isupper():
            properties[key] = value
        elif key in OPENVINO_OPTIONS or key in OPENVINO_ALIASES or key == "device":
            options[key] = value
        else:
            known = ", ".join((*OPENVINO_OPTIONS, *OPENVINO_ALIASES))
            raise UsageError(
                f"--provider {spec}: OpenVINO has no option '{key}' and would ignore it; it has {known}, and its own "
                "properties in capitals, such as INFERENCE_PRECISION_HINT."
            )
    if devices:
        options.pop("device_type", None)
    if properties:
        config = _config(options.get("load_config"), spec)
        config[device] = {**config.get(device, {}), **properties}
        options["load_config"] = json.dumps(config)
    return options


def _config(text: str | None, spec: ProviderSpec) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        loaded = json.loads(text)
    except ValueError:
        loaded = None
    if not isinstance(loaded, dict):
        raise UsageError(f'--provider {spec}: load_config is JSON such as {{"CPU":{{"NUM_STREAMS":"1"}}}}.')
    return loaded
