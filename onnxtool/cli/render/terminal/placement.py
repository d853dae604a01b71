"""Terminal view of a PlacementReport."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import table, verdict
from onnxtool.cli.render.text import clean, duration, markup
from onnxtool.report.measurement.placement import Placement, PlacementReport

if TYPE_CHECKING:
    from rich.console import Console

_MANY = 12
_SHARES = ("nodes", "kernels", "time", "share", "FLOPs")


def render(report: PlacementReport, console: Console, verbose: int = 0) -> None:
    """What each provider does, then what does not run where it was asked to; with -v every node."""
    show(report.placement, console, verbose)
    fallbacks = len(report.placement.fallbacks)
    asked = ", ".join(report.placement.requested)
    said = f"{fallbacks} of {len(report.placement.nodes)} nodes fall back" if fallbacks else "no node falls back"
    verdict(console, report.ok, f"{said} from {clean(asked)}; {report.runtime}; {clean(report.data)}")


def show(placement: Placement, console: Console, verbose: int = 0) -> None:
    """The tables alone."""
    shares = table("provider", *_SHARES, title=f"{clean(placement.model)}: where it runs", right=_SHARES)
    for share in placement.shares:
        flops = "" if share.flops_share is None else f"{share.flops_share:.1%}"
        numbers = (str(share.nodes), str(share.kernels), duration(share.seconds), f"{share.time_share:.1%}", flops)
        shares.add_row(markup(share.provider), *numbers)
    for state, count in Counter(n.state for n in placement.nodes if not n.provider).items():
        shares.add_row(f"({state})", str(count), "", "", "", "")
    console.print(shares)
    copies = f"{placement.copies} copies between devices ({duration(placement.copy_seconds)})"
    console.print(f"{placement.crossings} tensors go from one provider to another; {copies} in a run")
    if verbose:
        _nodes(placement, console)
    else:
        _reasons(placement, console)


def _reasons(placement: Placement, console: Console) -> None:
    """What runs elsewhere, by operator and reason."""
    groups = Counter((n.operator, n.provider, n.reason) for n in placement.nodes if n.reason)
    if not groups:
        return
    made = table("operator", "nodes", "runs on", "because", right=("nodes",))
    for (operator, provider, reason), count in groups.most_common(_MANY):
        where = markup(provider.removesuffix("ExecutionProvider"))
        made.add_row(markup(operator), str(count), where, markup(reason, 300))
    console.print(made)


def _nodes(placement: Placement, console: Console) -> None:
    made = table("node", "operator", "runs on", "as", "because")
    for node in placement.nodes:
        provider = node.provider.removesuffix("ExecutionProvider")
        cells = (markup(node.node), markup(node.operator), markup(provider), node.state)
        made.add_row(*cells, markup(node.reason, 300))
    console.print(made)
