"""Record the real `onnxtool quickstart` as the picture that the README shows.

    python benchmarks/record_terminal.py [docs/images/quickstart.svg]

Runs the command on this machine and writes what it prints, colours included, as SVG.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

WIDTH = 100
TARGET = Path(__file__).parent.parent / "docs" / "images" / "quickstart.svg"


def main() -> None:
    """Run, record, write."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    env = {**os.environ, "COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "onnxtool", "quickstart", "demo"]
        done = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, check=True)
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    console.print(Text("$ onnxtool quickstart demo", style="bold"))
    console.print(Text.from_ansi(done.stdout.rstrip()))
    target.parent.mkdir(parents=True, exist_ok=True)
    # Without the fonts that rich would have the reader's browser fetch from elsewhere.
    plain = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    console.save_svg(str(target), title="onnxtool", unique_id="quickstart", code_format=plain)
    print(target)


if __name__ == "__main__":
    main()
