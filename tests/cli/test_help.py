"""Help, version, start-up: what a newcomer types first, and what it must not import."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from onnxtool import __version__
from onnxtool.cli.app import COMMANDS, build, sort
from onnxtool.cli.help_pages import EXAMPLES, page

HEAVY = ("onnx", "onnx_ir", "onnxscript", "onnxruntime", "numpy", "torch", "tensorflow", "keras", "sklearn")
Tool = Callable[..., "CompletedProcess[str]"]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], [], ["convert", "--help"], ["quickstart", "--help"]])
def test_imports_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from onnxtool.cli.app import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        f"print('HEAVY', sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = f"import sys, onnxtool; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_every_command(onnxtool: Tool) -> None:
    done = onnxtool("--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert f" {name} " in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(onnxtool: Tool, name: str) -> None:
    done = onnxtool(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"Usage: onnxtool {name}" in done.stdout
    assert "--json" in done.stdout


def test_prints_its_version(onnxtool: Tool) -> None:
    done = onnxtool("--version")
    assert (done.returncode, done.stdout) == (0, f"onnxtool {__version__}\n")


@pytest.mark.parametrize(
    "arguments", [["frobnicate"], ["check", "--no-such-option", "x"], ["optimize", "one", "two", "three"]]
)
def test_wrong_usage_is_exit_2(onnxtool: Tool, arguments: list[str]) -> None:
    done = onnxtool(*arguments)
    assert done.returncode == 2
    assert "Usage:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("given", "expanded"),
    [
        (["check", "m.onnx", "--json"], ["check", "m.onnx", "--json=-"]),
        (["check", "--json", "m.onnx"], ["check", "--json=-", "m.onnx"]),
        (["check", "m.onnx", "--json", "-"], ["check", "m.onnx", "--json", "-"]),
        (["check", "m.onnx", "--json", "out.json"], ["check", "m.onnx", "--json", "out.json"]),
        (["check", "--", "--json"], ["check", "--", "--json"]),
    ],
)
def test_json_may_stand_alone(given: list[str], expanded: list[str]) -> None:
    assert list(sort(given).rest) == expanded


def test_options_of_the_process_may_stand_anywhere() -> None:
    given = sort(["check", "--limit", "nodes=5", "m.onnx", "--no-isolation", "--limit=depth=2", "--", "--limit"])
    assert given.rest == ("check", "m.onnx", "--", "--limit")
    assert given.limits == ("nodes=5", "depth=2")
    assert not given.isolated


@pytest.mark.parametrize("limit", ["nodes=3", "model-bytes=1000"])
def test_a_limit_can_be_changed(onnxtool: Tool, digits_onnx: Path, limit: str) -> None:
    assert onnxtool("inspect", digits_onnx).returncode == 0
    done = onnxtool("inspect", digits_onnx, "--limit", limit)
    assert done.returncode == 6
    assert limit.partition("=")[2] in done.stderr


@pytest.mark.parametrize("limit", ["frobs=3", "nodes", "nodes=-1", "nodes=many"])
def test_a_wrong_limit_is_exit_2(onnxtool: Tool, digits_onnx: Path, limit: str) -> None:
    done = onnxtool("inspect", digits_onnx, "--limit", limit)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: --limit {limit}: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_page_fits_and_cuts_nothing(name: str, width: int) -> None:
    command = build(name)
    text = page(name, width, everything=True)
    assert [line for line in text.splitlines() if len(line) > width] == []
    assert "…" not in text and not re.search(r"<(int|bool|float|path|str)\b", text)
    for option in command.params:
        if option.param_type_name == "option":
            assert all(re.search(rf"(?<![\w-]){re.escape(o)}(?![\w-])", text) for o in option.opts)


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_stand_first_and_name_options_that_exist(name: str) -> None:
    command = build(name)
    known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    assert EXAMPLES[name]
    for example in EXAMPLES[name]:
        words = example.split()
        assert words[:2] == ["onnxtool", name]
        assert {w for w in words if w.startswith("-")} <= known
    text = page(name, 80)
    assert text.index("Examples:") < text.index("--json")


def test_what_is_seldom_used_is_shown_when_asked_for(onnxtool: Tool) -> None:
    usual, everything = onnxtool("quantize", "--help").stdout, onnxtool("quantize", "--help-all").stdout
    assert "--bias-correction" not in usual and "more options: onnxtool quantize --help-all" in usual
    assert "--bias-correction" in everything and "--help-all" not in everything
    assert "Default: 0.01 in auto" in " ".join(usual.split()) and "[default: accuracy]" in " ".join(usual.split())
