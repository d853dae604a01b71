"""What `doctor` says of this machine."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.text import plural, size
from onnxtool.cli.views.view import Facts, Line, Part, Row, Table, Verdict, Words, state
from onnxtool.report.doctor import DoctorReport, ProviderInfo


def doctor(report: DoctorReport) -> Iterator[Part]:
    """Versions, then extras, then what the processor can do."""
    yield Verdict("ready" if report.ok else "the base install is incomplete")
    memory = f", {size(report.memory_bytes)} memory" if report.memory_bytes else ""
    yield Facts(
        (
            ("Python", f"{report.python} on {report.platform}"),
            ("processor", f"{report.cpu}, {plural(report.cores, 'core')}{memory}"),
            ("packages", ", ".join(f"{name} {found or 'MISSING'}" for name, found in report.packages.items())),
            ("newest opset", f"{report.max_opset} (of the onnx package)" if report.max_opset else None),
        )
    )
    # What --provider takes, and what would bring the others.
    columns = ("provider", "state", "devices, or what installs it")
    yield Table(columns, [_provider(info) for info in report.available])
    extras = [
        (
            extra.name,
            state("installed" if extra.installed else "missing"),
            ", ".join(f"{n} {v}" for n, v in extra.versions.items()) if extra.installed else extra.command,
        )
        for extra in report.extras
    ]
    yield Table(("extra", "state", "packages"), extras)
    present = {True: "yes", False: "no", None: "unknown"}
    features = [(feature.name, state(present[feature.present]), feature.meaning) for feature in report.features]
    yield Table(("CPU feature", "", "for int8 models"), features)
    yield from (Line(line) for line in report.advice)
    yield from (Line(line, "problem:", "bad") for line in report.problems)


def _provider(info: ProviderInfo) -> Row:
    missing = info.state in ("not installed", "failed", "crashes")
    shown = Words(info.state, "warn") if missing else Words(f"{info.state} {info.version or ''}".rstrip(), "good")
    works = "" if missing else "; ".join(info.devices)
    detail = f"{info.command}   ({info.where})" if info.command else works or info.where
    return info.name, shown, detail
