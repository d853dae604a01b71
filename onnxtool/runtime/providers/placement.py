"""Which provider does the work of each node of a file, asked of the runtime itself.

Two sources, because neither knows all: the runtime notes which nodes each provider took (before it fuses and changes
layouts; some nodes are then replaced by others), and the profiler tells where each kernel ran (but calls what a
provider compiled by a name of its own). What neither names was folded or fused; that is read off the graph.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxtool.model import io
from onnxtool.model.file import ModelFile
from onnxtool.model.proto_nodes import all_nodes
from onnxtool.report.measurement.placement import NodePlacement, Placement, ProviderShare
from onnxtool.runtime.providers.resolve import CPU
from onnxtool.runtime.providers.why_not import why_not
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.fused_node_names import label
from onnxtool.runtime.session.session import SessionOptions, requested_providers
from onnxtool.runtime.timing.node_costs import Key, event_key, node_costs, profiled_events
from onnxtool.runtime.timing.profile import macs_by_label

_RUNS = 5
_COPIES = ("MemcpyFromHost", "MemcpyToHost")
# What the runtime puts behind the name of a node that it replaces when a provider wants another layout.
_REPLACED = re.compile(r"(_token_\d+|_nchwc|_nhwc)+$")
_LARGEST = 1_800_000_000


@dataclass
class _Ran:
    """What one profiled session tells."""

    events: list[dict[str, Any]]
    taken: dict[str, str]  # node -> provider that took it
    compiled: set[str]  # nodes that a provider compiled together with others
    graph: onnx.ModelProto | None  # the runtime's own graph; providers that compile cannot write it


@dataclass
class _Found:
    """Where nodes were found, by label."""

    provider: dict[str, str] = field(default_factory=dict)
    state: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, provider: str, state: str) -> None:
        if name not in self.provider:
            self.provider[name], self.state[name] = provider, state


def placement(model: str | os.PathLike[str], feeds: Mapping[str, np.ndarray], options: SessionOptions) -> Placement:
    """Run a model under the profiler and account for every node of the file.

    Args:
        model: an .onnx file that `read_proto` accepts.
        feeds: its inputs.
        options: the providers asked for, and how to run it.

    Raises:
        InputError, UnsupportedError, UsageError: as `OnnxRunner.open` and `run`.
    """
    file = ModelFile.of(model)
    requested = requested_providers(options)
    source = _named(file.proto)
    ran = _run(file, source, feeds, options)
    macs = macs_by_label(file, feeds)
    nodes = list(all_nodes(source.graph.node))
    found = _locate(source, ran, feeds, macs)
    _absorb(source, nodes, found)
    reasons = {}
    astray = [n for n in nodes if _elsewhere(found, label(n), requested)]
    if astray and requested[0] != CPU:
        plain = replace(options, provider="cpu", optimization="off")
        reasons = why_not(source, astray, _run(file, source, feeds, plain).events, options)
    placed = tuple(_placed(n, found, reasons, macs) for n in nodes)
    copies, copy_seconds = _copies(ran.events)
    return Placement(
        model=str(file),
        requested=requested,
        nodes=placed,
        shares=_shares(placed, ran.events, requested),
        copies=copies,
        copy_seconds=copy_seconds,
        crossings=_crossings(nodes, found),
    )


def _named(source: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which every node has a name of its own."""
    proto = onnx.ModelProto()
    proto.CopyFrom(source)
    seen: set[str] = set()
    for node in all_nodes(proto.graph.node):
        wanted = node.name or label(node)
        while wanted in seen:
            wanted += "'"
        seen.add(wanted)
        node.name = wanted
    return proto


def _run(file: ModelFile, source: onnx.ModelProto, feeds: Mapping[str, np.ndarray], options: SessionOptions) -> _Ran:
    with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
        prefix = str(Path(scratch) / "profile")
        runner = _open(file, source, replace(options, profile_prefix=prefix, record_placement=True))
        for _ in range(1 + _RUNS):
            runner.run(feeds)
        events = profiled_events(runner.session)
        taken, compiled = _taken(runner)
        graph = None
        if not compiled and not any(_is_compiled(e) for e in events):
            path = Path(scratch) / "graph.onnx"
            _open(file, source, replace(options, optimized_path=path))
            graph = onnx.load(path, load_external_data=False) if path.exists() else None
    return _Ran(events, taken, compiled, graph)


