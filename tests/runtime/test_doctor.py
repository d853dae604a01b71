"""doctor: what it reads off the operating system and the installation."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from onnxtool.runtime import cpu, doctor

X86 = "processor\t: 0\nflags\t\t: fpu avx avx2 avx512f avx512_vnni\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp\n"


@pytest.mark.parametrize(
    ("text", "machine", "present"),
    [
        (X86, "x86_64", {"AVX2", "AVX512", "AVX512-VNNI"}),
        (ARM, "aarch64", {"NEON", "DOTPROD"}),
        ("", "x86_64", set()),
    ],
)
def test_features_of_cpuinfo(text: str, machine: str, present: set[str]) -> None:
    found = cpu.features(cpu.parse_cpuinfo(text), machine)
    assert {f.name for f in found if f.present} == present
    assert all(f.present is None for f in found) == (not text)


def test_advice_follows_the_features() -> None:
    def said(text: str, machine: str) -> str:
        return doctor.advice(cpu.features(cpu.parse_cpuinfo(text), machine))[0]

    assert "uint8 activations" in said(X86, "x86_64")
    assert "int8 activations and int8" in said(ARM, "aarch64")
    assert "may not make them faster" in said("flags : avx2\n", "x86_64")
    assert "does not tell" in said("", "x86_64")


def test_this_installation_is_ready() -> None:
    report = doctor.doctor()
    assert report.ok
    assert report.packages["onnx"] == version("onnx")
    assert "CPUExecutionProvider" in report.providers
    assert {e.name for e in report.extras} >= {"pytorch", "keras", "sklearn", "boosting"}
    assert report.cores >= 1


def test_missing_extra_comes_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda name: None if name in ("torch", "onnx") else "1.0")
    report = doctor.doctor()
    pytorch = next(e for e in report.extras if e.name == "pytorch")
    assert not pytorch.installed
    assert pytorch.missing == ("torch",)
    assert pytorch.command == 'pip install ".[pytorch]"  # in a clone of onnxtool'
    assert not report.ok
    assert "onnx is missing" in report.problems[0]


def test_stand_ins_count_as_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_gpu(name: str) -> str:
        if name == "onnxruntime-gpu":
            return "1.31"
        raise doctor.PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", only_gpu)
    assert doctor.installed("onnxruntime") == "1.31"
    assert doctor.installed("torch") is None


def test_every_extra_is_listed_and_brings_others_than_ourselves() -> None:
    root = Path(__file__).parents[2]
    declared = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(doctor.EXTRAS) == set(declared) - {"all", "dev"}
    for extra in doctor.doctor().extras:
        brought = (*extra.versions, *extra.missing)
        assert brought and doctor.DISTRIBUTION not in brought
