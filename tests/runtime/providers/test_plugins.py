"""Plugins are found in the installation and loaded once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import onnxruntime as ort
import pytest

from onnxtool.errors import UsageError
from onnxtool.runtime.providers import resolve


@pytest.mark.parametrize(
    ("library", "reason"),
    [
        ("no/such/file.so", "no such file"),
        ("no_such_package", "neither a file nor an installed package"),
        ("numpy", "does not tell where its library is"),
    ],
)
def test_refuses_what_is_no_library(library: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        resolve.register_library(library)


def test_a_file_that_is_no_library_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "libnothing.so"
    path.write_bytes(b"nothing")
    with pytest.raises(UsageError, match="the runtime cannot load it"):
        resolve.register_library(path)


def test_a_library_is_registered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "libonnxruntime_providers_abacus.so"
    path.write_bytes(b"")
    names: list[str] = []
    known = [SimpleNamespace(ep_name="CPUExecutionProvider")]

    def register(name: str, _: str) -> None:
        names.append(name)
        known.append(SimpleNamespace(ep_name=name))

    monkeypatch.setattr(ort, "register_execution_provider_library", register)
    monkeypatch.setattr(ort, "get_ep_devices", lambda: known)
    monkeypatch.setattr(resolve, "_registered", {})
    assert resolve.register_library(path) == resolve.register_library(path) == ("abacus",)
    assert names == ["abacus"]


def test_installed_packages_are_found_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("onnxruntime_ep_abacus", "onnxruntime_ep_openvino"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("", encoding="utf-8")
    listed = [
        SimpleNamespace(metadata={"Name": name}, version="1.0")
        for name in ("onnxruntime-ep-abacus", "onnxruntime_ep_openvino", "onnxruntime-ep-without-code", "numpy")
    ]
    monkeypatch.setattr(resolve.metadata, "distributions", lambda: listed)
    monkeypatch.syspath_prepend(tmp_path)
    assert [(p.short, p.module) for p in resolve.installed_plugins()] == [
        ("abacus", "onnxruntime_ep_abacus"),
        ("openvino", "onnxruntime_ep_openvino"),
    ]
