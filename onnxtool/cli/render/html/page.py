"""The skeleton of all HTML pages: one style, light and dark; no scripts, no fonts, no requests.

What stands in a report's page is made by `body(report)` of the module that is called like the report's kind.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from onnxtool import __version__
from onnxtool.errors import UsageError
from onnxtool.report.base import Report

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --good: #1a7f37; --bad: #cf222e; --warn: #b35900; --bar: #0969da; }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #ff7b72; --warn: #d29922; --bar: #58a6ff; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3, p { overflow-wrap: anywhere; } h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
h3 { font-size: 1rem; }
table { border-collapse: collapse; width: 100%; } .scroll { overflow-x: auto; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td { overflow-wrap: break-word; } .scroll { margin: .75rem 0; } td.n, th.n { text-align: right; white-space: nowrap; }
td.n { font-variant-numeric: tabular-nums; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); } .dim { opacity: .7; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: currentColor; } .grid { stroke: var(--line); }
.bar { fill: var(--bar); } .pale { fill-opacity: .35; } svg .small { font-size: 10px; }
.key { display: inline-block; width: .8em; height: .8em; background: var(--bar); } .key.pale { opacity: .35; }
tr.chosen td { font-weight: 600; } svg.dot { width: 1em; height: 1em; vertical-align: -.1em; }
.kept { fill: var(--good); } .broken { fill: none; stroke: var(--warn); stroke-width: 2; } .best { fill: var(--bar); }
.float { stroke: currentColor; stroke-dasharray: 4 4; }
.dot-good { fill: var(--good); } .dot-bad { fill: var(--bad); }
.whisker { stroke: currentColor; } .box { fill: var(--bar); fill-opacity: .35; stroke: var(--bar); }
footer { margin-top: 3rem; font-size: .85rem; opacity: .7; }
/* On a telephone pictures keep letters that can be read; they and wide tables are moved sideways. */
.picture { overflow-x: auto; } .picture svg { min-width: 36rem; }
@media (max-width: 40rem) {
  body { margin: 1rem auto; } table { font-size: .85rem; } th, td { padding: .25rem .4rem; }
}
"""


def render(report: Report) -> str:
    """The page.

    Raises:
        UsageError: there is no page for this kind of report.
    """
    module = f"onnxtool.cli.render.html.{report.kind}"
    if find_spec(module) is None:
        raise UsageError(f"--html: there is no page for a {report.kind} report.")
    verdict = '<span class="good">OK</span>' if report.ok else '<span class="bad">FAILED</span>'
    body = "\n".join(import_module(module).body(report))
    return skeleton(report.kind, body, verdict)


def skeleton(title: str, body: str, verdict: str = "") -> str:
    """A page around parts that are HTML already; the title is too."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>onnxtool {title}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>onnxtool {title}{': ' if verdict else ''}{verdict}</h1>\n{body}\n"
        f"<footer>onnxtool {__version__}</footer></body></html>\n"
    )
