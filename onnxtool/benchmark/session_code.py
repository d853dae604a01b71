"""Settings of a session that people tune by hand, and the code that makes a session with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from onnxtool.runtime.providers.resolve import CPU, ResolvedProvider, library_of
from onnxtool.runtime.session.session import SessionOptions, resolved_providers

Change = Callable[[SessionOptions], SessionOptions]

# Words for each change -> what it does to the options. The saved file is no option: see `bench_matrix`.
CHANGES: Mapping[str, Change] = {
    "no spinning": lambda o: replace(o, settings=(*o.settings, ("session.intra_op.allow_spinning", "0"))),
    "no arena": lambda o: replace(o, arena=False),
    "no memory pattern": lambda o: replace(o, memory_pattern=False),
    "parallel execution": lambda o: replace(o, parallel=True),
    "graph level extended": lambda o: replace(o, optimization="extended"),
    "graph level basic": lambda o: replace(o, optimization="basic"),
    "no prepacking": lambda o: replace(o, prepack=False),
}
SAVED = "graph saved at level all"
# Changes of one kind exclude one another.
KINDS = (("graph level extended", "graph level basic", SAVED),)


def changed(options: SessionOptions, changes: tuple[str, ...]) -> SessionOptions:
    """Options with changes, by their words; a saved graph is not optimized again."""
    for change in changes:
        options = replace(options, optimization="off") if change == SAVED else CHANGES[change](options)
    return options


def combined(changes: list[str]) -> tuple[str, ...]:
    """Changes that go together, the better ones first: one of each kind."""
    kept: list[str] = []
    for change in changes:
        rivals = {c for kind in KINDS if change in kind for c in kind}
        if not rivals & set(kept):
            kept.append(change)
    return tuple(kept)


_LEVELS = {"off": "DISABLE_ALL", "basic": "ENABLE_BASIC", "extended": "ENABLE_EXTENDED", "all": "ENABLE_ALL"}


def settings_of(options: SessionOptions) -> dict[str, Any]:
    """What is not the runtime's default, as plain values."""
    found: dict[str, Any] = {
        "providers": [
            {"name": p.name, "options": p.options, "plugin": library_of(p.name)[0]} for p in resolved_providers(options)
        ],
        "intra_op_num_threads": options.threads or 0,
        "graph_optimization_level": _LEVELS[options.optimization],
    }
    if not options.arena:
        found["enable_cpu_mem_arena"] = False
    if not options.memory_pattern:
        found["enable_mem_pattern"] = False
    if options.parallel:
        found["execution_mode"] = "PARALLEL"
    entries = dict(options.settings)
    if not options.prepack:
        entries["session.disable_prepacking"] = "1"
    if entries:
        found["config_entries"] = entries
    return found


def code_of(options: SessionOptions, model: str) -> dict[str, str]:
    """The same as code by language: "python", "csharp" and "cpp"; plugins are named by their package.

    Args:
        options: the setting.
        model: name of the model's file.
    """
    settings, providers = settings_of(options), resolved_providers(options)
    return {
        "python": _python(settings, providers, model),
        "csharp": _csharp(settings, providers, model),
        "cpp": _cpp(settings, providers, model),
    }


def _python(settings: Mapping[str, Any], providers: list[ResolvedProvider], model: str) -> str:
    lines = ["import onnxruntime as ort", "", "options = ort.SessionOptions()"]
    lines.append(f"options.intra_op_num_threads = {settings['intra_op_num_threads']}")
    level = settings["graph_optimization_level"]
    lines.append(f"options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_{level}")
    for name in ("enable_cpu_mem_arena", "enable_mem_pattern"):
        if name in settings:
            lines.append(f"options.{name} = {settings[name]}")
    if "execution_mode" in settings:
        lines.append("options.execution_mode = ort.ExecutionMode.ORT_PARALLEL")
    for key, value in settings.get("config_entries", {}).items():
        lines.append(f"options.add_session_config_entry({key!r}, {value!r})")
    for provider in providers:
        package, library = library_of(provider.name)
        if not provider.devices:
            lines.append(f"options.add_provider({provider.name!r}, {provider.options!r})")
            continue
        if package:
            lines += ["", f"import {package}  # pip install {package.replace('_', '-')}", ""]
            library = f"{package}.get_library_path()"
        else:
            library = repr(library)
        lines.append(f"ort.register_execution_provider_library({provider.name!r}, {library})")
        lines.append(f"devices = [d for d in ort.get_ep_devices() if d.ep_name == {provider.name!r}]")
        lines.append(f"options.add_provider_for_devices(devices[:1], {provider.options!r})")
    return "\n".join([*lines, f"session = ort.InferenceSession({model!r}, options)", ""])


