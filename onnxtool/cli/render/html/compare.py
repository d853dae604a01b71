"""The page of `compare`: outputs, histograms of their errors, and the layers."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.render.html.parts import table, text
from onnxtool.cli.render.html.plots import Bar, depth_plot, histogram
from onnxtool.cli.render.text import cosine, number
from onnxtool.report.compare import LOWEST_DECADE, CompareReport, TensorDifference
from onnxtool.report.layers import Layers


def body(report: CompareReport) -> Iterator[str]:
    """The page\'s parts."""
    tolerance = report.rule or f"rtol {report.rtol:g}, atol {report.atol:g}"
    yield f"<p>{text(report.a)} against {text(report.b)}, {text(report.data)}, {tolerance}</p>"
    rows = [
        (
            o.name,
            f"{o.dtype}[{', '.join(map(str, o.shape))}]",
            ("equal" if o.ok else "differs") if o.compared else "not compared",
            *(number(v) for v in (o.max_abs, o.max_rel, o.mean_abs)),
            cosine(o.cosine),
            number(o.sqnr_db),
        )
        for o in report.outputs
    ]
    columns = ("output", "shape", "verdict", "max abs", "max rel", "mean abs", "cosine", "SQNR dB")
    yield table(columns, rows, right=5)
    yield from (f'<p class="warn">{text(line)}</p>' for line in report.warnings)
    for output in report.outputs:
        yield from _histogram(output)
    if report.layers is not None:
        yield from _layers(report.layers)


def _histogram(output: TensorDifference) -> Iterator[str]:
    if sum(output.error_decades[1:]) == 0:
        return
    yield f"<h2>{text(output.name)}: elements by their error</h2>"
    labels = ["0", *(f"1e{LOWEST_DECADE + i}" for i in range(len(output.error_decades) - 1))]
    counted = [Bar(label, n, str(n)) for label, n in zip(labels, output.error_decades, strict=True)]
    yield histogram(counted, "absolute error, |a - b|, from", "elements, by their logarithm")
    if output.worst_index is not None:
        where = f"worst at {list(output.worst_index)}: {output.expected} against {output.actual}"
        yield f'<p class="dim">{text(where)}</p>'


def _layers(layers: Layers) -> Iterator[str]:
    yield "<h2>Error along the depth</h2>"
    points = [(t.depth, t.error, t.ok or t.reused, f"{t.operator} {t.name}: {t.error:.3g}") for t in layers.tensors]
    yield depth_plot(points)
    if layers.culprit is not None:
        yield f'<p>First wrong tensor: <strong class="bad">{text(layers.culprit.tensor)}</strong>, made by</p>'
        suspects = layers.culprit.suspects
    else:
        yield "<p>Every tensor agrees" + (" on these inputs, but weights differ:</p>" if layers.changed else ".</p>")
        suspects = layers.changed
    rows = [
        (
            s.model,
            s.operator,
            s.node,
            ", ".join(s.inputs),
            ", ".join(s.changed_weights),
            " or ".join(s.explaining_weights),
        )
        for s in suspects
    ]
    if rows:
        yield table(("model", "operator", "node", "reads", "changed weights", "explained by"), rows)
