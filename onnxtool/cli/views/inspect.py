"""What `inspect` says: a model's facts, operators, largest tensors and history, and its nodes when asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import Any

from onnxtool.cli.text import clean, count, size
from onnxtool.cli.views.view import Facts, Part, Table, warnings
from onnxtool.report.inspect import InspectReport, NodeInfo, WeightInfo

_ENTRIES = 50  # of metadata that are shown; twenty times as many with -v


def inspect(report: InspectReport) -> Iterator[Part]:
    """Facts, operators, the largest tensors; the nodes when they were asked for."""
    yield Facts(_facts(report, everything=False), when="brief")
    yield Facts(_facts(report, everything=True), when="full")
    operators = [
        (
            use.name,
            "?" if use.since is None else str(use.since),
            str(use.count),
            count(use.parameters) if use.parameters else "",
            "" if use.macs is None else count(use.macs),
        )
        for use in report.operators
    ]
    numbers = ("since", "nodes", "parameters", "MACs")
    yield Table(("operator", *numbers), operators, numbers=numbers)
    largest = [(weight.name, _shape(weight), size(weight.bytes)) for weight in report.largest]
    yield Table(("largest tensors", "shape", "bytes"), largest, numbers=("bytes",))
    columns = ("#", "operator", "name", "outputs", "shape", "MACs")
    for graph, nodes in groupby(report.nodes, key=lambda node: node.graph):
        title = "" if graph == "main" else graph
        yield Table(columns, [_node(node) for node in nodes], numbers=("#", "MACs"), title=title)
    yield from warnings(report.warnings)


def _facts(report: InspectReport, everything: bool) -> list[tuple[str, Any]]:
    assumed = ", ".join(f"{name}={number}" for name, number in report.assumed_dims.items())
    weights = f"{count(report.parameters)} in {report.initializer_count} tensors, {size(report.parameter_bytes)}"
    by_dtype = ", ".join(f"{name} {size(number)}" for name, number in report.dtypes.items())
    return [
        ("model", f"{report.model} ({size(report.bytes)})"),
        ("SHA-256", report.sha256 if everything else None),
        ("IR version", report.ir_version),
        ("opsets", ", ".join(f"{domain} {version}" for domain, version in report.opsets.items())),
        ("producer", report.producer),
        ("graph", report.graph_name),
        ("domain", report.domain),
        ("description", clean(report.doc)),
        ("input", tuple(map(str, report.inputs))),
        ("output", tuple(map(str, report.outputs))),
        ("dynamic dims", ", ".join(report.dynamic_dims)),
        ("functions", ", ".join(report.functions)),
        ("parameters", f"{weights} ({by_dtype})" if by_dtype else weights),
        ("compute", _compute(report) + (f" for {assumed}" if assumed and report.macs else "")),
        *_metadata(report.metadata, everything),
        *(("" if i else "history", line) for i, line in enumerate(_history(report.history, everything))),
    ]


def _metadata(entries: Mapping[str, str], everything: bool) -> Iterator[tuple[str, str]]:
    """The first entries; a file may have any number."""
    most = _ENTRIES * (20 if everything else 1)
    for name, value in islice(entries.items(), most):
        yield f"meta {clean(name, 100)}", clean(value, 2000 if everything else 200)
    if len(entries) > most:
        yield "meta", f"and {len(entries) - most} more (--json has all)"


def _compute(report: InspectReport) -> str:
    """What was counted; never 0 where shapes are missing."""
    counted = f"{count(report.macs)} MACs, {count(report.flops)} FLOPs"
    if not report.uncounted:
        return counted
    return f"at least {counted}" if report.macs else f"unknown: the shapes of {report.uncounted} nodes are not known"


def _history(steps: Iterable[Mapping[str, Any]], everything: bool) -> Iterator[str]:
    """What was done to which file and how that was proven; then the rest as it was recorded."""
    for step in steps:
        rest = dict(step)
        title = f"{rest.pop('command', '?')} (onnxtool {rest.pop('onnxtool', '?')})"
        yield clean(" of ".join([title, *_taken(rest, "source")]))
        yield from (f"SHA-256 of the source {clean(digest)}" for digest in _taken(rest, "source_sha256"))
        origin = [*_taken(rest, "form"), *_taken(rest, "framework")]
        if origin:
            yield clean(", ".join(origin))
        if "verification" in rest:
            yield clean(f"verification: {_verification(rest.pop('verification'))}")
        if rest:
            yield clean(json.dumps(rest), 4000 if everything else 240)


def _taken(step: dict[str, Any], key: str) -> list[str]:
    """A text of a step, which then is no longer part of it."""
    return [str(step.pop(key))] if isinstance(step.get(key), str) else []


def _verification(result: Any) -> str:
    if not isinstance(result, Mapping) or not isinstance(result.get("runs"), list):
        return result if isinstance(result, str) else json.dumps(result)
    verdict = "equal" if result.get("equal") is True else "different"
    terms = f"rtol {result.get('rtol')}, atol {result.get('atol')}"
    return f"{verdict} in {len(result['runs'])} runs ({result.get('data')}), {terms}"


def _shape(weight: WeightInfo) -> str:
    return f"{weight.dtype}[{', '.join(map(str, weight.shape))}]" + (" external" if weight.external else "")


def _node(node: NodeInfo) -> tuple[str, ...]:
    shapes = "; ".join("?" if s is None else "x".join(map(str, s)) or "scalar" for s in node.output_shapes)
    names = ", ".join(node.outputs)
    work = "" if node.macs is None else count(node.macs)
    return str(node.index), node.operator, node.name, names, shapes, work