def _csharp(settings: Mapping[str, Any], providers: list[ResolvedProvider], model: str) -> str:
    lines = ["using System.Collections.Generic;", "using System.Linq;", "using Microsoft.ML.OnnxRuntime;", ""]
    lines.append("var options = new SessionOptions();")
    lines.append(f"options.IntraOpNumThreads = {settings['intra_op_num_threads']};")
    level = settings["graph_optimization_level"]
    lines.append(f"options.GraphOptimizationLevel = GraphOptimizationLevel.ORT_{level};")
    if "enable_cpu_mem_arena" in settings:
        lines.append("options.EnableCpuMemArena = false;")
    if "enable_mem_pattern" in settings:
        lines.append("options.EnableMemoryPattern = false;")
    if "execution_mode" in settings:
        lines.append("options.ExecutionMode = ExecutionMode.ORT_PARALLEL;")
    for key, value in settings.get("config_entries", {}).items():
        lines.append(f"options.AddSessionConfigEntry({json.dumps(key)}, {json.dumps(value)});")
    for provider in providers:
        if provider.name == CPU:
            continue
        pairs = ", ".join(f"[{json.dumps(k)}] = {json.dumps(v)}" for k, v in provider.options.items())
        given = f"new Dictionary<string, string> {{ {pairs} }}"
        name = json.dumps(provider.name)
        short = provider.name.removesuffix("ExecutionProvider")
        if provider.devices:
            lines.append("var environment = OrtEnv.Instance();")
            lines.append(f"environment.RegisterExecutionProviderLibrary({name}, {json.dumps(_file(provider.name))});")
            lines.append(f"var devices = environment.GetEpDevices().Where(d => d.EpName == {name}).Take(1).ToList();")
            lines.append(f"options.AppendExecutionProvider(environment, devices, {given});")
        elif short in ("CUDA", "Tensorrt"):
            kind = {"CUDA": "OrtCUDAProviderOptions", "Tensorrt": "OrtTensorRTProviderOptions"}[short]
            lines.append(f"var own = new {kind}();")
            lines.append(f"own.UpdateOptions({given});")
            lines.append(f"options.AppendExecutionProvider_{short}(own);")
        else:
            lines.append(f"options.AppendExecutionProvider({json.dumps(short)}, {given});")
    return "\n".join([*lines, f"using var session = new InferenceSession({json.dumps(model)}, options);", ""])


def _cpp(settings: Mapping[str, Any], providers: list[ResolvedProvider], model: str) -> str:
    lines = [f"#include <{header}>" for header in ("onnxruntime_cxx_api.h", "string", "unordered_map", "vector")] + [""]
    lines += ["Ort::Env environment;", "Ort::SessionOptions options;"]
    lines.append(f"options.SetIntraOpNumThreads({settings['intra_op_num_threads']});")
    lines.append(f"options.SetGraphOptimizationLevel(ORT_{settings['graph_optimization_level']});")
    if "enable_cpu_mem_arena" in settings:
        lines.append("options.DisableCpuMemArena();")
    if "enable_mem_pattern" in settings:
        lines.append("options.DisableMemPattern();")
    if "execution_mode" in settings:
        lines.append("options.SetExecutionMode(ORT_PARALLEL);")
    for key, value in settings.get("config_entries", {}).items():
        lines.append(f"options.AddConfigEntry({json.dumps(key)}, {json.dumps(value)});")
    for provider in providers:
        if provider.name == CPU:
            continue
        pairs = ", ".join(f"{{{json.dumps(k)}, {json.dumps(v)}}}" for k, v in provider.options.items())
        name = json.dumps(provider.name)
        lines.append(f"std::unordered_map<std::string, std::string> own{{{pairs}}};")
        if provider.devices:
            file = json.dumps(_file(provider.name))
            lines.append(f"environment.RegisterExecutionProviderLibrary({name}, ORT_TSTR({file}));")
            lines.append("std::vector<Ort::ConstEpDevice> devices;")
            lines.append("for (auto device : environment.GetEpDevices())")
            lines.append(f"  if (devices.empty() && device.EpName() == std::string({name})) devices.push_back(device);")
            lines.append("options.AppendExecutionProvider_V2(environment, devices, own);")
        else:
            short = json.dumps(provider.name.removesuffix("ExecutionProvider"))
            lines.append(f"options.AppendExecutionProvider({short}, own);")
    return "\n".join([*lines, f"Ort::Session session(environment, ORT_TSTR({json.dumps(model)}), options);", ""])


def _file(provider: str) -> str:
    """The name of a plugin's library, without this machine's folder."""
    return library_of(provider)[1].replace("\\", "/").rsplit("/", 1)[-1]
