"""A plugin is tried in a process of its own. Stand-ins really crash, and really find nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxtool.runtime.providers import trial
from onnxtool.runtime.providers.trial import ProviderTrial, try_plugin
from tests.conftest import require_openvino

_DIES = 'import os, signal; print(\'{"devices": ["cpu: X"]}\', flush=True); os.kill(os.getpid(), signal.SIGILL)'
_NEEDS_SETTING = f"""
import os
if os.environ.get("ONEDNN_MAX_CPU_ISA") == "AVX512_CORE_BF16":
    print('{{"devices": ["cpu: X"]}}')
else:
    exec({_DIES!r})
"""


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """The process that tries a plugin runs `plugin.py`."""
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(trial, "_MODULE", "plugin")
    monkeypatch.syspath_prepend(tmp_path)
    return monkeypatch


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("plugin", "found"),
    [
        ("print('{\"devices\": []}')", ProviderTrial("no device", (), "it finds no device on this machine")),
        ("print('noise'); print('{\"devices\": [\"cpu: X\"]}')", ProviderTrial("runs", ("cpu: X",))),
        (_DIES, ProviderTrial("crashes", ("cpu: X",), "crashes on this processor (SIGILL)")),
        (
            _NEEDS_SETTING,
            ProviderTrial(
                "crashes",
                ("cpu: X",),
                "crashes on this processor (SIGILL); it runs with ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16",
            ),
        ),
        ('print(\'{"failed": "it lacks a symbol"}\')', ProviderTrial("failed", (), "it lacks a symbol")),
        ("raise SystemExit(1)", ProviderTrial("failed", (), "its process ended with code 1")),
    ],
    ids=["no device", "runs", "dies", "needs a setting", "does not load", "ends"],
)
def test_what_a_plugin_does_is_told(tmp_path: Path, plugin: str, found: ProviderTrial) -> None:
    (tmp_path / "plugin.py").write_text(plugin, encoding="utf-8")
    assert try_plugin("module", "openvino") == found


def test_a_module_that_is_no_plugin_fails() -> None:
    found = try_plugin("json", "abacus")
    assert found.state == "failed"
    assert "does not tell where its library is" in found.reason


def test_the_small_model_runs_on_the_cpu() -> None:
    import numpy as np

    from onnxtool.runtime.runner import OnnxRunner

    assert OnnxRunner.open(trial._product()).run({"x": np.ones((4, 256), np.float32)})["y"].shape == (4, 256)


@pytest.mark.parametrize("plugin", [_DIES, "print('{\"devices\": []}')"], ids=["dies", "no device"])
def test_tests_of_a_plugin_that_does_not_run_are_skipped_aloud(
    tmp_path: Path, stand_in: pytest.MonkeyPatch, plugin: str
) -> None:
    stand_in.setattr(pytest, "importorskip", lambda *_, **__: None)
    (tmp_path / "plugin.py").write_text(plugin, encoding="utf-8")
    with pytest.raises(pytest.skip.Exception, match=r"crashes on this processor \(SIGILL\)|finds no device"):
        require_openvino()
