"""What `doctor` finds on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnxtool.report.base import Report


@dataclass(frozen=True)
class Extra:
    """One optional part of onnxtool.

    Attributes:
        name: the pip extra ("pytorch").
        installed: True when all its packages are there.
        versions: installed versions, by distribution.
        missing: distributions that are not there.
        command: what installs it; empty when it is installed.
    """

    name: str
    installed: bool
    versions: Mapping[str, str]
    missing: tuple[str, ...]
    command: str


@dataclass(frozen=True)
class CpuFeature:
    """One instruction set that matters for int8.

    Attributes:
        name: "AVX512-VNNI".
        present: None when this platform does not tell.
        meaning: what it does for quantized models, in a few words.
    """

    name: str
    present: bool | None
    meaning: str


@dataclass(frozen=True)
class ProviderInfo:
    """One execution provider.

    Attributes:
        name: short: what --provider takes ("openvino").
        state: "built in" to the installed ONNX Runtime, "plugin" (an installed package that onnxtool loads when it is
            asked for), "crashes" (a plugin that dies on a small model here), "failed" (a plugin that does not load or
            run one) or "not installed".
        version: of the package or library that brings it; None when unknown.
        devices: what it runs on here ("cpu: Intel(R) Xeon(R)"); none when it has no device on this machine.
        where: what it is for, or why it failed.
        command: what installs it; empty when it is there.
    """

    name: str
    state: str
    version: str | None
    devices: tuple[str, ...]
    where: str
    command: str


@dataclass(frozen=True, repr=False)
class DoctorReport(Report, kind="doctor"):
    """The machine and the installation.

    Attributes:
        python: version of the interpreter.
        platform: operating system and architecture.
        packages: versions of what onnxtool always needs; None where one is missing.
        providers: execution providers of the installed ONNX Runtime.
        available: each execution provider that is there, then those that could be.
        extras: the optional parts.
        cpu: model name of the processor.
        cores: logical cores that this process may use.
        memory_bytes: physical memory, None when unknown.
        features: instruction sets that matter for int8.
        advice: what follows from the above, one sentence each.
        problems: what keeps onnxtool from working; empty when all is well.
    """

    python: str
    platform: str
    packages: Mapping[str, str | None]
    providers: tuple[str, ...]
    max_opset: int | None
    extras: tuple[Extra, ...]
    cpu: str
    cores: int
    memory_bytes: int | None
    features: tuple[CpuFeature, ...]
    advice: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    available: tuple[ProviderInfo, ...] = ()

    @property
    def ok(self) -> bool:
        """True when everything that the base install needs is there."""
        return not self.problems
