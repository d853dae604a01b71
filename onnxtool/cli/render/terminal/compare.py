"""Terminal view of a CompareReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import provider_proofs, table, verdict, warnings
from onnxtool.cli.render.text import clean, cosine, markup, number
from onnxtool.report.compare import CompareReport, TensorDifference
from onnxtool.report.layers import LayerDifference, Layers, Reproducer, Suspect

if TYPE_CHECKING:
    from rich.console import Console

# Rows of the table along the depth: all up to _ROWS, else about _SAMPLE of them and what is around the first wrong one.
_ROWS, _SAMPLE = 16, 8
# The mean error, the least telling one, is left to terminals of this width.
_WIDE = 100


def render(report: CompareReport, console: Console, verbose: int = 0) -> None:
    """One row for each output, then the worst element of every output that failed."""
    wide = console.width >= _WIDE or bool(verbose)
    numbers = ("max abs", "max rel", *(["mean abs"] if wide else []), "cosine", "SQNR dB")
    made = table("output", "shape", *numbers, "verdict", right=numbers)
    made.collapse_padding = True  # eight columns have to fit into 80 characters
    for column in made.columns[2:]:
        column.no_wrap = True
    for item in report.outputs:
        made.add_row(
            markup(item.name),
            f"{item.dtype}[{', '.join(map(str, item.shape))}]".replace("[", "\\["),
            *(number(v) for v in (item.max_abs, item.max_rel, *([item.mean_abs] if wide else []))),
            cosine(item.cosine, 7),
            number(item.sqnr_db),
            _verdict(item, report),
        )
    console.print(made)
    for item in report.outputs:
        if not item.ok or item.note:
            console.print(f"  {markup(item.name)}: {markup(why(item), 500)}", soft_wrap=True)
        if verbose or any(item.nans) or any(item.infinities):
            console.print(f"  {markup(item.name)}: {markup(_details(item, report.top_k), 500)}", soft_wrap=True)
    for opinion in report.opinions:
        distances = f"{number(opinion.a_max_abs)} from A, {number(opinion.b_max_abs)} from B"
        console.print(
            f"  ONNX's reference on {markup(opinion.output)}: {opinion.summary} ({distances})", soft_wrap=True
        )
    if report.layers is not None:
        _layers(report.layers, console, verbose)
    if report.coverage is not None:
        console.print(f"[dim]  tried besides: {markup(report.coverage.summary, 300)}[/]")
    if report.counterexample is not None:
        console.print(f"  [red]differs with[/] {markup(str(report.counterexample), 500)}", soft_wrap=True)
    provider_proofs(console, () if report.precision is None else (report.precision,))
    warnings(console, report.warnings)
    sizes = f"{len(report.runs)} run{'s' if len(report.runs) != 1 else ''} on {clean(report.data)}"
    outcome = ("equal" if report.ok else "equal where run") if report.equal else "different"
    if not report.compared:
        verdict(console, False, f"no output was compared, so nothing is known of them ({sizes})")
        return
    left = len(report.not_compared)
    own = sum(item.rtol is not None for item in report.outputs)
    but = f", {own} output{'s' if own != 1 else ''} by {'their' if own != 1 else 'its'} own tolerance" if own else ""
    if report.budget:
        console.print(f"  budget: {markup(report.budget, 1000)} (docs/quantize.md)", style="dim")
        verdict(console, report.ok, f"{'within' if report.ok else 'beyond'} the accuracy budget of quantize ({sizes})")
        return
    if report.rule:
        console.print(f"  rule: {markup(report.rule, 300)} (docs/equality.md)", style="dim")
    if left:
        but += f", {left} output{'s' if left != 1 else ''} not compared"
    verdict(console, report.ok, f"{outcome} within rtol {report.rtol:g}, atol {report.atol:g}{but} ({sizes})")


def _verdict(item: TensorDifference, report: CompareReport) -> str:
    if not item.compared:
        return "[yellow]not compared[/]"
    if not item.ok:
        return "[red]differs[/]"
    return "[green]kept[/]" if report.budget else "[green]equal[/]"


def _details(item: TensorDifference, top_k: int) -> str:
    parts = []
    if item.max_ulp is not None:
        parts.append(f"at most {item.max_ulp} units in the last place")
    if item.top1 is not None:
        parts.append(f"the largest element of a row is the same in {item.top1:.2%} of rows")
    if item.top_k is not None:
        parts.append(f"of its {top_k} largest, {item.top_k:.2%} are the same ones")
    for what, (a, b) in (("NaN", item.nans), ("infinite", item.infinities)):
        if a or b:
            parts.append(f"{what}: {a} in A, {b} in B")
    return "; ".join(parts)


def _layers(layers: Layers, console: Console, verbose: int) -> None:
    """The error along the depth, and who is to blame."""
    numbers = ("#", "max abs", "rel error")
    made = table("#", "operator", "tensor", "shape", "max abs", "rel error", "", title="along the depth", right=numbers)
    made.collapse_padding = True
    shown = layers.tensors if verbose else _excerpt(layers)
    for previous, item in zip([None, *shown], shown, strict=False):
        if previous is not None and layers.tensors.index(item) != layers.tensors.index(previous) + 1:
            made.add_row("", "...")
        state = "[green]equal[/]" if item.ok else ("[yellow]other tensor[/]" if item.reused else "[red]differs[/]")
        # Tensors that were known again by their sketches alone have no shape, and no error was measured.
        unmeasured = item.matched_by == "value" and not item.shape
        # A framework's layer is called what people call it; the tensor in the file is told with -v.
        both = item.name != item.other_name and (unmeasured or item.matched_by == "name" or verbose)
        name = f"{item.other_name} = {item.name}" if both else item.name
        shape = "by value" if unmeasured else "x".join(map(str, item.shape))
        measured = ("", "") if unmeasured else (number(item.max_abs), number(item.error))
        made.add_row(str(item.depth), markup(item.operator), markup(name, 60), markup(shape), *measured, state)
    console.print(made)
    if layers.unmatched_b:
        console.print(f"{layers.unmatched_b} tensors of B have no partner in A, {layers.unmatched_a} of A none in B")
    if layers.culprit is not None:
        console.print(f"[red]first wrong tensor:[/] {markup(layers.culprit.tensor)}, made by", soft_wrap=True)
        for suspect in layers.culprit.suspects[: 20 if verbose else 5]:
            console.print(f"  {_suspect(suspect)}", soft_wrap=True)
    elif layers.changed:
        console.print("every tensor agrees on these inputs, but weights differ:")
        for suspect in layers.changed[: 20 if verbose else 5]:
            console.print(f"  {_suspect(suspect)}", soft_wrap=True)
    else:
        others = " other" if any(t.reused for t in layers.tensors) else ""
        console.print(f"[green]every{others} tensor agrees[/]")
    if layers.reproducer is not None:
        _reproducer(layers.reproducer, console)


def _reproducer(found: Reproducer, console: Console) -> None:
    nodes = f"{found.nodes_a} and {found.nodes_b} nodes"
    if found.differs:
        console.print(f"the part that differs ({nodes}, off by {number(found.max_abs)}) shows it alone:")
    else:
        console.print(f"[yellow]the part ({nodes}) does not differ alone: the difference needs its surroundings[/]")
    for line in found.command:
        console.print(f"  {markup(line, 1000)}", soft_wrap=True)


def _suspect(suspect: Suspect) -> str:
    changed = f", which reads changed {markup(', '.join(suspect.changed_weights))}" if suspect.changed_weights else ""
    if suspect.explaining_weights:
        one = " or ".join(suspect.explaining_weights)
        changed += f": a change of {markup(one)} alone explains the folded weights"
    inputs = f" ({markup(', '.join(suspect.inputs), 160)})" if suspect.inputs else ""
    return f"{suspect.model}: {markup(suspect.operator)} [bold]{markup(suspect.node)}[/]{inputs}{changed}"


def _excerpt(layers: Layers) -> list[LayerDifference]:
    """What surrounds the first wrong tensor, and a sample of the rest."""
    items = layers.tensors
    if len(items) <= _ROWS:
        return list(items)
    kept = set(range(0, len(items), max(1, len(items) // _SAMPLE))) | {len(items) - 1}
    if layers.culprit is not None:
        first = next((i for i, item in enumerate(items) if item.name == layers.culprit.tensor), 0)
        kept |= set(range(max(0, first - 2), min(len(items), first + 3)))
    return [items[i] for i in sorted(kept)]


def why(item: TensorDifference) -> str:
    """What is wrong with an output: how many elements, and the worst one."""
    if item.note:
        return item.note
    where = list(item.worst_index or ())
    return (
        f"{item.mismatched} of {item.total} elements outside tolerance; worst at {where} of run {item.worst_run + 1}: "
        f"{item.expected} against {item.actual}"
    )
