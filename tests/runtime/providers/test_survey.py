"""What doctor says of providers."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from onnxtool.cli.forms.terminal import render
from onnxtool.runtime.doctor import doctor
from onnxtool.runtime.providers import trial
from onnxtool.runtime.providers.resolve import Plugin
from onnxtool.runtime.providers.trial import ProviderTrial


def test_what_is_not_installed_comes_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "installed_plugins", lambda: ())
    monkeypatch.setattr(trial.ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    found = {info.name: info for info in trial.survey()}
    assert found["cpu"].state == "built in"
    assert not found["cpu"].command
    assert found["openvino"].state == "not installed"
    assert found["openvino"].command == "pip install onnxruntime-ep-openvino"
    assert found["cuda"].command.startswith("pip uninstall onnxruntime;")


def test_a_plugin_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "installed_plugins", lambda: (Plugin("d", "1.0", "module", "abacus"),))

    monkeypatch.setattr(trial, "try_plugin", lambda *_: ProviderTrial("failed", (), "it lacks a symbol"))
    abacus = next(info for info in trial.survey() if info.name == "abacus")
    assert (abacus.state, abacus.where) == ("failed", "it lacks a symbol")


def test_a_plugin_that_crashes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "installed_plugins", lambda: (Plugin("d", "1.0", "module", "abacus"),))
    crash = ProviderTrial("crashes", ("cpu: X",), "crashes on this processor (SIGILL)")
    monkeypatch.setattr(trial, "try_plugin", lambda *_: crash)
    report = doctor()
    assert next(i for i in report.available if i.name == "abacus").state == "crashes"
    console = Console(file=io.StringIO(), width=200)
    render(report, console, verbose=0)
    assert "crashes on this processor (SIGILL)" in console.file.getvalue()
