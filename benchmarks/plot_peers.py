"""Draw the first table of docs/benchmarks-quantize.md: latency of `quantize` beside the fastest accurate peer.

python benchmarks/plot_peers.py [docs/images/quantize-peers.svg]
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
WIDTH, LEFT, ROW, BAR, TOP = 760, 170, 46, 15, 74
OURS, PEER, INK, GRID = "#1f6feb", "#9aa4b2", "#24292f", "#d0d7de"


def rows(text: str) -> list[tuple[str, float, float, str]]:
    """(model, our latency, the peer's, its name), of the first table that names peers."""
    found = []
    table: list[str] = []
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if "fastest accurate peer" in cells:
            table = cells
        elif not line.startswith("|"):
            if found:
                break
            table = []
        elif table and not set(line) <= set("|- :"):
            row = dict(zip(table, cells, strict=True))
            ours = next(v for k, v in row.items() if k.startswith("latency ratio"))
            peer, _, name = row["fastest accurate peer"].partition(" ")
            found.append((row["model"], float(ours.split()[0]), float(peer), name.strip("()")))
    return found


def picture(table: list[tuple[str, float, float, str]]) -> str:
    """The plot as SVG: two bars for each model, and the line at which float is."""
    longest = max(1.1, *(max(ours, peer) for _, ours, peer, _ in table))
    scale = (WIDTH - LEFT - 190) / longest
    height = TOP + ROW * len(table) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="16" y="24" font-size="15" fill="{INK}">Latency of the quantized model over float, within the same '
        "accuracy (lower is better)</text>",
        f'<rect x="16" y="40" width="12" height="12" fill="{OURS}"/><text x="34" y="51" fill="{INK}">onnxtool quantize'
        f'</text><rect x="170" y="40" width="12" height="12" fill="{PEER}"/><text x="188" y="51" fill="{INK}">fastest '
        "accurate peer</text>",
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = LEFT + tick * scale
        colour, dash = (INK, ' stroke-dasharray="4 3"') if tick == 1 else (GRID, "")
        label = "1 = float" if tick == 1 else f"{tick:g}"
        parts.append(f'<line x1="{x}" y1="{TOP - 8}" x2="{x}" y2="{height - 30}" stroke="{colour}"{dash}/>')
        parts.append(f'<text x="{x}" y="{height - 12}" text-anchor="middle" fill="{INK}">{label}</text>')
    for index, (model, ours, peer, name) in enumerate(table):
        y = TOP + ROW * index
        parts.append(f'<text x="{LEFT - 10}" y="{y + 20}" text-anchor="end" fill="{INK}">{escape(model)}</text>')
        for value, colour, offset, said in ((ours, OURS, 0, ""), (peer, PEER, BAR + 2, f" {name}")):
            parts.append(f'<rect x="{LEFT}" y="{y + offset}" width="{value * scale}" height="{BAR}" fill="{colour}"/>')
            place = LEFT + value * scale + 6
            shown = (
                f'<text x="{place}" y="{y + offset + 12}" font-size="12" fill="{INK}">{value:.2f}{escape(said)}</text>'
            )
            parts.append(shown)
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Read the table, write the picture."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "images" / "quantize-peers.svg"
    target.write_text(picture(rows((DOCS / "benchmarks-quantize.md").read_text(encoding="utf-8"))), encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main()