def _open(file: ModelFile, source: onnx.ModelProto, options: SessionOptions) -> OnnxRunner:
    if file.bytes >= _LARGEST:
        return OnnxRunner.open(file, replace(options, optimized_path=None))
    if any(t.data_location == onnx.TensorProto.EXTERNAL for t in source.graph.initializer):
        folder = ("session.model_external_initializers_file_folder_path", io.native_path(file.path.parent))
        options = replace(options, settings=(*options.settings, folder))
    return OnnxRunner.open(source, options)


def _taken(runner: OnnxRunner) -> tuple[dict[str, str], set[str]]:
    """Node -> provider, and the nodes that were compiled; empty where the runtime does not tell (before 1.24)."""
    tell = getattr(runner.session, "get_provider_graph_assignment_info", None)
    taken: dict[str, str] = {}
    compiled: set[str] = set()
    for part in tell() if tell is not None else ():
        names = [n.name for n in part.get_nodes() if n.name]
        taken |= dict.fromkeys(names, part.ep_name)
        if len(names) > 1:
            compiled |= set(names)
    return taken, compiled


def _is_compiled(event: Mapping[str, Any]) -> bool:
    """A kernel that a provider compiled is called after the provider."""
    key = event_key(event)
    provider = str(event.get("args", {}).get("provider", ""))
    return key is not None and provider not in ("", CPU) and key[1].startswith(provider)


def _locate(source: onnx.ModelProto, ran: _Ran, feeds: Mapping[str, np.ndarray], macs: Mapping[str, int]) -> _Found:
    names = {n.name for n in all_nodes(source.graph.node)}
    costs = {} if ran.graph is None else node_costs(source, ran.graph, ran.events, feeds, macs)
    found = _Found()
    kernels = _kernels(ran.events)
    for key, provider in kernels.items():
        own = _own_name(key[0], names)
        if own is not None:
            found.add(own, provider, "runs")
    _fold(source, found)
    for key, provider in kernels.items():
        for name in costs[key].originals if key in costs else ():
            found.add(name, provider, "fused")
    compiles = {str(e.get("args", {}).get("provider")) for e in ran.events if _is_compiled(e)}
    for name, provider in ran.taken.items():
        if name in names:
            found.add(name, provider, "compiled" if name in ran.compiled or provider in compiles else "runs")
    if compiles and not ran.taken:  # an older runtime: what a provider compiled is what no kernel is called after
        for name in names:
            found.add(name, next(iter(compiles)), "compiled")
    return found


def _kernels(events: Iterable[Mapping[str, Any]]) -> dict[Key, str]:
    """(node, operator) of each kernel that ran -> its provider."""
    found = {}
    for event in events:
        key = event_key(event)
        if key is not None and key[1] not in _COPIES:
            found[key] = str(event.get("args", {}).get("provider", ""))
    return found


def _own_name(kernel: str, names: set[str]) -> str | None:
    """The node of the file that a kernel is called after."""
    for name in (kernel, kernel.removeprefix("fused "), _REPLACED.sub("", kernel)):
        if name in names:
            return name
    return None


def _fold(source: onnx.ModelProto, found: _Found) -> None:
    """What depends on constants only is computed when the model is loaded, unless it was seen to run."""
    constant = {t.name for t in source.graph.initializer}
    for node in all_nodes(source.graph.node):  # in the order of the data
        if node.name in found.provider:
            continue
        if node.op_type == "Constant" or (node.input and all(i in constant or not i for i in node.input)):
            constant |= set(node.output)
            found.add(node.name, "", "folded")


