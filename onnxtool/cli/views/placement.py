"""What `inspect --placement` says: what each provider does, and what does not run where it was asked to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from onnxtool.cli.text import duration
from onnxtool.cli.views.view import Line, Part, Table, Verdict
from onnxtool.report.measurement.placement import Placement, PlacementReport

_MANY = 12


def placement(report: PlacementReport) -> Iterator[Part]:
    """What each provider does, then what runs elsewhere, or where there is room every node."""
    found = report.placement
    fallbacks = len(found.fallbacks)
    outcome = f"{fallbacks} of {len(found.nodes)} nodes fall back" if fallbacks else "no node falls back"
    yield Verdict(f"{outcome} from {', '.join(found.requested)}; {report.runtime}; {report.data}")
    yield from placement_parts(found)


def placement_parts(found: Placement) -> Iterator[Part]:
    """The parts, for `bench` too."""
    rows = [
        (
            share.provider,
            *(str(share.nodes), str(share.kernels), duration(share.seconds), f"{share.time_share:.1%}"),
            "" if share.flops_share is None else f"{share.flops_share:.1%}",
        )
        for share in found.shares
    ]
    idle = Counter(n.state for n in found.nodes if not n.provider)
    rows += [(f"({state})", str(count), "", "", "", "") for state, count in idle.items()]
    numbers = ("nodes", "kernels", "time", "share", "FLOPs")
    yield Table(("provider", *numbers), rows, numbers, f"{found.model}: where it runs")
    copies = f"{found.copies} copies between devices ({duration(found.copy_seconds)})"
    yield Line(f"{found.crossings} tensors go from one provider to another; {copies} in a run")
    groups = Counter((n.operator, _short(n.provider), n.reason) for n in found.nodes if n.reason)
    reasons = [(operator, str(count), *where) for (operator, *where), count in groups.most_common(_MANY)]
    yield Table(("operator", "nodes", "runs on", "because"), reasons, ("nodes",), when="brief")
    nodes = [(n.node, n.operator, _short(n.provider), n.state, n.reason) for n in found.nodes]
    yield Table(("node", "operator", "runs on", "as", "because"), nodes, when="full")


def _short(provider: str) -> str:
    return provider.removesuffix("ExecutionProvider")
