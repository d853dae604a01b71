"""What doctor says of providers."""

from __future__ import annotations

import pytest

from onnxtool.errors import UsageError
from onnxtool.runtime.providers import survey
from onnxtool.runtime.providers.plugins import Plugin


def test_what_is_not_installed_comes_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "installed_plugins", lambda: ())
    monkeypatch.setattr(survey.ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    found = {info.name: info for info in survey.survey()}
    assert found["cpu"].state == "built in"
    assert not found["cpu"].command
    assert found["openvino"].state == "not installed"
    assert found["openvino"].command == "pip install onnxruntime-ep-openvino"
    assert found["cuda"].command.startswith("pip uninstall onnxruntime;")


def test_a_plugin_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "installed_plugins", lambda: (Plugin("d", "1.0", "module", "abacus"),))

    def fail(_: str) -> None:
        raise UsageError("it lacks a symbol")

    monkeypatch.setattr(survey, "register_library", fail)
    abacus = next(info for info in survey.survey() if info.name == "abacus")
    assert (abacus.state, abacus.where) == ("failed", "it lacks a symbol")