def _absorb(source: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], found: _Found) -> None:
    """What no one named: merged into a neighbour, or read by nobody."""
    makers = {name: n for n in nodes for name in n.output if name}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    outputs = {o.name for o in source.graph.output}
    for node in reversed(nodes):
        if node.name in found.provider:
            continue
        behind = [r for o in node.output for r in readers.get(o, ())]
        ahead = [makers[i] for i in node.input if i in makers]
        around = [found.provider.get(n.name, "") for n in (*behind, *ahead)]
        provider = next((p for p in around if p), "")
        if not provider and not behind and not any(o in outputs for o in node.output):
            found.add(node.name, "", "unused")
        elif provider:
            found.add(node.name, provider, "fused")
    for node in nodes:  # what is left has only neighbours of its kind: a whole part that was computed when loading
        found.add(node.name, "", "folded")


def _elsewhere(found: _Found, name: str, requested: Sequence[str]) -> bool:
    provider = found.provider.get(name, "")
    return provider != "" and provider not in requested[: max(1, len(requested) - (CPU in requested[1:]))]


def _placed(
    node: onnx.NodeProto, found: _Found, reasons: Mapping[str, tuple[str, bool]], macs: Mapping[str, int]
) -> NodePlacement:
    name = node.name
    reason, fallback = reasons.get(name, ("", False))
    return NodePlacement(
        node=name,
        operator=node.op_type,
        provider=found.provider[name],
        state=found.state[name],
        reason=reason,
        fallback=fallback,
        flops=2 * macs[name] if name in macs else None,
    )


def _shares(
    placed: Sequence[NodePlacement], events: Sequence[Mapping[str, Any]], requested: Sequence[str]
) -> tuple[ProviderShare, ...]:
    seconds: dict[str, float] = defaultdict(float)
    kernels: dict[str, set[Key]] = {}
    runs = _runs(events)
    for event in _last_runs(events, runs):
        key = event_key(event)
        if key is None or key[1] in _COPIES:
            continue
        provider = str(event.get("args", {}).get("provider", ""))
        seconds[provider] += float(event.get("dur", 0)) / 1e6 / max(runs - 1, 1)
        kernels.setdefault(provider, set()).add(key)
    total = sum(seconds.values())
    flops = sum(n.flops or 0 for n in placed)
    names = [*requested, *sorted({n.provider for n in placed if n.provider} - set(requested))]
    names += [p for p in seconds if p not in names]
    found = []
    for provider in dict.fromkeys(names):
        own = [n for n in placed if n.provider == provider]
        found.append(
            ProviderShare(
                provider=provider,
                nodes=len(own),
                kernels=len(kernels.get(provider, ())),
                seconds=seconds[provider],
                time_share=seconds[provider] / total if total else 0.0,
                flops_share=sum(n.flops or 0 for n in own) / flops if flops else None,
            )
        )
    return tuple(found)


def _runs(events: Sequence[Mapping[str, Any]]) -> int:
    return sum(1 for e in events if e.get("cat") == "Session" and e.get("name") == "model_run")


def _last_runs(events: Sequence[Mapping[str, Any]], runs: int) -> list[Mapping[str, Any]]:
    """Without the first run, in which kernels are prepared. Events of a run stand before its own."""
    if runs < 2:
        return list(events)
    first = next(i for i, e in enumerate(events) if e.get("cat") == "Session" and e.get("name") == "model_run")
    return list(events[first + 1 :])


def _copies(events: Sequence[Mapping[str, Any]]) -> tuple[int, float]:
    runs = _runs(events)
    copies = [e for e in _last_runs(events, runs) if (event_key(e) or ("", ""))[1] in _COPIES]
    each = max(runs - 1, 1)
    return round(len(copies) / each), sum(float(e.get("dur", 0)) for e in copies) / 1e6 / each


def _crossings(nodes: Sequence[onnx.NodeProto], found: _Found) -> int:
    makers = {name: found.provider[n.name] for n in nodes for name in n.output if name}
    crossed = set()
    for node in nodes:
        own = found.provider[node.name]
        crossed |= {(i, own) for i in node.input if own and makers.get(i) and makers[i] != own}
    return len(crossed)
