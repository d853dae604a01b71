"""Manual pages (man 1 onnxtool-optimize) from the same words as the help pages.

`python -m onnxtool.cli.man_pages DIR`, or `make man`, writes one for each command and one for the tool.
"""

from __future__ import annotations

import sys
from pathlib import Path

from onnxtool import __version__
from onnxtool.cli.app import COMMANDS
from onnxtool.cli.help_pages import EXAMPLES, entries, paragraphs, usage

EXIT_CODES = (
    ("0", "done, and the verdict is good"),
    ("1", "the verdict is bad, and nothing was written"),
    ("2", "usage"),
    ("3", "input that cannot be read, or does not fit"),
    ("4", "not supported, or an extra is missing"),
    ("5", "refused as unsafe"),
    ("6", "out of memory, time or disk"),
    ("70", "a bug of onnxtool"),
    ("130", "interrupted"),
)


def write_all(folder: Path) -> list[Path]:
    """Write every page; gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"onnxtool": overview()} | {f"onnxtool-{name}": of_command(name) for name in COMMANDS}
    for name, text in pages.items():
        (folder / f"{name}.1").write_text(text, encoding="utf-8")
    return [folder / f"{name}.1" for name in pages]


def overview() -> str:
    """The page of the tool: its commands and exit codes."""
    lines = [_title("onnxtool"), ".SH NAME", "onnxtool \\- any trained model to a proven, fast ONNX file"]
    lines += [".SH SYNOPSIS", ".B onnxtool", "COMMAND [options]", ".SH COMMANDS"]
    for name, line in COMMANDS.items():
        lines += [".TP", f".BR onnxtool\\-{name} (1)", _plain(line)]
    return "\n".join([*lines, *_exit_codes()]) + "\n"


def of_command(name: str) -> str:
    """The page of one command, seldom used options included."""
    lines = [_title(f"onnxtool-{name}"), ".SH NAME", f"onnxtool\\-{name} \\- {_plain(COMMANDS[name])}"]
    lines += [".SH SYNOPSIS", _plain(usage(name)), ".SH DESCRIPTION"]
    for paragraph in paragraphs(name):
        lines += [_plain(paragraph), ".PP"]
    for group, members in entries(name):
        lines.append(f".SH {group.upper()}")
        for heading, text in members:
            lines += [".TP", f".B {_plain(heading)}", _plain(text)]
    lines += [".SH EXAMPLES", ".nf", *map(_plain, EXAMPLES.get(name, ())), ".fi"]
    return "\n".join([*lines, *_exit_codes()]) + "\n"


def _exit_codes() -> list[str]:
    return [".SH EXIT STATUS", *(line for code, text in EXIT_CODES for line in (".TP", f".B {code}", text))]


def _title(name: str) -> str:
    return f'.TH {name.upper().replace("-", chr(92) + "-")} 1 "" "onnxtool {__version__}"'


def _plain(text: str) -> str:
    """Text that roff takes as it is: no line may begin with a dot or a quote, and hyphens stay hyphens."""
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
