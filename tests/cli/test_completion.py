"""Completion in the shells themselves, where they are installed; their scripts are what --install-completion
installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxtool.cli import completion

Complete = Callable[[str], set[str]]
BASH = """
source "$1"
read -r -a COMP_WORDS <<< "$2"
[[ "$2" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_onnxtool_completion onnxtool
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = """
source $argv[1]
complete -C $argv[2]
"""
ZSH = """
autoload -Uz compinit
compinit -u -d "$3"
source "$1"
_arguments() { print -r -- "$@" }
words=(${(z)2})
[[ "$2" == *" " ]] && words+=("")
CURRENT=${#words}
_onnxtool_completion
"""


@pytest.fixture(params=["bash", "fish", "zsh"])
def complete(request: pytest.FixtureRequest, tmp_path: Path) -> Complete:
    shell = shutil.which(request.param)
    if shell is None:
        pytest.skip(f"{request.param} is not installed")
    tool = tmp_path / "bin" / "onnxtool"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m onnxtool "$@"\n')
    tool.chmod(0o755)
    path = os.pathsep.join((str(tool.parent), os.environ["PATH"]))
    env = {**os.environ, "PATH": path, "HOME": str(tmp_path), "NO_COLOR": "1"}
    script = tmp_path / "script"
    source = {**env, "_ONNXTOOL_COMPLETE": f"source_{request.param}"}
    shown = subprocess.run([tool], capture_output=True, text=True, env=source, check=True)
    script.write_text(shown.stdout)
    runner = tmp_path / "runner"
    runner.write_text({"bash": BASH, "fish": FISH, "zsh": ZSH}[request.param])

    def ask(line: str) -> set[str]:
        call = [shell, str(runner), str(script), line, str(tmp_path / "dump")]
        done = subprocess.run(call, capture_output=True, text=True, env=env, check=False)
        if request.param == "zsh":
            return set(done.stdout.replace("*: :((", "").replace("))", "").replace('"', " ").replace("\\", "").split())
        return {word.split("\t")[0] for word in done.stdout.splitlines() if word.strip()}

    return ask


def test_offers_commands_options_and_their_values(complete: Complete, digits_onnx: Path) -> None:
    assert "optimize" in complete("onnxtool opt")
    assert "--skip" in complete("onnxtool optimize --sk")
    assert "fuse-attention" in complete("onnxtool optimize --pass fuse-att")
    assert any("image" in word for word in complete(f"onnxtool optimize {digits_onnx} --input-shape im"))


def test_choices_are_offered_by_their_beginning(monkeypatch: pytest.MonkeyPatch, digits_onnx: Path) -> None:
    assert completion.completions("targets", "a") == ["avx2", "avx512", "amx", "arm64"]
    assert completion.findings("OT301,OT01") == [f"OT301,OT{n}" for n in ("010", "011", "012", "013", "014")]
    assert "security" in completion.findings("sec")
    assert "cpu" in completion.providers("c")
    monkeypatch.setenv("COMP_WORDS", f"onnxtool compare {digits_onnx} --tolerance ")
    assert completion.output_names("") == ["logits:"]
    assert completion.input_files("im") == ["image="]
    assert "node_conv2d" in completion.node_names("node_conv2d")
    monkeypatch.setenv("COMP_WORDS", "onnxtool compare 'open")
    assert completion.output_names("") == []
