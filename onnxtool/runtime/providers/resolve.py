"""From the names of providers to what a session is given: the runtime's own, and plugins found in the installation,
which are registered once, with their devices.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import onnxruntime as ort

from onnxtool.errors import UsageError, one_line
from onnxtool.model import io
from onnxtool.runtime.providers.known import (
    OPENVINO_ALIASES,
    OPENVINO_OPTIONS,
    PACKAGES,
    REGISTERING,
    THREADS,
    packages_for,
    provider_call,
    provider_crashes,
)
from onnxtool.runtime.providers.spec import ProviderSpec, short_name
from onnxtool.runtime.worker.isolation import guarded, native_silence, provider_crash

_PREFIX = "onnxruntime-ep-"
_SUPPORTED = hasattr(ort, "register_execution_provider_library") and hasattr(ort, "get_ep_devices")


@dataclass(frozen=True)
class Plugin:
    """An installed package that brings a plugin provider.

    Attributes:
        distribution: its name in the package index.
        version: installed version.
        module: Python module that tells where the library is.
        short: what people call the provider.
    """

    distribution: str
    version: str
    module: str
    short: str


# Libraries that this process has registered: path -> the names of the providers that came with it, and the module.
_registered: dict[str, tuple[tuple[str, ...], str]] = {}


def installed_plugins() -> tuple[Plugin, ...]:
    """Packages that bring plugin providers: the known ones and whatever is called onnxruntime-ep-*."""
    known = {p.distribution for p in PACKAGES if p.plugin}
    found: dict[str, Plugin] = {}
    for distribution in metadata.distributions():
        name = str(distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name not in known and not name.startswith(_PREFIX):
            continue
        module = name.replace("-", "_")
        if importlib.util.find_spec(module) is None:
            continue  # a package without code of its own that only requires another
        short = next((short_name(p.provider) for p in PACKAGES if p.distribution == name), name.removeprefix(_PREFIX))
        found.setdefault(name, Plugin(name, distribution.version, module, short))
    return tuple(found[name] for name in sorted(found))


def register_library(library: str | os.PathLike[str]) -> tuple[str, ...]:
    """Load a plugin provider into the runtime, once for each process; this runs the library's code.

    Args:
        library: the shared library, or the name of an installed package that brings one.

    Returns:
        Full names of the providers that it brings; none when it has no device on this machine.

    Raises:
        UsageError: neither a file nor such a package, or the runtime cannot load it.
    """
    if not _SUPPORTED:
        raise UsageError(f"--ep-library {library}: onnxruntime {ort.__version__} takes no plugins; 1.23 and later do.")
    path, name = _locate(os.fspath(library))
    key = str(path.resolve())
    if key not in _registered:
        short = _short_of(library, name)
        crash = provider_crash(short)
        if crash is not None and crash.provider is not None and crash.provider.what == REGISTERING:
            raise provider_crashes(crash)
        before = _device_names()
        try:
            call = provider_call(REGISTERING, short)
            with guarded(REGISTERING, path.stat().st_size, provider=call), native_silence():
                ort.register_execution_provider_library(name, io.native_path(path.resolve()))
        except Exception as error:
            reason = " ".join(str(error).split()).split(" : ")[-1][:300]
            raise UsageError(f"--ep-library {library}: the runtime cannot load it: {reason}") from error
        module = "" if Path(library).is_file() else os.fspath(library).replace("-", "_")
        _registered[key] = tuple(n for n in _device_names() if n not in before), module
    return _registered[key][0]


def plugin_devices() -> list[Any]:
    """The devices (`OrtEpDevice`) of the registered plugins, as the runtime lists them."""
    built_in = {"CPUExecutionProvider"}
    return [d for d in ort.get_ep_devices() if d.ep_name not in built_in] if _SUPPORTED else []


def find_devices(name: str, device: str | None = None) -> list[Any]:
    """The devices of a plugin provider; an installed plugin of that name is registered first.

    Args:
        name: short or full name of the provider, any case.
        device: "cpu", "gpu" or "npu", a name that the plugin gives its devices, or a number among them.

    Raises:
        UsageError: it has no such device.
    """
    wanted = short_name(name)
    if not any(short_name(d.ep_name) == wanted for d in plugin_devices()):
        for plugin in installed_plugins() if _SUPPORTED else ():
            if plugin.short == wanted or short_name(plugin.distribution) == wanted:
                register_library(plugin.module)
    devices = [d for d in plugin_devices() if short_name(d.ep_name) == wanted]
    if device is None or not devices:
        return devices
    chosen = [d for i, d in enumerate(devices) if device.lower() in (*_device_words(d), str(i))]
    if not chosen:
        have = ", ".join(dict.fromkeys(word for d in devices for word in _device_words(d)))
        raise UsageError(f"--provider {name}: it has no device '{device}'; it has {have}.")
    return chosen


def device_kind(device: Any) -> str:
    """ "cpu", "gpu" or "npu"."""
    return str(device.device.type).rsplit(".", 1)[-1].split(":")[0].lower()


def device_label(device: Any) -> str:
    """ "cpu: Intel(R) Xeon(R)", for people."""
    name = dict(device.ep_metadata).get("FULL_DEVICE_NAME") or device.device.vendor
    return f"{device_kind(device)}: {name}" if name else device_kind(device)


def _device_words(device: Any) -> tuple[str, ...]:
    """What a device may be called."""
    own = dict(device.ep_metadata).get("ov_device", "")
    return tuple(dict.fromkeys(w.lower() for w in (device_kind(device), own) if w))


def _device_names() -> Sequence[str]:
    return list(dict.fromkeys(d.ep_name for d in ort.get_ep_devices()))


def _short_of(library: str | os.PathLike[str], name: str) -> str:
    """What people call the provider of a library, before it is loaded; `name` is what it is registered under."""
    plugged = {p.module: p.short for p in installed_plugins()}
    return plugged.get(os.fspath(library).replace("-", "_"), short_name(name))


def _locate(library: str) -> tuple[Path, str]:
    """The file of a library and a name to register it under (some plugins call their provider so)."""
    path = Path(library)
    if path.is_file():
        stem = path.name.split(".")[0].removeprefix("lib")
        return path, stem.removeprefix("onnxruntime_providers_").removeprefix("onnxruntime_")
    module = library.replace("-", "_")
    if os.sep in library or not module.isidentifier():
        raise UsageError(f"--ep-library {library}: no such file.")
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"--ep-library {library}: neither a file nor an installed package ({error}).") from error
    tell = getattr(loaded, "get_library_path", None) or getattr(loaded, "library_path", None)
    if tell is None:
        raise UsageError(f"--ep-library {library}: the package does not tell where its library is (get_library_path).")
    try:
        found = Path(tell())
    except Exception as error:  # the package's own code
        raise UsageError(f"--ep-library {library}: {one_line(error)}") from error
    return found, getattr(loaded, "EP_NAME", None) or module


def library_of(provider: str) -> tuple[str, str]:
    """Where a registered plugin came from: its Python module ("" for a file of the user's) and its library."""
    for path, (names, module) in _registered.items():
        if provider in names:
            return module, path
    return "", ""


def register_all(libraries: Iterable[str | os.PathLike[str]]) -> None:
    """Register several; errors as of `register_library`."""
    for library in libraries:
        register_library(library)


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
