"""What a finding of `check` stands for."""

from __future__ import annotations

from dataclasses import dataclass

from onnxtool.report.check import Finding, Severity

FAMILIES = ("specification", "runtime", "portability", "performance", "numerics", "size", "security", "metadata")


@dataclass(frozen=True)
class LintRule:
    """What a finding id stands for. An id is never given to anything else, even when its rule goes away.

    Attributes:
        id: "OT001".
        family: specification (OT0xx), runtime (OT1xx), portability (OT2xx), performance (OT3xx), numerics (OT4xx),
            size (OT5xx), security (OT6xx), metadata (OT7xx).
        title: a few words.
        explanation: why it matters.
        fix: what to do.
    """

    id: str
    severity: Severity
    title: str
    explanation: str
    fix: str

    @property
    def family(self) -> str:
        """The name of the id's hundred."""
        return FAMILIES[int(self.id[2])]

    def finding(self, message: str, where: str = "", fix: str = "") -> Finding:
        """This rule, broken at one place; `fix` where something more fitting can be said there."""
        return Finding(self.id, self.severity, message, where, fix or self.fix)
