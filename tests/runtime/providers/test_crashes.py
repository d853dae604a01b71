"""Providers that crash, through the real commands: the process really dies by the signal where the provider starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="commands are watched where processes fork")

# A stand-in for a provider: the CPU's under another name, which kills the process when it loads or runs a model.
_COMMAND = """
import os, signal, sys
import onnxruntime as ort
from onnxtool.runtime.providers import known, resolve
where, number, helps, broken = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
sys.argv = ["onnxtool", *sys.argv[5:]]
names = resolve.available_providers
resolve.available_providers = lambda: [*names(), "AbacusExecutionProvider"]
if helps:
    known.CRASH_SETTINGS["abacus"] = ("ABACUS_ISA", "OLD")

def die(place):
    if place == where and os.environ.get("ABACUS_ISA") != helps or broken:
        os.kill(os.getpid(), number)

class Session(ort.InferenceSession):
    def __init__(self, model, options, providers=(), **rest):
        self.abacus = bool(providers) and providers[0][0] == "AbacusExecutionProvider"
        if self.abacus or broken:
            die("loading")
        super().__init__(model, options, providers=["CPUExecutionProvider"], **rest)
    def get_providers(self):
        return ["AbacusExecutionProvider"] * self.abacus + super().get_providers()
    def run(self, *arguments):
        if self.abacus:
            die("running")
        return super().run(*arguments)

ort.InferenceSession = Session
from onnxtool.cli.app import main
main()
"""


def command(
    *words: object, where: str = "loading", number: int = 4, helps: str = "", broken: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "ABACUS_ISA"}
    return subprocess.run(
        [sys.executable, "-c", _COMMAND, where, str(number), helps, broken, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )


@pytest.mark.parametrize("where", ["loading", "running"])
@pytest.mark.parametrize("number", [4, 11])  # SIGILL, SIGSEGV
def test_a_crash_that_the_cpu_does_not_share_is_the_providers(digits_onnx: Path, where: str, number: int) -> None:
    done = command("run", digits_onnx, "--provider", "abacus", where=where, number=number)
    assert done.returncode == 4
    assert done.stderr.startswith("error: abacus crashes on this processor (SIG")
    assert f"while {where} the model" in done.stderr
    assert "The CPU provider does not: the file is not at fault." in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [("compare", "--provider-b"), ("bench", "--provider")])
def test_other_commands_say_so_too(digits_onnx: Path, words: tuple[str, str]) -> None:
    name, option = words
    models = [digits_onnx] * (2 if name == "compare" else 1)
    done = command(name, *models, option, "abacus")
    assert done.returncode == 4
    assert "abacus crashes on this processor (SIGILL)" in done.stderr
    assert "malformed" not in done.stderr


def test_a_setting_that_helps_is_used_and_named(digits_onnx: Path, tmp_path: Path) -> None:
    done = command("run", digits_onnx, "--provider", "abacus", "-o", tmp_path / "o.npz", helps="OLD")
    assert done.returncode == 0
    assert "warning: abacus crashes on this processor (SIGILL); it was started again with ABACUS_ISA=OLD" in done.stderr
    assert (tmp_path / "o.npz").exists()


def test_a_setting_that_does_not_help_is_named(digits_onnx: Path) -> None:
    done = command("run", digits_onnx, "--provider", "abacus", helps="NEW")
    assert done.returncode == 4
    assert "abacus crashes on this processor (SIGILL)" in done.stderr
    assert "with ABACUS_ISA=OLD too" in done.stderr


def test_a_file_that_crashes_the_cpu_too_is_at_fault(digits_onnx: Path) -> None:
    done = command("run", digits_onnx, "--provider", "abacus", broken="yes")
    assert done.returncode == 3
    assert "native code crashed (SIGILL) while loading the model into the runtime; the file is malformed" in done.stderr
