"""Terminal view of an InspectReport."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from onnxtool.cli.render.terminal import facts, table, warnings
from onnxtool.cli.render.text import clean, count, markup, size
from onnxtool.report.base import TensorInfo
from onnxtool.report.inspect import InspectReport, NodeInfo, WeightInfo

if TYPE_CHECKING:
    from rich.console import Console

_MANY = 8


def render(report: InspectReport, console: Console, verbose: int = 0) -> None:
    """Facts, operators, the largest tensors; the nodes when they were asked for."""
    console.print(facts(_facts(report, verbose)))
    operators = table(
        "operator", "since", "nodes", "parameters", "MACs", right=("since", "nodes", "parameters", "MACs")
    )
    for use in report.operators:
        operators.add_row(
            markup(use.name),
            "?" if use.since is None else str(use.since),
            str(use.count),
            count(use.parameters) if use.parameters else "",
            "" if use.macs is None else count(use.macs),
        )
    console.print(operators)
    if report.largest:
        largest = table("largest tensors", "shape", "bytes", right=("bytes",))
        for weight in report.largest:
            largest.add_row(markup(weight.name), markup(_shape(weight)), size(weight.bytes))
        console.print(largest)
    if report.nodes:
        _nodes(report, console)
    warnings(console, report.warnings)


def _compute(report: InspectReport) -> str:
    """What was counted; never 0 where shapes are missing."""
    counted = f"{count(report.macs)} MACs, {count(report.flops)} FLOPs"
    if not report.uncounted:
        return counted
    return f"at least {counted}" if report.macs else f"unknown: the shapes of {report.uncounted} nodes are not known"


def _facts(report: InspectReport, verbose: int) -> list[tuple[str, Any]]:
    assumed = ", ".join(f"{name}={number}" for name, number in report.assumed_dims.items())
    weights = f"{count(report.parameters)} in {report.initializer_count} tensors, {size(report.parameter_bytes)}"
    by_dtype = ", ".join(f"{name} {size(number)}" for name, number in report.dtypes.items())
    return [
        ("model", f"{report.model} ({size(report.bytes)})"),
        ("SHA-256", report.sha256 if verbose else None),
        ("IR version", report.ir_version),
        ("opsets", ", ".join(f"{domain} {version}" for domain, version in report.opsets.items())),
        ("producer", report.producer),
        ("graph", report.graph_name),
        ("domain", report.domain),
        ("description", clean(report.doc) if report.doc else None),
        *_tensors("input", report.inputs, verbose),
        *_tensors("output", report.outputs, verbose),
        ("dynamic dims", ", ".join(report.dynamic_dims)),
        ("functions", ", ".join(report.functions)),
        ("parameters", f"{weights} ({by_dtype})" if by_dtype else weights),
        ("compute", _compute(report) + (f" for {assumed}" if assumed and report.macs else "")),
        *((f"meta {name}", clean(value, 2000 if verbose else 200)) for name, value in report.metadata.items()),
        *(("" if i else "history", line) for i, line in enumerate(_history(report.history, verbose))),
    ]


def _history(steps: Iterable[Mapping[str, Any]], verbose: int) -> Iterator[str]:
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
            yield clean(json.dumps(rest), 4000 if verbose else 240)


def _taken(step: dict[str, Any], key: str) -> list[str]:
    """A text of a step, which then is no longer part of it."""
    return [str(step.pop(key))] if isinstance(step.get(key), str) else []


def _verification(result: Any) -> str:
    if not isinstance(result, Mapping) or not isinstance(result.get("runs"), list):
        return result if isinstance(result, str) else json.dumps(result)
    verdict = "equal" if result.get("equal") is True else "different"
    terms = f"rtol {result.get('rtol')}, atol {result.get('atol')}"
    return f"{verdict} in {len(result['runs'])} runs ({result.get('data')}), {terms}"


def _tensors(label: str, items: tuple[TensorInfo, ...], verbose: int) -> list[tuple[str, str]]:
    shown = items if verbose else items[:_MANY]
    rows = [(label if not i else "", clean(str(item))) for i, item in enumerate(shown)]
    return rows + ([("", f"and {len(items) - len(shown)} more (-v)")] if len(items) > len(shown) else [])


def _shape(weight: WeightInfo) -> str:
    return f"{weight.dtype}[{', '.join(map(str, weight.shape))}]" + (" external" if weight.external else "")


def _nodes(report: InspectReport, console: Console) -> None:
    made = table("#", "operator", "name", "outputs", "shape", "MACs", right=("#", "MACs"))
    graph = "main"
    for node in report.nodes:
        if node.graph != graph:
            graph = node.graph
            made.add_section()
            made.add_row("", "", markup(graph), "", "", "")
        made.add_row(*_node(node))
    console.print(made)


def _node(node: NodeInfo) -> tuple[str, ...]:
    shapes = "; ".join("?" if s is None else "x".join(map(str, s)) or "scalar" for s in node.output_shapes)
    names = ", ".join(node.outputs)
    work = "" if node.macs is None else count(node.macs)
    return str(node.index), markup(node.operator), markup(node.name), markup(names), markup(shapes), work
